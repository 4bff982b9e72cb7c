"""Devices by name: which there are, which work here and why the others do not. Each is opened once.

Names are a kind, "host", "hip" or "cuda", with a GPU's number behind a colon: "hip" is "hip:0". "null:gfx942" is a
known GPU that is not here (see null.py): it runs nothing, and is in no list.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any, NamedTuple

from hipfind import settings
from hipfind.device.base import Device
from hipfind.errors import DeviceError
from hipfind.target import Target

KINDS = ("hip", "cuda", "host")
"""In order of preference."""
NULL = "null"
_KNOWN = f"hip, cuda (or one of several: hip:1), host, {NULL}:ARCH (only compiles)"
_GPU_PACKAGES = {"hip": "hip-python", "cuda": "hipfind[cuda]"}
_lock = threading.RLock()
_open: dict[str, Device] = {}
_default: Device | None = None


class DeviceInfo(NamedTuple):
    """A device that hipfind knows: whether it works here, the reason when it does not, its target when it does."""

    name: str
    available: bool
    reason: str
    target: Target | None


def get_device(name: str = "") -> Device:
    """The device of this name, else the one that the settings name, else the first that works.

    Raises DeviceError for a name that is not known, naming those that are, and for a device that does not work here.
    """
    wanted = name or settings.current().device
    return _opened(wanted) if wanted else _first_that_works()


def list_devices() -> tuple[DeviceInfo, ...]:
    """Every device that is there, and a line for every kind that is not; in order of preference."""
    found: list[DeviceInfo] = []
    for kind in KINDS:
        try:
            names = _names(kind)
        except DeviceError as error:
            found.append(DeviceInfo(kind, False, str(error), None))
            continue
        found += [_info(name) for name in names]
    return tuple(found)


def _info(name: str) -> DeviceInfo:
    try:
        return DeviceInfo(name, True, "", _opened(name).target)
    except DeviceError as error:
        return DeviceInfo(name, False, str(error), None)


def _first_that_works() -> Device:
    global _default
    if _default is None:
        failures: list[str] = []
        for kind in KINDS:
            try:
                _default = _opened(kind)
                break
            except DeviceError as error:
                failures.append(f"{kind}: {error}")
        else:
            raise DeviceError("no device works here", got="; ".join(failures))
    return _default


def _opened(name: str) -> Device:
    kind, which = _parse(name)
    with _lock:
        key = name if kind == "host" else f"{kind}:{which}"
        device = _open.get(key)
        if device is None:
            device = _open[key] = _make(kind, which)
        return device


def _parse(name: str) -> tuple[str, int | str]:
    """Kind and number, or a null device's architecture. Raises DeviceError."""
    kind, colon, number = name.partition(":")
    if kind == NULL:
        return kind, number
    if kind not in KINDS or (colon and (kind == "host" or not (number.isascii() and number.isdigit()))):
        raise DeviceError("unknown device", got=name, remedy=f"known: {_KNOWN}")
    return kind, int(number or 0)


def _make(kind: str, which: int | str) -> Device:
    if isinstance(which, str):
        from hipfind.device.null import NullDevice

        return NullDevice(which)
    if kind == "host":
        from hipfind.device.host import HostDevice

        return HostDevice()
    device: Device = _gpu_module(kind).open_device(which)
    return device


def _names(kind: str) -> list[str]:
    """Every device of a kind. Raises DeviceError where there is none."""
    if kind == "host":
        return ["host"]
    count = _gpu_module(kind).device_count()
    if not count:
        raise DeviceError(f"there is no {kind} device", got="0 devices")
    return [f"{kind}:{ordinal}" for ordinal in range(count)]


def _gpu_module(kind: str) -> Any:
    """hipfind.device.hip or .cuda, which import their vendor's package."""
    try:
        return importlib.import_module(f"hipfind.device.{kind}")
    except ImportError as error:
        remedy = f"pip install '{_GPU_PACKAGES[kind]}'"
        raise DeviceError(f"{kind} devices need a package that is missing", got=str(error), remedy=remedy) from error
