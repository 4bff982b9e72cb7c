"""Plans on arrays in the memory of two GPUs: read and written in place, refused on the wrong device or stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hipfind as hf
from hipfind import settings
from hipfind.device.gpu import GpuDevice
from hipfind.errors import ArrayError, DeviceError, WorkspaceError
from hipfind.problem import ConvProblem, tolerance
from tests.helpers.arrays import make_arrays
from tests.standin import Control
from tests.standin.conftest import open_device
from tests.standin.hip_device import destroy, make_stream


class DeviceArray:
    """An array of a library that speaks the array interface only; its memory is a device's."""

    def __init__(self, device: GpuDevice, array: np.ndarray[Any, Any], stream: int | None = None) -> None:
        flat = array.base if isinstance(array.base, np.ndarray) else array
        self.like, self.device = array, device
        self.memory = device.allocate(flat.nbytes)
        device.copy_in(self.memory.address, flat)
        self.dtype, self.shape, self.strides = array.dtype, array.shape, array.strides
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "strides": array.strides,
            "data": (self.memory.address, False), "version": 3, "stream": stream,
        }  # fmt: skip

    def numpy(self) -> np.ndarray[Any, Any]:
        flat = np.empty(self.memory.nbytes, np.uint8)
        self.device.copy_out(flat, self.memory.address)
        return np.ndarray(self.shape, self.dtype, flat.data, strides=self.strides)


@pytest.fixture
def control() -> Iterator[Control]:
    """The stand-in. The process's own devices, which plans run on, keep their products and workspaces."""
    control = Control()
    yield control
    assert control.violations() == []


@pytest.fixture
def own_db(cache: Any) -> Iterator[None]:
    with settings.override(user_db_path=str(cache / "own.db")):
        yield


def problem(direction: str = "fwd", layout: str = "NHWC", **more: Any) -> ConvProblem:
    return ConvProblem.create(
        direction, (3, 4, 9, 8), (6, 2, 3, 3), pad=1, groups=2, layout=layout, dtype="bf16", **more
    )


def check(made: ConvProblem, out: np.ndarray[Any, Any], arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    output = made.tensor(made.output)
    verdict = tolerance.check(out, made.reference(arrays), output.dtype, made.reduction_length)
    assert verdict.ok, str(verdict)


@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_plans_read_and_write_arrays_where_they_lie(
    control: Control, own_db: None, direction: str, layout: str
) -> None:
    made = problem(direction, layout)
    arrays = make_arrays(made, 1)
    device = open_device(1)
    on_device = {role: DeviceArray(device, array) for role, array in arrays.items()}
    out = on_device[made.output]
    plan = hf.plan(made, device="hip:1")
    assert plan(*(on_device[role] for role in made.inputs), out=out) is out
    check(made, out.numpy(), arrays)


def test_the_arrays_library_says_on_which_stream(control: Control, own_db: None) -> None:
    made = problem()
    arrays = make_arrays(made, 2)
    device, stream = open_device(0), make_stream()
    inputs = [DeviceArray(device, arrays[role], stream) for role in made.inputs]
    out = DeviceArray(device, arrays[made.output], stream)
    hf.plan(made, device="hip")(*inputs, out=out)
    with device.driver.active():
        device.driver.synchronize(stream)
    check(made, out.numpy(), arrays)
    foreign = open_device(1)
    with foreign.driver.active():
        theirs = make_stream()
    with pytest.raises(DeviceError, match=r"a stream of hip:0 is needed"):
        hf.plan(made, device="hip")(*inputs, out=out, stream=theirs)
    for one in (stream, theirs):
        destroy(one)


def test_arrays_elsewhere_are_refused(control: Control, own_db: None) -> None:
    made = problem()
    arrays = make_arrays(made, 3)
    plan = hf.plan(made, device="hip:0")
    here, there = open_device(0), open_device(1)
    x, w = (DeviceArray(here, arrays[role]) for role in made.inputs)
    y = DeviceArray(here, arrays["y"])
    launches = control.calls("hipModuleLaunchKernel")
    with pytest.raises(ArrayError, match=r"x must be on hip:0 \(got an array on another device\)"):
        plan(DeviceArray(there, arrays["x"]), w, out=y)
    with pytest.raises(ArrayError, match=r"w must be on hip:0 \(got an array on host\)"):
        plan(x, arrays["w"], out=y)
    with pytest.raises(ArrayError, match=r"y must be on hip:0"):
        plan(x, w, out=DeviceArray(there, arrays["y"]))
    with pytest.raises(ArrayError, match=r"pass out="):
        plan(x, w)
    assert control.calls("hipModuleLaunchKernel") == launches


def test_a_workspace_may_be_any_array_of_the_device(control: Control, own_db: None) -> None:
    made = ConvProblem.create("fwd", (2, 3, 7, 7), (5, 3, 3, 3), dtype="fp32")
    arrays = make_arrays(made, 4)
    device = open_device(0)
    plan = hf.plan(made, device="hip:0", solver="GemmFwdRest")
    assert plan.workspace_bytes > 0
    x, w, y = (DeviceArray(device, arrays[role]) for role in ("x", "w", "y"))
    plan(x, w, out=y, workspace=DeviceArray(device, np.zeros(plan.workspace_bytes, np.uint8)))
    check(made, y.numpy(), arrays)
    with pytest.raises(WorkspaceError, match="needs a workspace"):
        plan(x, w, out=y, workspace=DeviceArray(device, np.zeros(plan.workspace_bytes - 1, np.uint8)))
