"""Progress bars on stderr while something works, where stderr is a terminal."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from hipfind.find.report import OnProgress, Progress

_VERBS = {"tune": "tuning", "compile": "compiling", "verify": "verifying", "time": "timing"}


class TimeLeft:
    """How long a list of works will still take: as long for each as those that are done took in the mean."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = total
        self._took: list[float] = []
        self._began = clock()

    def begin(self) -> None:
        """The next work begins."""
        self._began = self._clock()

    def end(self, *, counts: bool = True) -> None:
        """It is done; one that was only looked up does not count for the mean."""
        self._left -= 1
        if counts:
            self._took.append(self._clock() - self._began)

    @property
    def seconds(self) -> float | None:
        """Time left, None before the first work is done."""
        if not self._took:
            return None
        mean = sum(self._took) / len(self._took)
        return mean * (self._left - 1) + max(mean - (self._clock() - self._began), 0.0)


def _no_prefix() -> str:
    return ""


@contextlib.contextmanager
def find_progress(prefix: Callable[[], str] = _no_prefix) -> Iterator[OnProgress | None]:
    """A callback for Find that draws a bar; None where stderr is not a terminal. ``prefix`` is asked at every step."""
    # A thread that draws would disturb what is being timed.
    with _bar("starting", "MofNCompleteColumn", auto_refresh=False) as update:
        if update is None:
            yield None
            return

        def show(step: Progress) -> None:
            description = f"{prefix()}{_VERBS.get(step.stage, step.stage)} {step.solver_id}"
            update(description=description, completed=step.done, total=step.total, refresh=True)

        yield show


@contextlib.contextmanager
def count_progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A callback (done, total) that draws a bar; None where stderr is not a terminal."""
    with _bar(what, "MofNCompleteColumn") as update:
        yield None if update is None else lambda done, total: update(completed=done, total=total)


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
