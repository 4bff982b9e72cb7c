"""Turns MIOpen's keys into rows of the table ``problems``, in several processes where there are many.

A key costs a fifth of a millisecond, because every rule of its problem is checked, and a file of MIOpen's has 200,000
of them. Workers are plain child processes (``python -m hipfind.perfdb.key_rows``) that answer one line of JSON with
another, so that a caller's script needs no guard against being imported again.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

from hipfind.errors import ProblemError
from hipfind.perfdb.tables import Row, problem_row
from hipfind.problem.miopen_key import parse_miopen_key

Answer = Row | str
"""The row, or the reason why hipfind has no problem of this key."""

_MOST_WORKERS = 8
_WAITING = 2


def rows_of(keys: Sequence[str]) -> list[Answer]:
    """An answer for each of MIOpen's find-db keys."""
    return [_row_of(key) for key in keys]


def _row_of(key: str) -> Answer:
    try:
        return problem_row(parse_miopen_key(key).canonical())
    except ProblemError as error:
        return error.what


class Workers:
    """As many processes as this one may use; ``answers`` gives them work. Use as a context manager."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._processes: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()
        count = min(_MOST_WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
        self._most_waiting = _WAITING * count
        self._pool = concurrent.futures.ThreadPoolExecutor(count)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for process in self._processes:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            process.stdout.close()
            process.wait()

    def answers(self, chunks: Iterator[Sequence[str]]) -> Iterator[list[Answer]]:
        """The answers of each chunk, in order; a few chunks are worked on ahead."""
        waiting: collections.deque[concurrent.futures.Future[list[Answer]]] = collections.deque()
        for chunk in chunks:
            waiting.append(self._pool.submit(self._ask, chunk))
            if len(waiting) > self._most_waiting:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _ask(self, keys: Sequence[str]) -> list[Answer]:
        """One thread asks one process; where that does not work the keys are read here."""
        try:
            process = self._process()
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(keys) + "\n")
            process.stdin.flush()
            answers = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            return rows_of(keys)
        return [one if isinstance(one, str) else tuple(one) for one in answers]

    def _process(self) -> subprocess.Popen[str]:
        process: subprocess.Popen[str] | None = getattr(self._local, "process", None)
        if process is None:
            process = self._local.process = subprocess.Popen(
                [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                encoding="utf-8",
            )  # fmt: skip
            with self._lock:
                self._processes.append(process)
        return process


def main() -> None:
    """Answer lines of keys with lines of rows until there are no more. An interrupt is for the parent to heed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        print(json.dumps(rows_of(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
