"""Find modes by MIOpen's names and numbers."""

from __future__ import annotations

import enum

from hipfind import settings
from hipfind.errors import SettingError


class FindMode(enum.Enum):
    """How a Find uses the DB, and what it does on a miss.

    NORMAL measures always. FAST uses the DB, and ranks by estimate on a miss. HYBRID uses the DB and measures what it
    does not know. DYNAMIC_HYBRID does so with dynamic solvers only.
    """

    NORMAL = 1
    FAST = 2
    HYBRID = 3
    DYNAMIC_HYBRID = 5

    @property
    def uses_db(self) -> bool:
        return self is not FindMode.NORMAL

    @property
    def is_fast(self) -> bool:
        return self is FindMode.FAST

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
