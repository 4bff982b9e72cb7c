"""Progress bars on stderr while something works, where stderr is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

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


@contextlib.contextmanager
def file_progress(name: str) -> Iterator[Callable[[int, int], None] | None]:
    """A callback (done, total) that draws a bar for a file; None where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    bar = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )
    with bar:
        task = bar.add_task(f"reading {name}", total=None)

        def show(done: int, total: int) -> None:
            bar.update(
                task, description=f"{'reading' if done < total else 'storing'} {name}", completed=done, total=total
            )

        yield show
