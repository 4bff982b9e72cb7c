"""Whole copies of a perf DB file beside it, under names that overwrite nothing."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path

from hipfind.errors import PerfDbError
from hipfind.perfdb.faults import db_fault, printable

_PAGES = 4096


def free_name(path: Path, word: str) -> Path:
    """``<file>.<word>-<UTC time>`` beside the file, with a number where there is such a name already."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    name = path.with_name(f"{path.name}.{word}-{stamp}")
    number = 1
    while os.path.lexists(name):
        number += 1
        name = path.with_name(f"{path.name}.{word}-{stamp}-{number}")
    return name


def copy_whole(connection: sqlite3.Connection, target: Path, doing: str) -> None:
    """Copy the DB of a connection as it is at one moment, other processes' writing notwithstanding.

    The copy is checked, and written to the disk before its name appears. ``doing`` says what for, in the message of a
    fault. Raises PerfDbError where there is such a file already, DbFault where it cannot be written, sqlite3.Error.
    """
    if os.path.lexists(target):
        raise PerfDbError("a backup never overwrites a file", got=printable(target), remedy="give another name")
    part = target.with_name(f"{target.name}.part-{os.getpid()}")
    try:
        _copy(connection, part)
        _name(part, target)
    except OSError as error:
        raise db_fault(error, str(target), doing) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _name(part: Path, target: Path) -> None:
    """Give the finished copy its name; a link fails where another process has made one meanwhile, a rename replaces."""
    try:
        os.link(part, target)
    except FileExistsError as error:
        raise PerfDbError("a backup never overwrites a file", got=printable(target)) from error
    except OSError:  # a file system without hard links
        os.rename(part, target)


def _copy(connection: sqlite3.Connection, part: Path) -> None:
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    copy = sqlite3.connect(part)
    try:
        connection.backup(copy, pages=_PAGES)
        copy.execute("PRAGMA journal_mode = DELETE").fetchone()  # one file, with no log beside it
        result = copy.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if result != "ok":
            raise PerfDbError("the copy is damaged, so the file is", got=result, remedy="`hipfind db check` says how")
    finally:
        copy.close()
    handle = os.open(part, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
