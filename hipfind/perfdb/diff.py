"""What changed from one perf DB to another: winners and their times, problem by problem."""

from __future__ import annotations

import dataclasses

from hipfind.perfdb.queries import Filter, Winner, list_winners
from hipfind.perfdb.store import PerfDb

_SAME = 0.05


@dataclasses.dataclass(frozen=True)
class Difference:
    """One problem on one device. ``old`` or ``new`` is None where only one file has a winner."""

    problem_key: str
    target_key: str
    old: Winner | None
    new: Winner | None

    @property
    def ratio(self) -> float | None:
        """New time over old: less than 1 is faster. None where one is missing or took no time."""
        if self.old is None or self.new is None or self.old.time_ms <= 0.0:
            return None
        return self.new.time_ms / self.old.time_ms

    @property
    def changed(self) -> bool:
        """Another solver won; true as well where only one file has a winner."""
        return self.old is None or self.new is None or self.old.solver_id != self.new.solver_id

    @property
    def differs(self) -> bool:
        """The winner changed, or its time by more than both spreads and 5 %."""
        if self.changed or self.old is None or self.new is None:
            return True
        gap = abs(self.new.time_ms - self.old.time_ms)
        return gap > _SAME * self.old.time_ms and gap > self.old.spread_ms + self.new.spread_ms


def differences(old: PerfDb, new: PerfDb, wanted: Filter | None = None) -> list[Difference]:
    """Every problem and device of either file: those of both first, by how much slower they became, then the others.

    A file's winner is the one of its newest environment. ``wanted.solver`` means that it won in one of both.
    """
    filters = dataclasses.replace(wanted or Filter(), solver="")
    before, after = ({(one.problem_key, one.target_key): one for one in list_winners(db, filters)} for db in (old, new))
    found = [Difference(*key, before.get(key), after.get(key)) for key in {**before, **after}]
    if wanted and wanted.solver:
        found = [one for one in found if wanted.solver in {side.solver_id for side in (one.old, one.new) if side}]
    return sorted(found, key=_order)


def _order(one: Difference) -> tuple[bool, float, str, str]:
    return one.ratio is None, -(one.ratio or 0.0), one.problem_key, one.target_key
