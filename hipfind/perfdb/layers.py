"""System files: read-only perf DBs under the user's. One that cannot be read is reported once and done without."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hipfind import settings
from hipfind.perfdb import paths
from hipfind.perfdb.connect import Link
from hipfind.perfdb.faults import DbFault, printable
from hipfind.perfdb.records import R, Stored
from hipfind.perfdb.references import Reference
from hipfind.perfdb.store import PerfDb

T = TypeVar("T")
PACKAGED = Path(__file__).parent / "system"
"""Files that come with hipfind."""
_WAIT_S = 1.0
_DONE = "this system file is not read; results of the user's DB and new ones are used"


def system_paths() -> tuple[str, ...]:
    """The system files in force, the first before the later ones: those of the setting, then the packaged ones."""
    current = settings.current()
    if current.disable_system_db:
        return ()
    packaged = () if current.disable_packaged_db else sorted(PACKAGED.glob("*.db"))
    return (*(one for one in current.system_db_path.split(os.pathsep) if one), *map(str, packaged))


class SystemLayers:
    """The system files of one GuardedDb, opened at first use. Not thread-safe: the owner holds its lock.

    ``note(fault, done)`` is told about a file that cannot be read.
    """

    def __init__(self, note: Callable[[DbFault, str], None]) -> None:
        self._paths = system_paths()
        self._note = note
        self._files: list[PerfDb] | None = None

    def look_up(self, find: Callable[[PerfDb], list[Stored[R]]]) -> list[Stored[R]]:
        """What ``find`` gives on each file; of two records of one solver, device and environment the first counts."""
        rows: dict[tuple[str, str, str], Stored[R]] = {}
        for db in self._opened():
            for one in self._attempt(db, find):
                key = (one.environment, one.target_key, one.record.solver_id)
                rows.setdefault(key, dataclasses.replace(one, layer=printable(db.path)))
        return list(rows.values())

    def references(self, find: Callable[[PerfDb], list[Reference]]) -> list[Reference]:
        """MIOpen's records that ``find`` gives on each file, the first file's first."""
        return [one for db in self._opened() for one in self._attempt(db, find)]

    def close(self) -> None:
        """Close the files; they are opened again at the next use."""
        files, self._files = self._files, None
        for db in files or ():
            db.close()

    def _opened(self) -> list[PerfDb]:
        if self._files is None:
            self._files = []
            for path in self._paths:
                try:
                    self._files.append(PerfDb(Link(paths.resolve(path), True, _WAIT_S)))
                except DbFault as fault:
                    self._note(fault, _DONE)
        return list(self._files)

    def _attempt(self, db: PerfDb, find: Callable[[PerfDb], list[T]]) -> list[T]:
        try:
            return find(db)
        except DbFault as fault:
            self._note(fault, _DONE)
            db.close()
            assert self._files is not None
            self._files.remove(db)
            self._paths = tuple(str(one.path) for one in self._files)
            return []
