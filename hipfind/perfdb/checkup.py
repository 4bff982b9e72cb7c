"""What state a perf DB file is in, without changing what is in it: the diagnosis behind ``hipfind db check``."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from hipfind.perfdb import paths
from hipfind.perfdb.connect import Link, check_place, whose
from hipfind.perfdb.faults import DbFault, Fault, db_fault, printable
from hipfind.perfdb.mounts import file_system
from hipfind.perfdb.store import PerfDb

OK = "ok"
MISSING = "missing"
OLDER = "older"
INVALID = "invalid_records"
_USABLE = (OK, MISSING, OLDER)
_WAIT_S = 1.0
_ROOM_BYTES = 64 * 1024
_SHOWN = 20
_RULES = ("CHECK constraint failed", "NULL value in", "NUMERIC value in", "TEXT value in")
"""How integrity_check begins a line about a value that breaks a table's rule: the file is sound all the same."""


@dataclasses.dataclass(frozen=True)
class Checkup:
    """``state``: "ok", "missing" (nothing stored yet), "older" (migrated at its next use), "invalid_records", or a
    kind of fault in lower case. ``detail`` says what was found, ``remedy`` what to do. ``facts``: about a file that
    could be opened. ``beside``: copies and damaged files that were kept next to it.
    """

    state: str
    path: str
    detail: str = ""
    remedy: str = ""
    file_system: str = ""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    beside: tuple[str, ...] = ()

    @property
    def is_usable(self) -> bool:
        """True where hipfind reads and stores without a warning."""
        return self.state in _USABLE

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {**dataclasses.asdict(self), "usable": self.is_usable}


def examine(path: str | os.PathLike[str] | None = None, *, read_only: bool = False) -> Checkup:
    """Examine the file at ``path`` (None: the user's). ``read_only``: it need not take new records. Raises nothing."""
    try:
        real = paths.resolve(path)
    except DbFault as fault:
        return _faulty(fault, "" if path is None else printable(path))
    try:
        found = _examine(real, read_only)
    except DbFault as fault:
        found = _faulty(fault, printable(real))
    except (sqlite3.Error, OSError) as error:
        found = _faulty(db_fault(error, printable(real), "examining it"), printable(real))
    return dataclasses.replace(found, file_system=file_system(real), beside=_beside(real))


def _faulty(fault: DbFault, path: str) -> Checkup:
    return Checkup(fault.fault.name.lower(), path, fault.what, fault.remedy)


def _examine(path: Path, read_only: bool) -> Checkup:
    name = printable(path)
    if not os.path.lexists(path):
        if not read_only:
            _probe_room(_existing(path.parent))
        return Checkup(MISSING, name, "nothing has been stored yet")
    if path.is_file() and path.stat().st_size == 0:
        check_place(path)
        return Checkup(MISSING, name, "the file is empty: nothing has been stored yet")
    try:
        with PerfDb(Link(path, True, _WAIT_S)) as db:
            found = _contents(db)
    except DbFault as fault:
        if fault.fault is Fault.IO_ERROR and not read_only:
            _probe_room(path.resolve().parent)  # what older Pythons do not tell: a full disk
        if fault.fault is not Fault.OLDER or read_only:
            raise
        check_place(path)
        found = Checkup(OLDER, name, "it has an older schema: its next use migrates it and keeps a copy of it")
    if not read_only:
        _probe_room(path.resolve().parent)
        if found.state != OLDER:
            with PerfDb(Link(path, False, _WAIT_S)) as db:
                db.write("asking for the write lock", lambda connection: None)
    return found


def _contents(db: PerfDb) -> Checkup:
    """The state of a file that could be opened."""
    complaints = [text for (text,) in db.read(f"PRAGMA integrity_check({_SHOWN})") if text != "ok"]
    complaints += [f"a row of {table} names a row of {parent} that is not there"
                   for table, _, parent, _ in db.read("PRAGMA foreign_key_check")[:_SHOWN]]  # fmt: skip
    damage = [text for text in complaints if not text.startswith(_RULES)]
    if damage:
        raise DbFault(Fault.CORRUPT, db.path, "; ".join(damage[:3]))
    if complaints:
        detail = f"{len(complaints)} record(s) or more break a rule and are not used: {complaints[0]}"
        remedy = "find the problems anew, which replaces them, or take them out with hipfind db prune"
        return Checkup(INVALID, printable(db.path), detail, remedy, facts=db.info())
    return Checkup(OK, printable(db.path), facts=db.info())


def _probe_room(directory: Path) -> None:
    """Raises OSError where the directory does not take a file of some size: no room, no inode, no permission."""
    if not os.access(directory, os.W_OK | os.X_OK):
        raise DbFault(Fault.READ_ONLY, str(directory), f"the directory may not be written{whose(directory)}")
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(bytes(_ROOM_BYTES))
        file.flush()
        os.fsync(file.fileno())


def _existing(directory: Path) -> Path:
    while not directory.exists():
        directory = directory.parent
    return directory


def _beside(path: Path) -> tuple[str, ...]:
    """Files that a repair, a migration or a backup has left next to the file."""
    real = path.resolve()
    marks = tuple(f"{real.name}.{word}" for word in ("corrupt-", "schema", "backup-"))
    try:
        names = sorted(os.listdir(real.parent))
    except OSError:
        return ()
    return tuple(printable(real.parent / name) for name in names if name.startswith(marks))
