"""Python in a subprocess with a home of its own, so that nothing of the user's is read or written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / ".pytest_cache" / "kernels"
"""Compiled kernels of all subprocesses: a home of its own would compile them again each time."""


def clean_environment(home: Path, **variables: str) -> dict[str, str]:
    """This process's environment with ``home`` as HOME and no HIPFIND_* variable but those given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HIPFIND_", "XDG_"))}
    return {
        **kept,
        "HOME": str(home),
        "HIPFIND_CACHE_DIR": str(KERNELS),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
        **variables,
    }


def run_python(
    arguments: Sequence[str], home: Path, *, cwd: Path = ROOT, timeout: float = 120.0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """``python *arguments`` with its output as text. ``variables`` are environment variables."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=clean_environment(home, **variables),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
