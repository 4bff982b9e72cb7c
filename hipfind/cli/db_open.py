"""Opens the perf DB of a ``hipfind db`` command: the file of ``--db``, else the one that the settings name."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import click

from hipfind.device.devices import get_device, list_devices
from hipfind.errors import DeviceError
from hipfind.perfdb.faults import DbFault, Fault
from hipfind.perfdb.fingerprint import environment_of
from hipfind.perfdb.store import PerfDb

AnyFunction = Callable[..., Any]

DAY_S = 86400.0
_MEASURED_VENDORS = "SELECT DISTINCT vendor FROM targets t WHERE t.id IN (SELECT target FROM find_records)"
_AGES = ((DAY_S, "d"), (3600.0, "h"), (60.0, "min"))

path_option = click.option("--db", "path", metavar="PATH", help="Perf DB file.  [default: HIPFIND_USER_DB_PATH]")
of_device_option = click.option(
    "--device", default="", metavar="NAME", help="Only this device: amd:gfx942:304, gfx942, amd, host, ..."
)


def open_to_read(path: str | None) -> PerfDb:
    """The file, open for reading. One of an older schema is migrated first, where it may be written."""
    try:
        return PerfDb.open(path, read_only=True)
    except DbFault as fault:
        if fault.fault is not Fault.OLDER:
            raise
    PerfDb.open(path).close()
    return PerfDb.open(path, read_only=True)


def reads_db(command: AnyFunction) -> AnyFunction:
    """Gives the command ``db``, open for reading."""
    return _opens(command, open_to_read)


def writes_db(command: AnyFunction) -> AnyFunction:
    """Gives the command ``db``, open for writing; a file that is not there is made."""
    return _opens(command, PerfDb.open)


def changes_db(command: AnyFunction) -> AnyFunction:
    """Gives the command ``db``, open for writing; a file that is not there is an error."""

    def open_existing(path: str | None) -> PerfDb:
        open_to_read(path).close()
        return PerfDb.open(path)

    return _opens(command, open_existing)


def _opens(command: AnyFunction, open_db: Callable[[str | None], PerfDb]) -> AnyFunction:
    @path_option
    @functools.wraps(command)
    def call(path: str | None, **arguments: Any) -> Any:
        with open_db(path) as opened:
            return command(db=opened, **arguments)

    return call


def age(seconds: float) -> str:
    """An age for people."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"


def environments_here(db: PerfDb) -> dict[str, str]:
    """Present environment's fingerprint by target key, of the devices here; GPUs are opened only where it matters."""
    vendors = {vendor for (vendor,) in db.read(_MEASURED_VENDORS)}
    names = [one.name for one in list_devices() if one.available] if vendors - {"host"} else ["host"]
    here: dict[str, str] = {}
    for name in names:
        with contextlib.suppress(DeviceError):
            device = get_device(name)
            here[device.target.key] = environment_of(device.environment()).fingerprint
    return here
