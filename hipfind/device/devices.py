"""Devices by name: which there are, which work here and why the others do not. Each is opened once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from hipfind import settings
from hipfind.device.base import Device
from hipfind.errors import DeviceError
from hipfind.target import Target

_lock = threading.RLock()
_open: dict[tuple[str, int], Device] = {}


class DeviceInfo(NamedTuple):
    """A device that hipfind knows: whether it works here, the reason when it does not, its target when it does."""

    name: str
    available: bool
    reason: str
    target: Target | None


def _host(index: int) -> Device:
    from hipfind.device.host import HostDevice

    if index:
        raise DeviceError("there is one host device", got=f"host:{index}", remedy="use host")
    return HostDevice()


FACTORIES: dict[str, Callable[[int], Device]] = {"host": _host}
"""Makers of devices by kind, in order of preference. A maker takes the index and raises DeviceError where it cannot."""


def get_device(name: str = "") -> Device:
    """The device of this name (a kind, or a kind and an index as in "hip:1"), else the one that the settings name,
    else the first that works.

    Raises DeviceError for a name that is not known, naming those that are, and for a device that does not work here.
    """
    wanted = name or settings.current().device
    if wanted:
        return _opened(wanted)
    failures: list[str] = []
    for kind in FACTORIES:
        try:
            return _opened(kind)
        except DeviceError as error:
            failures.append(f"{kind}: {error}")
    raise DeviceError("no device works here", got="; ".join(failures))


def list_devices() -> tuple[DeviceInfo, ...]:
    """The first device of every known kind, in order of preference."""
    found: list[DeviceInfo] = []
    for kind in FACTORIES:
        try:
            device = _opened(kind)
            found.append(DeviceInfo(device.name, True, "", device.target))
        except DeviceError as error:
            found.append(DeviceInfo(kind, False, str(error), None))
    return tuple(found)


def _opened(name: str) -> Device:
    kind, _, index = name.strip().lower().partition(":")
    make = FACTORIES.get(kind)
    if make is None or not (index.isdecimal() or name.strip().lower() == kind):
        raise DeviceError("unknown device", got=name, remedy="known: " + ", ".join(FACTORIES))
    key = (kind, int(index or 0))
    with _lock:
        device = _open.get(key)
        if device is None:
            device = _open[key] = make(key[1])
        return device
