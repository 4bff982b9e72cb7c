"""PyTorch on one thread, so that its threads and hipfind's do not fight for cores, and a perf DB of each test's own.

Without PyTorch nothing here is collected.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hipfind import settings

if TYPE_CHECKING:
    import torch

collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path) -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with settings.override(user_db_path=str(tmp_path / "hipfind.db"), device="host"):
        yield
    torch.set_num_threads(threads)


@pytest.fixture
def where(device_name: str) -> Iterator[torch.device]:
    """torch's name of the device that was asked for; AMD's GPUs are "cuda" to it, too. fp32 is fp32 there."""
    import torch

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield torch.device("cpu" if device_name == "host" else device_name.replace("hip", "cuda"))


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Graphs of other tests count against torch.compile's limit."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)  # of torch by torch, at first use
        torch.compiler.reset()
    yield
    torch.compiler.reset()
