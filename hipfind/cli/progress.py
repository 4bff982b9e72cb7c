"""Progress bars on stderr while something works, where stderr is a terminal."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from hipfind.find.report import OnProgress, Progress

_VERBS = {"tune": "tuning", "compile": "compiling", "verify": "verifying", "time": "timing"}


@contextlib.contextmanager
def find_progress() -> Iterator[OnProgress | None]:
    """A callback for Find that draws a bar; None where stderr is not a terminal."""
    # A thread that draws would disturb what is being timed.
    with _bar("starting", "MofNCompleteColumn", auto_refresh=False) as update:
        if update is None:
            yield None
            return

        def show(step: Progress) -> None:
            description = f"{_VERBS.get(step.stage, step.stage)} {step.solver_id}"
            update(description=description, completed=step.done, total=step.total, refresh=True)

        yield show


@contextlib.contextmanager
def file_progress(name: str) -> Iterator[Callable[[int, int], None] | None]:
    """A callback (done, total) that draws a bar for a file; None where stderr is not a terminal."""
    with _bar(f"reading {name}", "TaskProgressColumn") as update:
        if update is None:
            yield None
            return

        def show(done: int, total: int) -> None:
            update(description=f"{'reading' if done < total else 'storing'} {name}", completed=done, total=total)

        yield show


@contextlib.contextmanager
def _bar(description: str, amount: str, **options: Any) -> Iterator[Callable[..., None] | None]:
    """Draw a bar of one task; its update function, None where stderr is not a terminal. ``amount``: rich's column."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    bar = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        getattr(bars, amount)(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        **options,
    )
    with bar:
        yield functools.partial(bar.update, bar.add_task(description, total=None))
