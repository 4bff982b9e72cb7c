"""Every HIPFIND_* environment variable: typed, documented, read once, and overridable for a block of code.

The environment is read at first use. ``override`` changes values for the current context (thread or task) only, so
two threads may work with different settings; ``reload`` reads the environment again.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import difflib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hipfind.errors import SettingError

FIND_MODES = {
    "NORMAL": 1, "FAST": 2, "HYBRID": 3, "DYNAMIC_HYBRID": 5, "TRUST_VERIFY": 6, "TRUST_VERIFY_FULL": 7,
}  # fmt: skip
FIND_ENFORCES = {"NONE": 1, "DB_UPDATE": 2, "SEARCH": 3, "SEARCH_DB_UPDATE": 4, "DB_CLEAN": 5}
VERIFY_MODES = ("first", "off", "always")
DB_JOURNALS = ("auto", "wal", "rollback")
LOG_LEVELS = ("off", "error", "warning", "info", "debug")
NUMERICS = {"info": 1, "warn": 2, "raise": 4, "stats": 16}
"""MIOpen's bits of a numerics check. Its 8 (abort) would take the user's process down and is not taken."""


def _text(value: str) -> str:
    return value.strip()


def _names(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.replace(",", ";").split(";") if part.strip())


def _flag(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("1 or 0")


def _count(value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        raise ValueError("a whole number of 0 or more") from None
    if number < 0:
        raise ValueError("a whole number of 0 or more")
    return number


def parse_find_mode(value: str) -> str:
    """Name of a find mode from its name (any case) or MIOpen's number, e.g. ``"3"`` -> ``"HYBRID"``."""
    return _name_in(FIND_MODES, value)


def _parse_find_enforce(value: str) -> str:
    return _name_in(FIND_ENFORCES, value)


def _name_in(numbers: Mapping[str, int], value: str) -> str:
    name = value.strip().upper()
    for known, number in numbers.items():
        if name in (known, str(number)):
            return known
    raise ValueError("one of " + ", ".join(f"{name} ({number})" for name, number in numbers.items()))


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        name = value.strip().lower()
        if name not in words:
            raise ValueError("one of " + ", ".join(words))
        return name

    return parse


def _parse_numerics(value: str) -> int:
    """The bits of a numerics check from a number (decimal or 0x), or from names joined by ``+``."""
    text = value.strip().lower()
    if text in ("", "off"):
        return 0
    legal = "a sum of " + ", ".join(f"{bit} ({name})" for name, bit in NUMERICS.items()) + ", or such names joined by +"
    try:
        bits = int(text, 0)
    except ValueError:
        names = [name.strip() for name in text.split("+")]
        if not set(names) <= set(NUMERICS):
            raise ValueError(legal) from None
        bits = sum(NUMERICS[name] for name in dict.fromkeys(names))
    if bits < 0 or bits & ~sum(NUMERICS.values()):
        raise ValueError(legal)
    return bits


def _setting(env: str, default: Any, parse: Callable[[str], Any], help: str) -> Any:
    return dataclasses.field(default=default, metadata={"env": env, "parse": parse, "help": help})


