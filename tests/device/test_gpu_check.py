"""The check of a real GPU, on the stand-in: a part that works, one that fails, and the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import standin

REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(bool(standin.missing()), reason=standin.missing() or "-")


def check(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check", "--device", "hip", *arguments],
        env={**standin.environment(), **environment}, cwd=REPOSITORY, capture_output=True, text=True, check=False,
        timeout=200,
    )  # fmt: skip


def test_a_part_that_works_is_a_line_of_the_table(tmp_path: Path) -> None:
    done = check("--only", "threads", "--json", str(tmp_path / "rows"))
    assert done.returncode == 0, done.stdout + done.stderr
    ((name, outcome, details),) = json.loads((tmp_path / "rows").read_text())
    assert (name, outcome) == ("threads", "ok") and details.startswith("4 threads, 80 launches")
    assert done.stdout.splitlines()[-1].split()[:2] == ["threads", "ok"]


def test_a_part_that_fails_says_why() -> None:
    done = check("--only", "memory", STANDIN_DEVICES="0")
    assert done.returncode == 1
    assert "FAILED" in done.stdout.splitlines()[-1] and "hipErrorNoDevice" in done.stdout.splitlines()[-1]
