"""A progress bar on stderr while Find works, where stderr is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from hipfind.find.report import OnProgress, Progress

_VERBS = {"tune": "tuning", "compile": "compiling", "verify": "verifying", "time": "timing"}


@contextlib.contextmanager
def find_progress() -> Iterator[OnProgress | None]:
    """A callback for Find that draws a bar; None where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    bar = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        auto_refresh=False,  # a thread that draws would disturb what is being timed
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def show(step: Progress) -> None:
            description = f"{_VERBS.get(step.stage, step.stage)} {step.solver_id}"
            bar.update(task, description=description, completed=step.done, total=step.total, refresh=True)

        yield show