@dataclasses.dataclass(frozen=True)
class Settings:
    """The values in force. One field a variable; the field's metadata holds its name, parser and help text."""

    device: str = _setting(
        "HIPFIND_DEVICE",
        "",
        _text,
        "Default device, e.g. host, hip, cuda, hip:1, null:gfx942. Empty: the first that works.",
    )
    user_db_path: str = _setting(
        "HIPFIND_USER_DB_PATH",
        "",
        str,
        "User perf DB: a file, or a directory that holds hipfind.db. Empty: the user's data directory.",
    )
    disable_user_db: bool = _setting(
        "HIPFIND_DISABLE_USER_DB", False, _flag, "1: keep results in memory only; no perf DB file is opened."
    )
    system_db_path: str = _setting(
        "HIPFIND_SYSTEM_DB_PATH",
        "",
        str,
        "System perf DBs, read-only, under the user's: files, the first before the later ones, separated as in PATH.",
    )
    disable_system_db: bool = _setting(
        "HIPFIND_DISABLE_SYSTEM_DB", False, _flag, "1: no system perf DB is read, neither named ones nor packaged ones."
    )
    disable_packaged_db: bool = _setting(
        "HIPFIND_DISABLE_PACKAGED_DB", False, _flag, "1: the system perf DBs that come with hipfind are not read."
    )
    disable_nearest_target: bool = _setting(
        "HIPFIND_DISABLE_NEAREST_TARGET",
        False,
        _flag,
        "1: records of the same architecture with other compute units do not stand in where this device has none.",
    )
    db_journal: str = _setting(
        "HIPFIND_DB_JOURNAL",
        "auto",
        _one_of(*DB_JOURNALS),
        "Journal of perf DB files: auto (rollback on network file systems, else wal), wal, rollback.",
    )
    cache_dir: str = _setting(
        "HIPFIND_CACHE_DIR", "", str, "Directory of compiled kernels. Empty: the user's cache directory."
    )
    find_mode: str = _setting(
        "HIPFIND_FIND_MODE",
        "HYBRID",
        parse_find_mode,
        "Find mode by MIOpen's name or number: NORMAL 1, FAST 2, HYBRID 3, DYNAMIC_HYBRID 5, TRUST_VERIFY 6, "
        "TRUST_VERIFY_FULL 7.",
    )
    find_enforce: str = _setting(
        "HIPFIND_FIND_ENFORCE",
        "NONE",
        _parse_find_enforce,
        "What every Find does about perf configs, by MIOpen's name or number: NONE 1, DB_UPDATE 2 (search all where "
        "tuning is asked for, as NONE), SEARCH 3 (search what has no config), SEARCH_DB_UPDATE 4 (search all), "
        "DB_CLEAN 5 (remove the problem's configs). All but NONE measure as NORMAL does.",
    )
    verify_tolerance_pct: int = _setting(
        "HIPFIND_VERIFY_TOLERANCE_PCT",
        10,
        _count,
        "TRUST_VERIFY believes a system DB's time when the time measured here exceeds it by at most so many per cent.",
    )
    find_only_solver: tuple[str, ...] = _setting(
        "HIPFIND_FIND_ONLY_SOLVER", (), _names, "Only these solver ids are candidates (separated by ; or ,)."
    )
    disable_solver: tuple[str, ...] = _setting(
        "HIPFIND_DISABLE_SOLVER", (), _names, "These solver ids are never candidates (separated by ; or ,)."
    )
    verify: str = _setting(
        "HIPFIND_VERIFY",
        "first",
        _one_of(*VERIFY_MODES),
        "When Find checks a candidate's output: first (before its first win on this machine), always, off.",
    )
    find_time_limit_ms: int = _setting(
        "HIPFIND_FIND_TIME_LIMIT_MS",
        60000,
        _count,
        "Time that one Find may spend measuring, in ms; every candidate is run at least once. 0: no limit.",
    )
    tune_time_limit_ms: int = _setting(
        "HIPFIND_TUNE_TIME_LIMIT_MS",
        15000,
        _count,
        "Time that the search for one solver's perf config may take, in ms; one config is tried at least. 0: no limit.",
    )
    tune_configs: int = _setting(
        "HIPFIND_TUNE_CONFIGS", 0, _count, "Perf configs that a search tries at most for one solver. 0: all."
    )
    tune_patience: int = _setting(
        "HIPFIND_TUNE_PATIENCE", 60, _count, "A search ends after so many configs without a better one. 0: never."
    )
    host_threads: int = _setting(
        "HIPFIND_HOST_THREADS", 0, _count, "Threads of the host device's kernels. 0: all cores this process may use."
    )
    log_level: str = _setting(
        "HIPFIND_LOG_LEVEL",
        "warning",
        _one_of(*LOG_LEVELS),
        "What the command line prints of the log on stderr: off, error, warning, info (one line a decision), debug. "
        "Python programs take the logger hipfind of the standard library.",
    )
    log_cmd: bool = _setting(
        "HIPFIND_LOG_CMD",
        False,
        _flag,
        "1: print the equivalent hipfind command line of every call (find, immediate, plan, and each run) on stderr.",
    )
    check_numerics: int = _setting(
        "HIPFIND_CHECK_NUMERICS",
        0,
        _parse_numerics,
        "Look at every tensor after each run of a plan, by MIOpen's bits or their names joined by +: 1 (info) log NaN "
        "and Inf counts, min, max and mean, 2 (warn) warn about NaN and Inf, 4 (raise) raise NumericsError for them; "
        "16 (stats) is taken and adds nothing. Slow. 0: off. In force for plans that are made while it is.",
    )


def fields() -> tuple[dataclasses.Field[Any], ...]:
    """The settings' dataclass fields in order of definition (name, default, metadata: env, parse, help)."""
    return dataclasses.fields(Settings)


def from_environment(environ: Mapping[str, str]) -> Settings:
    """Settings read from ``environ``. Raises SettingError for a value that is not legal; warns about unknown names."""
    known = {field.metadata["env"]: field for field in fields()}
    values: dict[str, Any] = {}
    for name in environ:
        if not name.startswith("HIPFIND_"):
            continue
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "docs/settings.md lists the known ones"
            warnings.warn(f"unknown setting {name} in the environment is ignored; {hint}", UserWarning, stacklevel=2)
            continue
        values[known[name].name] = _parse(known[name], environ[name])
    return Settings(**values)


def _parse(field: dataclasses.Field[Any], value: str) -> Any:
    try:
        return field.metadata["parse"](value)
    except ValueError as error:
        raise SettingError(f"{field.metadata['env']} must be {error}", got=value) from None


_base: Settings | None = None
_override: contextvars.ContextVar[Settings | None] = contextvars.ContextVar("hipfind_settings", default=None)


def current() -> Settings:
    """The settings in force here: an override of this context, else the environment's as first read."""
    global _base
    overridden = _override.get()
    if overridden is not None:
        return overridden
    if _base is None:
        _base = from_environment(os.environ)
    return _base


def reload() -> Settings:
    """Read the environment again; returns the new settings."""
    global _base
    _base = from_environment(os.environ)
    return _base


@contextlib.contextmanager
def override(**values: Any) -> Iterator[Settings]:
    """Change settings for a block: ``with settings.override(find_mode="normal"):``.

    Values are given as in the environment (text) or already typed. Raises SettingError for unknown names.
    """
    by_name = {field.name: field for field in fields()}
    parsed: dict[str, Any] = {}
    for name, value in values.items():
        if name not in by_name:
            raise SettingError("unknown setting", got=name, remedy="known: " + ", ".join(by_name))
        parsed[name] = _parse(by_name[name], value) if isinstance(value, str) else value
    token = _override.set(dataclasses.replace(current(), **parsed))
    try:
        yield current()
    finally:
        _override.reset(token)
