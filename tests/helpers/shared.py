"""Where data that the project does not hold may lie, and a mark for the tests that need it."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / ".." / "shared"

needs_shared = pytest.mark.skipif(not _FOLDER.is_dir(), reason="MIOpen's data and cases are not beside the repository")


def shared_dir() -> Path:
    """The folder beside the repository; only there where ``needs_shared`` does not skip."""
    return _FOLDER


def find_db_keys(name: str, every: int = 1) -> Iterator[str]:
    """Keys of one of MIOpen's find-db files, each ``every``-th, e.g. of "gfx942130"."""
    with lzma.open(shared_dir() / "data" / "miopen" / f"{name}.HIP.fdb.txt.xz", "rt") as lines:
        for number, line in enumerate(lines):
            if number % every == 0:
                yield line.partition("=")[0]
