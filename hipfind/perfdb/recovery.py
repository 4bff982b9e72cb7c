"""Moves a damaged perf DB out of the way, together with its journals, so that nothing of it is lost."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from hipfind.perfdb.connect import pause
from hipfind.perfdb.copies import free_name
from hipfind.perfdb.faults import DbFault, Fault, db_fault, fault_of

_SIBLINGS = ("-wal", "-shm", "-journal", "")
"""The database itself last: a process that opens it meanwhile must find it damaged, not new beside an old journal."""
_LOCK_WAIT_S = 5.0


def set_aside(path: Path) -> Path | None:
    """Move the file to ``<name>.corrupt-<UTC time>``; returns that path.

    None when the file is gone or sound: another process was faster, or the damage was only seen in passing. Raises
    DbFault where it cannot be moved.
    """
    real = path.resolve()
    try:
        with _directory_lock(real.parent):
            if not real.exists() or not is_damaged(real):
                return None
            aside = free_name(real, "corrupt")
            for suffix in _SIBLINGS:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(f"{real}{suffix}", f"{aside}{suffix}")
            return aside
    except (sqlite3.Error, OSError) as error:
        raise db_fault(error, str(path), "moving the damaged file aside") from error


def is_damaged(path: Path) -> bool:
    """Whether sqlite finds the file malformed, by reading all of it. Raises sqlite3.Error when it cannot be read."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None)
    try:
        return [tuple(row) for row in connection.execute("PRAGMA integrity_check(1)")] != [("ok",)]
    except sqlite3.Error as error:
        if fault_of(error) is Fault.CORRUPT:
            return True
        raise
    finally:
        connection.close()


@contextlib.contextmanager
def _directory_lock(directory: Path) -> Iterator[None]:
    """One process at a time in this directory. Where directories cannot be locked the block runs without."""
    if os.name != "posix":  # a file that is open cannot be renamed there, so nobody can take another's new one
        yield
        return
    import fcntl

    handle = os.open(directory, os.O_RDONLY)
    try:
        _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, directory)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, operation: int, directory: Path) -> None:
    import fcntl

    end = time.monotonic() + _LOCK_WAIT_S
    attempt = 0
    while True:
        try:
            fcntl.flock(handle, operation)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                raise DbFault(Fault.LOCKED, str(directory), "another process is moving a damaged file") from None
        except OSError:  # a file system without such locks: the check under it is all there is
            return
        pause(attempt, end)
        attempt += 1
