"""Numbers as people read them. ``--json`` never uses these."""

from __future__ import annotations

import re

from hipfind.errors import ParseError
from hipfind.solvers.reasons import Reason

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def ms(value: float | None) -> str:
    """A time in ms with about four significant digits; "-" for None."""
    if value is None:
        return "-"
    digits = 0 if value >= 1000 else 1 if value >= 100 else 2 if value >= 10 else 3 if value >= 1 else 4
    return f"{value:.{digits}f}"


def ms_with_spread(value: float | None, spread: float) -> str:
    """Median and robust standard deviation, with the same number of digits."""
    text = ms(value)
    digits = len(text.partition(".")[2])
    return text if value is None else f"{text} ±{spread:.{digits}f}"


def size(nbytes: int | None) -> str:
    """A size in binary units with three significant digits; "-" for None."""
    if nbytes is None:
        return "-"
    value, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{nbytes} B" if unit == "B" else f"{value:.3g} {unit}" if value < 999.5 else f"{value:.0f} {unit}"


def parse_size(text: str) -> int:
    """Bytes from "33554432", "32MiB" (2^20) or "32MB" (10^6), case and a space do not matter. Raises ParseError."""
    match = re.fullmatch(r"(\d{1,18}) ?([a-z]*)", text.strip(), re.IGNORECASE | re.ASCII)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise ParseError(
            "a size is a whole number of bytes, or of KiB, MiB, GiB, kB, MB, GB", got=text, remedy="e.g. 32MiB"
        )
    return int(match[1]) * unit


def duration(seconds: float) -> str:
    """A time to wait, e.g. "45 s", "12 min", "1.6 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def rate(flops: float, time_ms: float) -> str:
    """FLOP/s reached by ``flops`` operations in ``time_ms``; "-" for a time of 0."""
    if time_ms <= 0.0:
        return "-"
    gigaflops = flops / time_ms / 1e6
    return f"{gigaflops / 1e3:.3g} TFLOP/s" if gigaflops >= 999.5 else f"{gigaflops:.3g} GFLOP/s"


OTHER_DIRECTION = Reason.DIRECTION.value


def is_other_direction(reason: str) -> bool:
    """True for the reason of a solver that was made for another direction: tables name those in one line."""
    return reason.startswith(OTHER_DIRECTION)


def one_line(message: str, limit: int = 160) -> str:
    """A message of several lines (a compiler's log) as one, cut at ``limit`` characters."""
    joined = " ".join(message.split())
    return joined if len(joined) <= limit else joined[: limit - 3] + "..."
