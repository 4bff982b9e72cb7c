"""A GPU that is not here: compiles under the real device's keys, answers look-ups, and never runs."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hipfind as hf
from hipfind import settings
from hipfind.device import cuda_compiler, hip_compiler, triton_compiler
from hipfind.device.devices import get_device, list_devices
from hipfind.device.gpu import GpuDevice
from hipfind.device.gpu_driver import GpuProperties
from hipfind.device.null import NullDevice
from hipfind.errors import CompileError, CompilerNotFoundError, DeviceError
from hipfind.kernels.spec import TRITON_SOURCES, GemmSpec, KernelSpec, TritonSpec
from hipfind.problem.dtypes import DType
from hipfind.solvers.registry import default_registry
from hipfind.target import KNOWN_TARGETS, known
from tests.helpers.fake_driver import FakeDriver

H200 = GpuProperties("nvidia", "sm_90", "NVIDIA H200", 132, 32, 232448, 1980, 60 << 20, 141 << 30, 4800.0)
PROBLEM = hf.ConvProblem.create("fwd", (2, 3, 6, 6), (4, 3, 3, 3), dtype="fp64")
NAIVE = "ConvDirectNaiveConvFwd"


class CudaCompiling(FakeDriver):
    """A runtime in Python, with NVIDIA's real compiler."""

    def compile(self, spec: KernelSpec) -> bytes:
        self.compiled.append(spec)
        return cuda_compiler.compile_kernel(spec, self.reported.arch)

    def load_function(self, code: bytes, entry: str, shared: int = 0) -> int:
        return len(self.compiled) + 1

    def compiler_version(self) -> str:
        return cuda_compiler.version()

    def compiler_options(self, spec: KernelSpec) -> list[str]:
        return cuda_compiler.options(spec, self.reported.arch)


