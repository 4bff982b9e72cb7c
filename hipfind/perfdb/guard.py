"""GuardedDb: the perf DB as Find uses it. A fault never leaves: it warns once and goes on in memory.

What is done about a fault is decided in one place, from its kind (``_ACTIONS``). Results that a file does not take are
kept in memory for this process; where the fault may pass they are written when the file works again.
"""

from __future__ import annotations

import atexit
import enum
import logging
import math
import os
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from hipfind import settings
from hipfind.errors import PerfDbWarning
from hipfind.perfdb import paths
from hipfind.perfdb.connect import Link
from hipfind.perfdb.faults import DbFault, Fault, printable
from hipfind.perfdb.forksafe import ForkSafe
from hipfind.perfdb.layers import SystemLayers
from hipfind.perfdb.queries import nearest_find_records
from hipfind.perfdb.records import Environment, FindRecord, Lookup, PerfRecord, R, Stale, Stored, StoredPerf
from hipfind.perfdb.recovery import set_aside
from hipfind.perfdb.references import Reference, references
from hipfind.perfdb.salvage import salvage
from hipfind.perfdb.store import BUSY_WAIT_S, PerfDb, check
from hipfind.problem.base import Problem
from hipfind.target import Target

_log = logging.getLogger("hipfind.perfdb")

FIRST_RETRY_S = 60.0
_ATTEMPTS = 3

T = TypeVar("T")


class Action(enum.Enum):
    """What to do about a fault; the value is what the warning says is done."""

    REPLACE = "the file was moved to {aside} and a new one is started, with the {rescued} record(s) still readable"
    READ_ONLY = "it is still read; new results are kept in memory until this process ends"
    RETRY = "results are kept in memory, and written when the file can be used again"
    GIVE_UP = "results are kept in memory until this process ends"


_ACTIONS = {
    Fault.CORRUPT: Action.REPLACE,
    Fault.READ_ONLY: Action.READ_ONLY,
    Fault.LOCKED: Action.RETRY,
    Fault.FULL: Action.RETRY,
    Fault.IO_ERROR: Action.RETRY,
    Fault.CANNOT_OPEN: Action.RETRY,
    Fault.OTHER: Action.RETRY,
    Fault.MISSING: Action.GIVE_UP,
    Fault.DENIED: Action.GIVE_UP,
    Fault.FOREIGN: Action.GIVE_UP,
    Fault.NEWER: Action.GIVE_UP,
    Fault.OLDER: Action.GIVE_UP,
    Fault.BAD_PATH: Action.GIVE_UP,
    Fault.NO_HOME: Action.GIVE_UP,
}


