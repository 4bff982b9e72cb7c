"""What can go wrong with a perf DB, by kind, with a remedy for each. The one place that reads sqlite's errors."""

from __future__ import annotations

import enum
import errno
import os
import sqlite3

from hipfind.errors import PerfDbError


class Fault(enum.Enum):
    """Kinds of fault; the value is how a message names the kind."""

    LOCKED = "is locked by another process"
    READ_ONLY = "is read-only"
    DENIED = "may not be used: permission denied"
    FULL = "cannot grow: the disk or the quota is full"
    IO_ERROR = "cannot be read or written: disk I/O error"
    CANNOT_OPEN = "cannot be opened"
    CORRUPT = "is damaged or is not a database"
    FOREIGN = "is another program's database"
    NEWER = "was written by a newer hipfind"
    OLDER = "has an older schema and cannot be migrated because it is read-only"
    MISSING = "does not exist"
    BAD_PATH = "cannot be at this path"
    NO_HOME = "has no place: there is no home directory"
    REFUSED = "does not take this record"
    OTHER = "failed"


_ELSEWHERE = "set HIPFIND_USER_DB_PATH to a file in a directory that you may write"
REMEDIES = {
    Fault.LOCKED: "end the program that holds it, or set HIPFIND_USER_DB_PATH to another file",
    Fault.READ_ONLY: f"make the file and its directory writable, or {_ELSEWHERE}",
    Fault.DENIED: f"change the permissions or the owner, or {_ELSEWHERE}",
    Fault.FULL: f"free some space or inodes, or {_ELSEWHERE}",
    Fault.IO_ERROR: f"check the disk, or {_ELSEWHERE}",
    Fault.CANNOT_OPEN: f"check that the directory exists and may be entered, or {_ELSEWHERE}",
    Fault.CORRUPT: "move the file aside; find starts a new one",
    Fault.FOREIGN: "set HIPFIND_USER_DB_PATH to a perf DB or to a new file",
    Fault.NEWER: "upgrade hipfind, or set HIPFIND_USER_DB_PATH to another file",
    Fault.OLDER: "make the file and its directory writable once, so that it can be migrated",
    Fault.MISSING: "run hipfind find once, or give the path of a perf DB",
    Fault.BAD_PATH: "set HIPFIND_USER_DB_PATH to a file, or to a directory that may hold hipfind.db",
    Fault.NO_HOME: "set HOME to an existing directory, or HIPFIND_USER_DB_PATH to a file",
    Fault.REFUSED: "nothing was stored",
    Fault.OTHER: "set HIPFIND_USER_DB_PATH to another file",
}

_BY_CODE = {
    3: Fault.DENIED,  # SQLITE_PERM
    5: Fault.LOCKED,  # SQLITE_BUSY
    6: Fault.LOCKED,  # SQLITE_LOCKED
    8: Fault.READ_ONLY,  # SQLITE_READONLY
    10: Fault.IO_ERROR,  # SQLITE_IOERR
    11: Fault.CORRUPT,  # SQLITE_CORRUPT
    13: Fault.FULL,  # SQLITE_FULL
    14: Fault.CANNOT_OPEN,  # SQLITE_CANTOPEN
    15: Fault.LOCKED,  # SQLITE_PROTOCOL
    26: Fault.CORRUPT,  # SQLITE_NOTADB
}
_SHM_SIZE = 10 | 19 << 8  # SQLITE_IOERR_SHMSIZE: no room for the log's index, without which a WAL file is not read
_BY_MESSAGE = (
    ("access permission denied", 3),
    ("database is locked", 5),
    ("database table is locked", 6),
    ("database schema is locked", 6),
    ("attempt to write a readonly database", 8),
    ("disk I/O error", 10),
    ("database disk image is malformed", 11),
    ("malformed database schema", 11),
    ("database or disk is full", 13),
    ("unable to open database file", 14),
    ("locking protocol", 15),
    ("file is not a database", 26),
)
_BY_ERRNO = {
    errno.EACCES: Fault.DENIED,
    errno.EPERM: Fault.DENIED,
    errno.EROFS: Fault.READ_ONLY,
    errno.ENOSPC: Fault.FULL,
    errno.EDQUOT: Fault.FULL,
    errno.EIO: Fault.IO_ERROR,
    errno.ENOTDIR: Fault.BAD_PATH,
    errno.EEXIST: Fault.BAD_PATH,
    errno.EISDIR: Fault.BAD_PATH,
    errno.ENAMETOOLONG: Fault.BAD_PATH,
    errno.ELOOP: Fault.BAD_PATH,
}


class DbFault(PerfDbError):
    """A PerfDbError of a known kind. ``path`` is the file it is about ("" for a DB in memory)."""

    def __init__(self, fault: Fault, path: str, detail: str = "", remedy: str = "") -> None:
        self.fault = fault
        self.path = path
        what = f"the perf DB {fault.value}"
        if detail:
            what += f" ({detail})"
        super().__init__(what, got=printable(path) or "a DB in memory", remedy=remedy or REMEDIES[fault])


def fault_of(error: sqlite3.Error | OSError) -> Fault:
    """Kind of an error: by sqlite's primary result code where Python knows it (3.11), else by sqlite's text for it."""
    if isinstance(error, OSError):
        return _BY_ERRNO.get(error.errno or 0, Fault.CANNOT_OPEN)
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is None:
        code = next((number for text, number in _BY_MESSAGE if str(error).startswith(text)), 0)
    return Fault.FULL if code == _SHM_SIZE else _BY_CODE.get(code & 0xFF, Fault.OTHER)


def db_fault(error: sqlite3.Error | OSError, path: str, doing: str) -> DbFault:
    """The error as a DbFault; ``doing`` says what was tried, e.g. "reading find records"."""
    text = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return DbFault(fault_of(error), path, f"{doing}: {text}")


def printable(path: str | os.PathLike[str]) -> str:
    """A path as text that every stream can take: bytes that are not UTF-8 are shown escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
