"""``db prune-kernels`` and the kernel cache in ``db info``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hipfind.device.kernel_cache import KernelCache, digest
from tests.cli.conftest import SMALL, Cli

DAY_S = 86400.0


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    directory = tmp_path / "kernels"
    for index in range(4):
        key = digest(str(index))
        KernelCache(directory).get(key, lambda: bytes([1]) * (1000 - 32))
        os.utime(directory / key, (1e9 + index * DAY_S,) * 2)
    return directory


def test_info_shows_the_size_of_the_cache(cli: Cli, cache: Path) -> None:
    assert cli("find", *SMALL, cache_dir=str(cache)).exit_code == 0
    facts = json.loads(cli("db", "info", "--json", cache_dir=str(cache)).stdout)["kernel_cache"]
    assert facts["path"] == str(cache) and facts["error"] is None
    assert facts["files"] == len(os.listdir(cache)) >= 4
    assert facts["size_bytes"] == sum(one.stat().st_size for one in cache.iterdir())
    shown = cli("db", "info", cache_dir=str(cache)).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("kernel cache")]
    assert str(cache) in line and f"{facts['files']} files" in line


@pytest.mark.parametrize(("options", "left"), [
    (("--max-size", "2KiB"), 2), (("--max-size", "0"), 0), (("--older-than", "1"), 0), (("--older-than", "1e6"), 4),
])  # fmt: skip
def test_prune_removes_what_the_options_say(cli: Cli, cache: Path, options: tuple[str, ...], left: int) -> None:
    dry = json.loads(cli("db", "prune-kernels", *options, "--dry-run", "--json", cache_dir=str(cache)).stdout)
    assert len(os.listdir(cache)) == 4
    done = json.loads(cli("db", "prune-kernels", *options, "--json", cache_dir=str(cache)).stdout)
    assert len(os.listdir(cache)) == left == done["kept"]
    assert (dry["removed"], done["removed"]) == (4 - left, 4 - left)
    assert done["removed_bytes"] == (4 - left) * 1000 and done["kept_bytes"] == left * 1000


def test_prune_says_what_it_did(cli: Cli, cache: Path) -> None:
    assert cli("db", "prune-kernels", "--max-size", "3000", cache_dir=str(cache)).stdout.startswith("removed 1 of 4")


def test_prune_asks_what_may_go(cli: Cli, cache: Path) -> None:
    result = cli("db", "prune-kernels", cache_dir=str(cache))
    assert result.exit_code == 2 and "--older-than DAYS" in result.stderr
    assert len(os.listdir(cache)) == 4


def test_a_cache_that_cannot_be_read_is_said(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    result = cli("db", "prune-kernels", "--max-size", "0", cache_dir=str(path))
    assert result.exit_code == 1 and "cannot be pruned" in result.stderr and str(path) in result.stderr
