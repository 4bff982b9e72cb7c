"""Connections to a perf DB file: paths taken literally, WAL where it works, bounded waiting, read-only media."""

from __future__ import annotations

import contextvars
import math
import os
import random
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hipfind import settings
from hipfind.perfdb.faults import DbFault, Fault, fault_of
from hipfind.perfdb.migrations import migrate, pending
from hipfind.perfdb.mounts import file_system, is_shared

_OPEN_ATTEMPTS = 4
_OPEN_PAUSE_S = 0.02
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.025
_JOURNAL_WAIT_S = 0.25

Identity = tuple[int, int]
T = TypeVar("T")


class Link:
    """The connection of one PerfDb: opened at first use, opened again when the file at the path is another one.

    ``path`` None is a DB in memory. Not thread-safe: the owner holds its lock.
    """

    def __init__(self, path: Path | None, read_only: bool, wait_s: float) -> None:
        self.path = path
        self.read_only = read_only
        self.wait_s = wait_s
        self.immutable = False
        self._connection: sqlite3.Connection | None = None
        self._identity: Identity | None = None

    @property
    def name(self) -> str:
        """The path as text, "" for a DB in memory."""
        return "" if self.path is None else str(self.path)

    def connection(self) -> sqlite3.Connection:
        """The open connection. Raises DbFault, sqlite3.Error or OSError."""
        if self._connection is not None and self.path is not None and identity(self.path) != self._identity:
            self.close()
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def close(self) -> None:
        """Close the connection; it is opened again at the next use."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            connection = self._connect(":memory:", uri=False)
        elif self.read_only:
            return self._open_to_read(self.path)
        else:
            _prepare_place(self.path)
            connection = self._connect_same_file(self.path, "rwc")
        try:
            _set_up(connection, self.path, self.wait_s)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_to_read(self, path: Path) -> sqlite3.Connection:
        """Read-only. In a directory that may not be written, sqlite reads a WAL file only as an immutable one."""
        if not path.exists():
            raise DbFault(Fault.MISSING, self.name)
        _check_readable(path)
        self.immutable = False
        try:  # "rw" also where nothing is written: who leaves last then clears the log files away
            return self._open_checked(path, "rw")
        except sqlite3.Error as error:
            if fault_of(error) not in (Fault.READ_ONLY, Fault.CANNOT_OPEN) or not _is_at_rest(path):
                raise
        self.immutable = True
        return self._open_checked(path, "ro&immutable=1")

    def _open_checked(self, path: Path, mode: str) -> sqlite3.Connection:
        connection = self._connect_same_file(path, mode)
        try:
            if mode == "rw" and wants_rollback_journal(path):
                _leave_wal(connection, self.name)
            connection.execute("PRAGMA query_only = ON")
            waiting = pending(connection, self.name)
            if waiting:
                raise DbFault(Fault.OLDER, self.name, f"it lacks {', '.join(one.name for one in waiting)}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_same_file(self, path: Path, mode: str) -> sqlite3.Connection:
        """Connect, and note which file that was: one that is moved away later must not be written."""
        for attempt in range(_OPEN_ATTEMPTS):
            before = identity(path)
            try:
                connection = self._connect(f"{path.as_uri()}?mode={mode}", uri=True)
            except sqlite3.Error as error:  # network storage fails to open a file now and then
                if fault_of(error) is not Fault.CANNOT_OPEN or attempt == _OPEN_ATTEMPTS - 1:
                    raise
                time.sleep(_OPEN_PAUSE_S * 2**attempt)
                continue
            self._identity = identity(path)
            if before is None or before == self._identity:
                return connection
            connection.close()
        raise DbFault(Fault.CANNOT_OPEN, self.name, "another process keeps replacing it")

    def _connect(self, name: str, uri: bool) -> sqlite3.Connection:
        return sqlite3.connect(name, timeout=0.0, isolation_level=None, check_same_thread=False, uri=uri)


def identity(path: Path) -> Identity | None:
    """Device and inode of the file at the path, None when there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


_end: contextvars.ContextVar[float] = contextvars.ContextVar("hipfind_db_wait_ends", default=math.inf)


