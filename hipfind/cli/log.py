"""The log on stderr, for the time that a command runs, at the level of HIPFIND_LOG_LEVEL."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from hipfind import settings


class _OneLine(logging.Formatter):
    """As the command line's own messages: ``hipfind: warning: ...``."""

    def format(self, record: logging.LogRecord) -> str:
        return f"hipfind: {record.levelname.lower()}: {record.getMessage()}"


@contextlib.contextmanager
def log_to_stderr() -> Iterator[None]:
    """For a ``with`` block. Raises SettingError for a level that is not legal."""
    level = settings.current().log_level
    if level == "off":
        yield
        return
    logger, handler = logging.getLogger("hipfind"), logging.StreamHandler()
    handler.setFormatter(_OneLine())
    handler.setLevel(level.upper())
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
