"""MIOpen's files as they lie on a disk: packed or not, text or sqlite, of the device that their name says."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import lzma
import os
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from hipfind.errors import PerfDbError
from hipfind.perfdb.faults import printable
from hipfind.target import KNOWN_TARGETS

SQLITE_MAGIC = b"SQLite format 3\0"
_OPENERS: tuple[tuple[bytes, Callable[..., Any]], ...] = (
    (b"\xfd7zXZ\0", lzma.open),
    (b"BZh", bz2.open),
    (b"\x1f\x8b", gzip.open),
)
_CHUNK = 1 << 20
_NAME = re.compile(
    r"(?P<arch>gfx(?:9[0-9a-f]{2}|1[0-9]{3}))(?:_(?P<few>\d+)|(?P<many>[0-9a-f]+))(?![0-9a-z_])", re.ASCII
)
_DEVICE = re.compile(r"amd:gfx[0-9a-f]{3,4}:[1-9]\d{0,4}", re.ASCII)

LEGAL_FILES = (
    "legal: MIOpen's find-db text, its sqlite perf-db, or hipfind's JSON lines; plain or packed as xz, bz2, gzip"
)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The file's bytes, unpacked where it is packed, and the file itself (its position shows how much was read).

    What goes wrong in the block leaves as a PerfDbError.
    """
    try:
        with open(path, "rb") as packed:
            magic = packed.read(8)
            packed.seek(0)
            opener = next((one for start, one in _OPENERS if magic.startswith(start)), None)
            with packed if opener is None else opener(packed, "rb") as stream:
                yield stream, packed
    except (lzma.LZMAError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PerfDbError(
            "the packed file is damaged or cut short, nothing was stored",
            got=f"{printable(path)}: {error}",
            remedy="copy or download it again",
        ) from error
    except OSError as error:
        raise PerfDbError(
            "the file cannot be read, nothing was stored",
            got=f"{printable(path)}: {error.strerror or error}",
            remedy=LEGAL_FILES,
        ) from error


def digest_and_head(path: Path) -> tuple[str, bytes]:
    """SHA-256 of the unpacked contents, and their first bytes. Raises PerfDbError."""
    digest = hashlib.sha256()
    head = b""
    with reading(path) as (stream, _):
        while chunk := stream.read(_CHUNK):
            head = head or chunk[:4096]
            digest.update(chunk)
    return digest.hexdigest(), head


def unpack(path: Path, to: Path) -> None:
    """Write the unpacked contents to another file."""
    with reading(path) as (stream, _), open(to, "wb") as out:
        while chunk := stream.read(_CHUNK):
            out.write(chunk)


def device_of(path: str | os.PathLike[str], device: str = "") -> str:
    """Target key of the device that a file is about: as given, else by MIOpen's rule for file names.

    ``gfx90a68...`` is gfx90a with 0x68 compute units, ``gfx1030_36...`` gfx1030 with 36 (MIOpen writes up to 64 in
    decimal behind "_"). Raises PerfDbError.
    """
    if device:
        if not _DEVICE.fullmatch(device):
            raise PerfDbError(
                "a device of MIOpen's is named amd:ARCH:COMPUTE_UNITS", got=device, remedy="e.g. amd:gfx942:304"
            )
        return device
    match = _NAME.match(os.path.basename(os.fspath(path)))
    if match is None:
        raise PerfDbError(
            "the file's name does not say which device its records are of",
            got=printable(os.path.basename(os.fspath(path))),
            remedy="give it with --device, e.g. amd:gfx942:304",
        )
    units = int(match["few"]) if match["few"] else int(match["many"], 16)
    return f"amd:{match['arch']}:{units}"


def target_columns(key: str) -> tuple[str, str, str, int, str]:
    """Values of TARGET_COLUMNS for a device that need not be here; the catalogue's name where it has one."""
    vendor, arch, units = key.split(":")
    name = next((one.name for one in KNOWN_TARGETS if one.key == key), arch)
    return key, vendor, arch, int(units), name


def open_sqlite(path: Path) -> sqlite3.Connection:
    """A sqlite file of another program, for reading only."""
    return sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
