"""Every example runs to its end on the host device, with a home of its own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.helpers.process import ROOT, run_python

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NEEDS = {"torch_model": "torch"}
"""Packages of extras, by the example that needs one."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, tmp_path: Path) -> None:
    needed = NEEDS.get(example.stem)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    done = run_python([str(example)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.strip()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4
