"""Threads that take parts of a kernel's items beside the calling one; kernels run outside of the interpreter lock."""

from __future__ import annotations

import collections
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from hipfind import settings

_CHUNKS_PER_THREAD = 4  # uneven items and busy cores even out
_MOST_THREADS = 1024


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count() -> int:
    """Threads of a kernel: the setting, or all cores that this process may use."""
    return min(settings.current().host_threads or usable_cores(), _MOST_THREADS)


class Workers:
    """A pool that grows to the largest thread count asked of it. Safe from several threads and after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._process = 0

    def run(self, part: Callable[[int, int], object], begin: int, end: int, threads: int) -> None:
        """Call ``part(first, last)`` for all of begin..end, in chunks, on up to ``threads`` threads; waits for all."""
        chunk = max(1, -(-(end - begin) // (threads * _CHUNKS_PER_THREAD)))
        starts = collections.deque(range(begin, end, chunk))

        def work() -> None:
            while True:
                try:
                    start = starts.popleft()
                except IndexError:
                    return
                part(start, min(start + chunk, end))

        helpers = self._submit(work, min(threads, len(starts)) - 1)
        try:
            work()
        finally:
            starts.clear()  # after an interrupt nobody may write to the caller's memory any more
            for helper in helpers:
                if not helper.cancel():
                    helper.result()

    def _submit(self, work: Callable[[], None], count: int) -> list[Future[None]]:
        with self._lock:
            if self._executor is None or self._process != os.getpid():  # threads do not survive a fork
                self._executor = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="hipfind-host")
                self._process = os.getpid()
            helpers: list[Future[None]] = []
            try:
                for _ in range(count):
                    helpers.append(self._executor.submit(work))
            except RuntimeError:  # no new threads: the interpreter is ending, or a limit is reached
                pass
            return helpers
