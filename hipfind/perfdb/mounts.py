"""Which file system a path lies on, and whether it is one where sqlite's WAL must not be used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

MOUNTS = "/proc/self/mountinfo"

_SHARED = frozenset((
    "nfs", "nfs3", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "mmfs",
    "beegfs", "fhgfs", "glusterfs", "ocfs2", "gfs", "gfs2", "orangefs", "pvfs2", "panfs", "wekafs", "wfs",
    "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "drvfs", "coda", "ncpfs", "davfs", "acfs", "cvfs", "quobyte",
))  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system(path: Path, mounts: str = MOUNTS) -> str:
    """Type of the file system that holds the path, e.g. ``ext4``; "" where the system does not tell.

    Symbolic links are followed; of what does not exist yet the nearest directory above counts.
    """
    real = os.path.realpath(path)
    best, kind = -1, ""
    for point, name in _mounted(mounts):
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # of two at one place the later one hides the earlier
            best, kind = len(point), name
    return kind


def is_shared(kind: str) -> bool:
    """Whether a file system can be one of several machines, or does not keep mappings of a file coherent.

    WAL needs a log index in memory that all processes share: on these they do not, or a mapping ends with SIGBUS.
    """
    return kind in _SHARED or kind.startswith("fuse")


def _mounted(mounts: str) -> Iterator[tuple[str, str]]:
    """Mount point and type of every mount, in order of mounting."""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:  # not Linux, or no /proc
        return
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if separator and len(fields) > 4:
            yield _ESCAPE.sub(lambda found: chr(int(found.group(1), 8)), fields[4]), after.split(" ")[0]