@pytest.fixture(autouse=True)
def cache(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    with settings.override(cache_dir=str(tmp_path / "cache"), user_db_path=str(tmp_path / "x.db")):
        yield tmp_path / "cache"


def naive_kernels(device: NullDevice) -> tuple[Any, ...]:
    return default_registry().get(NAIVE).GetSolution(device.target, PROBLEM).kernels


def test_every_known_gpu_has_a_null_device() -> None:
    for target in KNOWN_TARGETS:
        if not target.is_host:
            device = get_device(f"null:{target.arch}")
            assert (device.name, device.target.key) == (f"null:{target.arch}", target.key)
    assert get_device("null:gfx942") is get_device("null:gfx942")
    assert not any(info.name.startswith("null") for info in list_devices())


@pytest.mark.parametrize("name", ["null", "null:", "null:gfx000", "null:x86_64", "null:0"])
def test_other_names_are_refused_with_those_that_are_known(name: str) -> None:
    with pytest.raises(DeviceError, match=r"stands for a known GPU.*null:gfx942.*null:sm_90") as caught:
        get_device(name)
    assert "x86_64" not in caught.value.remedy


def test_its_cache_is_warm_for_the_real_device(cache: pathlib.Path) -> None:
    null, driver = NullDevice("sm_90"), CudaCompiling(properties=H200)
    kernels = naive_kernels(null)
    for spec in kernels:
        null.prepare_kernel(spec, (), 1)
    files = sorted(one.name for one in cache.iterdir())
    assert len(files) == len(kernels) > 0
    real = GpuDevice(driver, lambda device: pytest.fail("no products here"))
    for spec in kernels:
        real.prepare_kernel(spec, (), 0)
    assert driver.compiled == []
    assert sorted(one.name for one in cache.iterdir()) == files


def test_what_is_compiled_once_is_taken_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    (spec, *_) = naive_kernels(NullDevice("sm_90"))
    code = NullDevice("sm_90").compile(spec)
    assert code[:4] == b"\x7fELF"
    monkeypatch.setattr(cuda_compiler, "compile_kernel", lambda *arguments: pytest.fail("compiled twice"))
    assert NullDevice("sm_90").compile(spec) == code


def test_amd_kernels_are_compiled_by_hiprtc_for_the_target(
    monkeypatch: pytest.MonkeyPatch, cache: pathlib.Path
) -> None:
    monkeypatch.setattr(hip_compiler, "version", lambda: "hiprtc 7.0")
    monkeypatch.setattr(hip_compiler, "compile_kernel", lambda spec, arch: f"{spec.entry} for {arch}".encode())
    codes = {arch: NullDevice(arch).compile(KernelSpec("cast.hip", "cast")) for arch in ("gfx942", "gfx1100")}
    assert codes == {arch: f"cast for {arch}".encode() for arch in codes}
    assert len(list(cache.iterdir())) == 2
    assert NullDevice("gfx942").environment() == {"device": "null", "compiler": "hiprtc 7.0"}


def test_without_a_compiler_only_compiling_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise CompilerNotFoundError("hiprtc cannot be used", got="no library")

    monkeypatch.setattr(hip_compiler, "version", missing)
    device = NullDevice("gfx942")
    assert device.environment()["compiler"] == "none"
    assert hf.immediate(PROBLEM, device=device)
    with pytest.raises(CompilerNotFoundError, match="hiprtc cannot be used"):
        device.prepare_kernel(KernelSpec("cast.hip", "cast"), (), 1)


def test_a_kernel_that_does_not_compile_has_the_compilers_log() -> None:
    with pytest.raises(CompileError, match="error"):
        NullDevice("sm_90").compile(KernelSpec("cast.hip", "cast", (("HF_T", "no such type"),)))


RUNS: dict[str, Callable[[NullDevice], object]] = {
    "allocate": lambda device: device.allocate(1),
    "copy_in": lambda device: device.copy_in(0, np.zeros(1)),
    "copy_out": lambda device: device.copy_out(np.zeros(1), 0),
    "set_bytes": lambda device: device.set_bytes(0, 1, 0),
    "synchronize": lambda device: device.synchronize(),
    "time_ms": lambda device: device.time_ms(lambda: None),
    "flush_cache": lambda device: device.flush_cache(),
    "a product": lambda device: device.prepare_gemm(GemmSpec(1, 1, 1, DType.FP32, DType.FP32, 1, 1, 1))(0, 0, 0, 0),
    "a kernel": lambda device: device.prepare_kernel(naive_kernels(device)[0], (), 1)([0], 0),
    "a plan": lambda device: hf.plan(PROBLEM, solver=NAIVE, device=device)(
        np.zeros(PROBLEM.x.lengths), np.zeros(PROBLEM.w.lengths)
    ),
    "find": lambda device: hf.find(PROBLEM, mode="normal", device=device),
    "find that looks up first": lambda device: hf.find(PROBLEM, device=device),
}


@pytest.mark.parametrize("what", RUNS)
def test_nothing_runs(what: str) -> None:
    with pytest.raises(DeviceError, match=r"never runs.*measured on it \(got null:sm_90\).*immediate, explain"):
        RUNS[what](NullDevice("sm_90"))


def test_look_ups_answer_as_on_the_real_device() -> None:
    device = get_device("null:gfx942")
    choices = hf.immediate(PROBLEM, device="null:gfx942")
    applicable = {
        solver.SolverDbId()
        for solver in default_registry().for_operation("conv")
        if solver.IsApplicable(device.target, PROBLEM)
    }
    assert {one.solver_id for one in choices} == applicable
    rows = hf.explain(PROBLEM, device="null:gfx942")
    assert {one.solver_id for one in rows if one.applicable} == applicable
    assert device.target.compute_units == known("gfx942").compute_units
    with settings.override(find_mode="FAST"):
        assert hf.find(PROBLEM, device="null:gfx942").results == tuple(choices)


def test_triton_kernels_are_compiled_for_the_target_under_the_real_devices_keys(
    monkeypatch: pytest.MonkeyPatch, cache: pathlib.Path
) -> None:
    source = next(one.name for one in TRITON_SOURCES.glob("*.py") if one.name != "__init__.py")
    specs = [TritonSpec(source, "entry", (("x", "bf16"),), warps=warps) for warps in (4, 8)]
    asked: list[tuple[TritonSpec, str]] = []

    def compile_many(several: list[TritonSpec], arch: str, *more: object) -> list[bytes]:
        asked.extend((one, arch) for one in several)
        return [f"{one.warps} for {arch}".encode() for one in several]

    monkeypatch.setattr(triton_compiler, "version", lambda: "Triton 3")
    monkeypatch.setattr(triton_compiler, "compile_many", compile_many)
    device = NullDevice("gfx942")
    device.compile_ahead(specs)
    assert asked == [(one, "gfx942") for one in specs]
    assert [device.compile(one) for one in specs] == [b"4 for gfx942", b"8 for gfx942"]
    assert NullDevice("sm_90").compile(specs[0]) == b"4 for sm_90"
    assert len(asked) == 3
    keys = [triton_compiler.cache_key(*one) for one in asked]
    assert sorted(one.name for one in cache.iterdir()) == sorted(keys)
