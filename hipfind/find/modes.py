"""Find modes and enforcement by MIOpen's names and numbers."""

from __future__ import annotations

import enum

from hipfind import settings
from hipfind.errors import SettingError


class FindMode(enum.Enum):
    """How a Find uses the DB, and what it does on a miss.

    NORMAL measures always. FAST uses the DB, and ranks by estimate on a miss. HYBRID uses the DB and measures what it
    does not know. DYNAMIC_HYBRID does so, but measures only dynamic solvers, unless it tunes. TRUST_VERIFY uses the
    user's DB; what a system file or the estimates call fastest is measured, and where that does not hold all are
    tuned and measured, in a short time for each; TRUST_VERIFY_FULL takes the time that tuning has otherwise.
    """

    NORMAL = 1
    FAST = 2
    HYBRID = 3
    DYNAMIC_HYBRID = 5
    TRUST_VERIFY = 6
    TRUST_VERIFY_FULL = 7

    @property
    def uses_db(self) -> bool:
        return self is not FindMode.NORMAL

    @property
    def is_fast(self) -> bool:
        return self is FindMode.FAST

    @property
    def verifies(self) -> bool:
        return self in (FindMode.TRUST_VERIFY, FindMode.TRUST_VERIFY_FULL)

    @property
    def takes_any_record(self) -> bool:
        """Whether one usable record is answer enough, with other solvers left out."""
        return self.is_fast or self.verifies

    @property
    def has_time(self) -> bool:
        """Whether tuning takes the time that the settings give it."""
        return self is not FindMode.TRUST_VERIFY

    @property
    def dynamic_only(self) -> bool:
        return self is FindMode.DYNAMIC_HYBRID

    @classmethod
    def parse(cls, text: str) -> FindMode:
        """Mode from its name (any case) or number. Raises SettingError naming the legal ones."""
        try:
            return cls[settings.parse_find_mode(text)]
        except ValueError as error:
            raise SettingError(f"find mode must be {error}", got=text) from None


class Tuning(enum.Enum):
    """Which tunable solvers a Find searches a perf config for."""

    NOTHING = 0
    MISSING = 1
    ALL = 2


class Enforce(enum.Enum):
    """What every Find does about perf configs, whatever its caller asked for."""

    NONE = 1
    DB_UPDATE = 2
    SEARCH = 3
    SEARCH_DB_UPDATE = 4
    DB_CLEAN = 5

    @classmethod
    def in_force(cls) -> Enforce:
        """As the setting find_enforce says."""
        return cls[settings.current().find_enforce]

    def tuning(self, asked: bool) -> Tuning:
        """What to search when the caller ``asked`` for tuning, or did not."""
        if self is Enforce.DB_CLEAN:
            return Tuning.NOTHING
        if self is Enforce.SEARCH_DB_UPDATE or asked:
            return Tuning.ALL
        return Tuning.MISSING if self is Enforce.SEARCH else Tuning.NOTHING
