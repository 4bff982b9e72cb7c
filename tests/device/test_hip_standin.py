"""The HIP device without a GPU: the real hip-python on the stand-in, each time in a process of its own."""

from __future__ import annotations

import ctypes.util
import json
import pathlib
import re
import subprocess
from typing import Any

import pytest

from tests import standin

pytestmark = pytest.mark.skipif(bool(standin.missing()), reason=standin.missing())

SMALL_CACHE = "gfx90a"
"""A GPU whose cache is quickly flushed before each measured run."""

MODULES: dict[str, dict[str, Any]] = {
    "hip_itself": {},
    "hip_device": {},
    "hip_products": {},
    "hip_faults": {},
    "hip_crash": {},
    "hip_find": {"arch": SMALL_CACHE},
    "hip_two_devices": {"arch": SMALL_CACHE, "devices": 2},
    "hip_arrays": {"devices": 2},
}
"""Tests that run inside a process with the stand-in, and what it must offer them."""


def run_tests(*arguments: str, **options: Any) -> None:
    """Run pytest in a process with the stand-in; all tests must pass, and none be skipped."""
    done = standin.run(("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments), **options)
    summary = done.stdout.strip().rsplit("\n", 1)[-1]
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"\d+ passed(, \d+ deselected)? in .*", summary), done.stdout


def test_every_module_of_the_standins_tests_is_run() -> None:
    assert {path.stem for path in standin.SOURCES.glob("hip_*.py")} == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_hip_device(module: str) -> None:
    run_tests(f"tests/standin/{module}.py", **MODULES[module])


@pytest.mark.parametrize(
    "selection",
    [
        ("tests/solvers/test_conformance.py", "-k", "buffers_held or cleared or odd"),
        ("tests/solvers/test_results.py", "-k", "legal_problem or one_output_position or pointwise or gemm_solver"),
        ("tests/solvers/upsample/test_results.py", "-k", "legal or any_device or adjoint or finite or every_solver"),
        ("tests/solvers/upsample/test_forward.py", "-k", "legal or both_solvers or adjoint or finite or whole"),
    ],
    ids=["conformance", "results", "upsampling", "upsampling forward"],
)
def test_solvers_on_the_hip_device(selection: tuple[str, ...]) -> None:
    run_tests(*selection, "--device", "hip", arch=SMALL_CACHE)


def script(text: str, **options: Any) -> Any:
    """The JSON that a Python script prints in a process with the stand-in."""
    done: subprocess.CompletedProcess[str] = standin.run(("-c", f"import json\n{text}"), **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


LIST = """
import hipfind as hf
print(json.dumps([[info.name, info.available, info.reason] for info in hf.devices() if info.name.startswith("hip")]))
"""


@pytest.mark.parametrize("count", [1, 2])
def test_every_device_is_listed(count: int) -> None:
    assert script(LIST, devices=count) == [[f"hip:{ordinal}", True, ""] for ordinal in range(count)]


def test_without_a_device_the_reason_is_the_runtimes() -> None:
    ((name, available, reason),) = script(LIST, devices=0)
    assert (name, available) == ("hip", False)
    assert "hipGetDeviceCount failed" in reason
    assert "hipErrorNoDevice (100): no ROCm-capable device is detected" in reason


def test_the_default_device_is_the_first_that_works() -> None:
    default = 'from hipfind.device.devices import get_device; print(json.dumps(get_device().name.split(":")[0]))'
    assert script(default, devices=1) == "hip"
    assert script(default, devices=0) != "hip"


def without(tmp_path: pathlib.Path, *libraries: str) -> pathlib.Path:
    """A folder of the stand-in that lacks these libraries."""
    for path in standin.build().iterdir():
        if path.is_file() and path.name not in libraries:
            (tmp_path / path.name).symlink_to(path)
    return tmp_path


def test_without_rocm_the_reason_names_the_library(tmp_path: pathlib.Path) -> None:
    if ctypes.util.find_library("amdhip64"):
        pytest.skip("ROCm is installed")
    ((name, available, reason),) = script(LIST, folder=without(tmp_path, "libamdhip64.so"))
    assert (name, available) == ("hip", False)
    assert "libamdhip64.so" in reason


def test_without_hiprtc_products_run_and_kernels_do_not(tmp_path: pathlib.Path) -> None:
    text = """
from hipfind.device.devices import get_device
from hipfind.errors import CompilerNotFoundError
from hipfind.kernels.spec import GemmSpec, KernelSpec
from hipfind.problem import DType
device = get_device("hip")
device.prepare_gemm(GemmSpec(2, 2, 2, DType.FP32, DType.FP32, 2, 2, 2))
try:
    device.prepare_kernel(KernelSpec("cast.hip", "cast_from_fp32", (("ELEM", "fp16"),)), (), 1)
except CompilerNotFoundError as error:
    print(json.dumps([device.target.kernels, str(error)]))
"""
    kernels, message = script(text, folder=without(tmp_path, "libhiprtc.so"))
    assert not kernels
    assert "libhiprtc.so" in message


@pytest.mark.parametrize(
    ("missing", "version"),
    [
        (("libhipblaslt.so",), "hipBLAS"),
        (("libhipblas.so",), "hipBLASLt 100200"),
        (("libhipblas.so", "libhipblaslt.so"), "none"),
    ],
)
def test_products_run_on_what_is_there(tmp_path: pathlib.Path, missing: tuple[str, ...], version: str) -> None:
    text = """
import numpy as np
from hipfind.device.devices import get_device
from hipfind.errors import DeviceError
from hipfind.kernels.spec import GemmSpec
from hipfind.problem import DType
device = get_device("hip")
memory = [device.allocate(16) for _ in range(3)]
for one in memory:
    device.copy_in(one.address, np.full(4, 3, np.float32))
try:
    product = device.prepare_gemm(GemmSpec(2, 2, 2, DType.FP32, DType.FP32, 2, 2, 2))
    product(*(one.address for one in memory), 0)
    result = device.as_numpy(memory[2], np.float32, (4,)).tolist()
except DeviceError as error:
    result = str(error)
print(json.dumps([device.environment()["blas"], result]))
"""
    found, result = script(text, folder=without(tmp_path, *missing))
    assert found == version
    if version == "none":
        assert all(library in result for library in missing)
    else:
        assert result == [18.0] * 4