def retry_while_locked(work: Callable[[], T], wait_s: float) -> T:
    """Call ``work`` until it is not refused by a lock, for ``wait_s`` seconds at most; then the refusal leaves.

    This stands for sqlite's own waiting, which goes on to ask less and less often, so that who has waited long loses
    against who has just come, and which does not cover "locking protocol" and changes of the journal mode. Where
    ``work`` waits in turn, all of it together takes no longer than the outermost wait.
    """
    end = min(time.monotonic() + wait_s, _end.get())
    token = _end.set(end)
    attempt = 0
    try:
        while True:
            try:
                return work()
            except sqlite3.Error as error:
                if fault_of(error) is not Fault.LOCKED or time.monotonic() >= end:
                    raise
            pause(attempt, end)
            attempt += 1
    finally:
        _end.reset(token)


def pause(attempt: int, end: float) -> None:
    """Wait before another attempt, twice as long as before up to a bound and never past ``end`` (time.monotonic).

    Random, so that two do not meet again.
    """
    length = random.uniform(0.5, 1.5) * min(_FIRST_PAUSE_S * 2 ** min(attempt, 10), _LONGEST_PAUSE_S)
    time.sleep(max(0.0, min(length, end - time.monotonic())))


def _prepare_place(path: Path) -> None:
    """Make the directory (for this user only); refuse what sqlite would fail on only when it writes."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_place(path)


def check_place(path: Path) -> None:
    """Raises DbFault where there cannot be a file that may be written, and says whose fault that is."""
    if path.exists():
        _check_readable(path)
        if not os.access(path, os.W_OK):
            raise DbFault(Fault.READ_ONLY, str(path), f"the file may not be written{whose(path)}")
    directory = path.resolve().parent
    if not os.access(directory, os.W_OK | os.X_OK):
        raise DbFault(Fault.READ_ONLY, str(path), f"its directory may not be written{whose(directory)}")


def _check_readable(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        raise DbFault(Fault.BAD_PATH, str(path), "it is not a regular file")
    if not os.access(path, os.R_OK):
        raise DbFault(Fault.DENIED, str(path), f"it may not be read{whose(path)}")


def whose(path: Path) -> str:
    """Who owns it, where that is somebody else."""
    owner = path.stat().st_uid
    if os.name != "posix" or owner == os.geteuid():
        return ""
    return f"; it belongs to user {owner}, this is user {os.geteuid()}"


def _set_up(connection: sqlite3.Connection, path: Path | None, wait_s: float) -> None:
    """Pragmas and schema of a connection that may write. What the file is comes first: a foreign one is not touched."""
    name = "" if path is None else str(path)
    if path is not None and wants_rollback_journal(path):
        _leave_wal(connection, name)
    else:
        retry_while_locked(lambda: pending(connection, name), wait_s)
        _choose_journal(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    retry_while_locked(lambda: migrate(connection, name), wait_s)


def wants_rollback_journal(path: Path) -> bool:
    """Whether the file must not be in WAL mode: by the setting db_journal, else where several machines may use it."""
    asked = settings.current().db_journal
    return asked == "rollback" or (asked == "auto" and is_shared(file_system(path)))


def _leave_wal(connection: sqlite3.Connection, name: str) -> None:
    """Rollback journal from here on. Under an exclusive lock sqlite reads a WAL file without mapping the log's index.

    A file that is not a perf DB stays as it is. After a failure the connection is of no more use: it may hold a lock.
    """
    connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
    pending(connection, name)
    connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    connection.execute("PRAGMA locking_mode = NORMAL").fetchone()
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # lets go of the lock


def _choose_journal(connection: sqlite3.Connection) -> None:
    """WAL, so that readers and a writer do not wait for each other; the rollback journal where WAL does not work.

    Where another process is in the way the file keeps the mode that it has; the next one to open it may change that.
    """
    try:
        retry_while_locked(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone(), _JOURNAL_WAIT_S)
    except sqlite3.Error as error:
        fault = fault_of(error)
        if fault in (Fault.IO_ERROR, Fault.CANNOT_OPEN):
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        elif fault is not Fault.LOCKED:
            raise


def _is_at_rest(path: Path) -> bool:
    """No rollback journal waits to be played back: without one the file itself is consistent."""
    try:
        return os.stat(f"{path}-journal").st_size == 0
    except FileNotFoundError:
        return True