class _Rest:
    """Times at which something must not be tried: after a failure for a minute, then twice as long each time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until = -math.inf
        self._length = FIRST_RETRY_S

    @property
    def is_over(self) -> bool:
        return self._clock() >= self._until

    @property
    def is_final(self) -> bool:
        return self._until == math.inf

    def begin(self) -> None:
        if not self.is_final:
            self._until = self._clock() + self._length
            self._length *= 2

    def end(self) -> None:
        if not self.is_final:
            self._until = -math.inf

    def never_again(self) -> None:
        self._until = math.inf


class GuardedDb(ForkSafe):
    """The user's perf DB, or one in memory where that cannot be used. Safe from several threads and across ``fork``.

    ``path`` None takes the settings (user_db_path, disable_user_db). Nothing is opened before the first use, and no
    file is made before something is to be stored. ``clock``: seconds, monotonic.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        current = settings.current()
        self._asked = current.user_db_path if path is None else path
        self._has_file = path is not None or not current.disable_user_db
        self._path: Path | None = None
        self._read_only = False
        self._file: PerfDb | None = None
        self._memory: PerfDb | None = None
        self._closes_at_exit = False
        self._unsaved: list[Callable[[PerfDb], None]] = []
        self._reading = _Rest(clock)
        self._writing = _Rest(clock)
        self.fault: DbFault | None = None
        """The first fault met, None while all is well."""
        self._unsaid = ""
        self._system = SystemLayers(self._note)

    def lookup(self, problem_key: str, target_key: str, environment: Environment) -> Lookup[FindRecord]:
        """Find records of a problem and target, those of this environment apart from those not to be trusted.

        Whether a trusted record's solver version and source hash are current is for the caller to judge.
        """
        return self._look_up(lambda db: db.find_records(problem_key, target_key), environment)

    def lookup_nearest(self, problem_key: str, target: Target, environment: Environment) -> Lookup[FindRecord]:
        """As ``lookup``, of the device of the same architecture whose number of compute units is nearest."""
        lookup = self._look_up(lambda db: nearest_find_records(db, problem_key, target), environment)
        nearest = min(
            (one.target_key for one in lookup.trusted),
            key=lambda key: (abs(int(key.rpartition(":")[2]) - target.compute_units), key),
            default="",
        )
        return Lookup(tuple(one for one in lookup.trusted if one.target_key == nearest), ())

    def lookup_perf(self, problem_key: str, target_key: str, environment: Environment) -> Lookup[PerfRecord]:
        """Tuned configs, as ``lookup``. One that was refused counts as not there."""

        def find(db: PerfDb) -> list[StoredPerf]:
            return [one for one in db.perf_records(problem_key, target_key) if one.record.refused is None]

        return self._look_up(find, environment)

    def store_find(
        self, problem: Problem, target: Target, environment: Environment, records: Sequence[FindRecord]
    ) -> bool:
        """Store how candidates ended. True: the file has them; False: at most this process has."""
        return self._store(problem, records, lambda db: db.store_find(problem, target, environment, records))

    def store_perf(
        self, problem: Problem, target: Target, environment: Environment, records: Sequence[PerfRecord]
    ) -> bool:
        """Store tuned configs. True: the file has them; False: at most this process has."""
        return self._store(problem, records, lambda db: db.store_perf(problem, target, environment, records))

    def refuse_perf(self, refused: StoredPerf, rule: str) -> None:
        """Mark a tuned config as refused, so that no process uses it again. One of a system file cannot be marked."""
        if not refused.layer:
            with self.lock:
                self._save_or_keep(lambda db: db.refuse_perf(refused, rule))
            self._say()

    def remove_perf(self, problem_key: str, target_key: str) -> None:
        """Remove the user's tuned configs of one problem and target. No file is made for it."""
        with self.lock:
            self._attempt(lambda db: db.remove_perf(problem_key, target_key), self._reading)
            if self._memory is not None:
                self._memory.remove_perf(problem_key, target_key)
        self._say()

    def references(self, problem_key: str, perf_key: str) -> list[Reference]:
        """MIOpen's records of a problem, of every device: the user's file's, then those that only system files have."""

        def find(db: PerfDb) -> list[Reference]:
            return references(db, problem_key, perf_key)

        with self.lock:
            found = [*(self._attempt(find, self._reading) or ()), *self._system.references(find)]
        self._say()
        first = {(one.target_key, one.form, one.miopen_key): one for one in reversed(found)}
        return [one for one in found if first[one.target_key, one.form, one.miopen_key] is one]

    def close(self) -> None:
        """Close the file, after a last attempt to write what it did not take. What was only in memory is gone then."""
        with self.lock:
            if self._unsaved:
                self._writing.end()
                self._save()
            self._close_file()
            self._drop_memory()
            self._system.close()
        self._say()

    def __enter__(self) -> GuardedDb:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # reading and writing -----------------------------------------------------------------------------------------

    def _look_up(self, find: Callable[[PerfDb], list[Stored[R]]], environment: Environment) -> Lookup[R]:
        with self.lock:
            found = self._attempt(find, self._reading) or []
            if self._memory is not None:
                found = _newest(find(self._memory), found)
            found = _under(found, self._system.look_up(find))
            others = [one for one in found if one.environment != environment.fingerprint]
            known = self._environments() if others else {}
        self._say()
        trusted: list[Stored[R]] = []
        stale = [Stale(one, _why_stale(known.get(one.environment), environment)) for one in others]
        for one in found:
            if one.environment == environment.fingerprint:
                reason = one.record.invalid_reason()
                if reason:
                    stale.append(Stale(one, f"not valid: {reason}"))
                else:
                    trusted.append(one)
        return Lookup(tuple(trusted), tuple(stale))

    def _environments(self) -> dict[str, Environment]:
        known = self._attempt(PerfDb.environments, self._reading) or {}
        return {**known, **(self._memory.environments() if self._memory is not None else {})}

    def _store(
        self, problem: Problem, records: Sequence[FindRecord | PerfRecord], work: Callable[[PerfDb], None]
    ) -> bool:
        saved = False
        with self.lock:
            try:
                check(problem.canonical(), records)
            except DbFault as refused:
                self._note(refused, "find goes on without it")
            else:
                saved = self._save_or_keep(work)
        self._say()
        return saved

    def _save_or_keep(self, work: Callable[[PerfDb], None]) -> bool:
        if self._has_file and not self._writing.is_final:
            self._unsaved.append(work)
            if self._save():
                return True
            if not self._closes_at_exit:
                self._closes_at_exit = True
                atexit.register(_close, weakref.ref(self))
        if self._memory is None:
            self._memory = PerfDb.in_memory()
        work(self._memory)
        return False

    def _save(self) -> bool:
        """Write all that the file does not have yet, oldest first. True when nothing is left."""

        def write(db: PerfDb) -> bool:
            while self._unsaved:
                self._unsaved[0](db)
                del self._unsaved[0]
            return True

        if not self._attempt(write, self._writing):
            return False
        self._drop_memory()
        return True

    # the file ----------------------------------------------------------------------------------------------------

    def _attempt(self, work: Callable[[PerfDb], T], rest: _Rest) -> T | None:
        """Result of ``work`` on the file, None without one: not wanted, not there, or not usable now."""
        for attempt in range(1, _ATTEMPTS + 1):
            if not self._has_file or not rest.is_over:
                return None
            try:
                db = self._open_file(must_exist=rest is self._reading)
                return None if db is None else work(db)
            except DbFault as fault:
                self._close_file()
                self._react(fault, rest, is_last=attempt == _ATTEMPTS)
        return None

    def _open_file(self, must_exist: bool) -> PerfDb | None:
        if self._path is None:
            self._path = paths.resolve(self._asked)
        if self._file is None:
            if must_exist and not os.path.exists(self._path):
                return None
            self._file = PerfDb(Link(self._path, self._read_only, BUSY_WAIT_S))
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _drop_memory(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _react(self, fault: DbFault, rest: _Rest, is_last: bool) -> None:
        """Do what the kind of fault asks for, so that the next attempt works or is not made."""
        action = _ACTIONS[fault.fault]
        aside: Path | None = None
        rescued = 0
        if action is Action.REPLACE and self._path is not None:
            action, aside = _replace(self._path, is_last)
            if action is Action.REPLACE and aside is None:
                return
            if aside is not None:
                rescued = salvage(aside, lambda: PerfDb.open(self._path))
        if action is Action.READ_ONLY and (self._read_only or self._path is None or not os.path.exists(self._path)):
            action = Action.GIVE_UP
        if action is Action.READ_ONLY:
            self._read_only = True
            self._writing.never_again()
        elif action is Action.RETRY:
            for one in {self._writing, rest}:
                one.begin()
        elif action is Action.GIVE_UP:
            self._reading.never_again()
            self._writing.never_again()
        if self._writing.is_final:
            self._unsaved.clear()
        done = action.value.format(aside=aside and printable(aside), rescued=rescued)
        self._note(fault, done, action is not Action.REPLACE)

    # warning -----------------------------------------------------------------------------------------------------

    def _note(self, fault: DbFault, done: str, has_remedy: bool = True) -> None:
        """Keep the first fault for a warning; later ones go to the log, so that no run is flooded with them."""
        message = f"{fault.what} (got {fault.got}): {done}"
        if has_remedy and fault.remedy:
            message += f"; {fault.remedy}"
        if self.fault is None:
            self.fault = fault
            self._unsaid = message
        else:
            _log.info("%s", message)

    def _say(self) -> None:
        """Give the warning, outside the lock and with all state settled: a filter may turn it into an error."""
        with self.lock:
            message, self._unsaid = self._unsaid, ""
        if message:
            warnings.warn(message, PerfDbWarning, stacklevel=4)


def _close(reference: weakref.ref[GuardedDb]) -> None:
    db = reference()
    if db is not None:
        db.close()


def _replace(path: Path, is_last: bool) -> tuple[Action, Path | None]:
    """Move a damaged file aside, and say what came of it.

    REPLACE without a path: there is no damage to be found, so another process was faster or it was seen in passing.
    """
    try:
        aside = set_aside(path)
    except DbFault as worse:
        _log.info("%s", worse)
        return (Action.RETRY if worse.fault is Fault.LOCKED else Action.GIVE_UP), None
    return (Action.RETRY if is_last and aside is None else Action.REPLACE), aside


def _under(user: list[Stored[R]], system: list[Stored[R]]) -> list[Stored[R]]:
    """Both, fastest first; the user's records hide the system's of the same device, environment and solver."""
    if not system:
        return user
    hidden = {(one.target_key, one.environment, one.record.solver_id) for one in user}
    shown = [one for one in system if (one.target_key, one.environment, one.record.solver_id) not in hidden]
    return _fastest_first([*user, *shown])


def _fastest_first(rows: list[Stored[R]]) -> list[Stored[R]]:
    return sorted(rows, key=lambda one: (one.record.time_ms is None, one.record.time_ms or 0.0))


def _newest(memory: list[Stored[R]], file: list[Stored[R]]) -> list[Stored[R]]:
    """Both, fastest first; a record in memory hides the file's older one of the same environment and solver."""
    hidden = {(one.target_key, one.environment, one.record.solver_id) for one in memory}
    shown = [one for one in file if (one.target_key, one.environment, one.record.solver_id) not in hidden]
    return _fastest_first([*memory, *shown])


def _why_stale(then: Environment | None, now: Environment) -> str:
    if then is None or not then.facts:
        return "recorded in an environment that is not known"
    return f"recorded in another environment: {then.difference(now)}"
