"""Fixtures of the tests that run inside a process with the stand-in; tests/device/test_hip_standin.py starts them."""

from __future__ import annotations

import gc
import pathlib
from collections.abc import Iterator

import pytest

from hipfind import settings
from hipfind.device.gpu import GpuDevice
from tests.standin import Control

RELEASED = ("memory", "program", "graph", "graph exec", "layout", "matmul description", "preference")
"""Kinds of objects that a device releases; streams, events, modules and handles stay as long as the process."""


@pytest.fixture(scope="session", autouse=True)
def quick_collections() -> None:
    """hip-python's modules hold so many objects that each of the many collections here would take 0.2 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def control(request: pytest.FixtureRequest) -> Iterator[Control]:
    """The stand-in; asserts that nothing was used wrongly and that all memory, programs and graphs were released."""
    control = Control()
    control.clear_faults()
    before = {kind: control.live(kind) for kind in RELEASED}
    yield control
    request.node.funcargs.clear()  # pytest's references to devices
    gc.collect()
    assert control.violations() == []
    lost = {kind: control.live(kind) - before[kind] for kind in RELEASED}
    assert lost == {kind: int(kind == control.lost) for kind in RELEASED}


@pytest.fixture
def cache(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A kernel cache of the test's own."""
    with settings.override(cache_dir=str(tmp_path)):
        yield tmp_path


@pytest.fixture
def device(control: Control) -> GpuDevice:
    """HIP device 0, newly opened."""
    return open_device(0)


def open_device(ordinal: int) -> GpuDevice:
    """A HIP device that spends no time on raising its clock."""
    from hipfind.device import hip  # pytest reads this file on machines without hip-python too

    made = hip.open_device(ordinal)
    made.ramp_s = 0.0
    return made
