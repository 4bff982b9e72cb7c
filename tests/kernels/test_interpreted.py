"""The Triton kernels' results without a GPU: tests/kernels/interpreted, in processes with Triton's interpreter."""

from __future__ import annotations

import importlib.util
import pathlib
import re

import pytest

from tests.helpers.process import run_python

FOLDER = pathlib.Path(__file__).with_name("interpreted")
PARTS = (
    ("results", "fwd"),
    ("results", "bwd"),
    ("results", "wrw"),
    ("results", "not (fwd or bwd or wrw)"),
    ("infinities", "test"),
    ("catalogue", "fwd"),
    ("catalogue", "bwd"),
    ("catalogue", "wrw"),
)
"""Modules whose tests run inside a process with the interpreter, and expressions that select a part of them."""
MISSING = [name for name in ("triton", "torch") if importlib.util.find_spec(name) is None]


def test_every_module_is_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {"__init__", *(module for module, _ in PARTS)}


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
@pytest.mark.parametrize(("module", "part"), PARTS)
def test_with_the_interpreter(module: str, part: str, tmp_path: pathlib.Path) -> None:
    """All tests must pass, and none be skipped."""
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", f"{FOLDER / module}.py", "-k", part)
    done = run_python(arguments, tmp_path, timeout=280.0, TRITON_INTERPRET="1", PYTHONWARNINGS="default")
    summary = done.stdout.strip().rsplit("\n", 1)[-1]
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"\d+ passed(, \d+ deselected)? in .*", summary), done.stdout
