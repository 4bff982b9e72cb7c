"""Triton kernels: compiled by processes of their own, kept in the kernel cache, launched with packed words."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hipfind import settings
from hipfind.device import triton_compiler
from hipfind.device.gpu import GpuDevice
from hipfind.device.kernel_cache import kernel_cache
from hipfind.device.null import NullDevice
from hipfind.device.triton_compiler import TritonCode
from hipfind.errors import CompileError, CompilerNotFoundError, KernelLaunchError
from hipfind.kernels.spec import KernelSpec, TritonSpec
from hipfind.problem import ConvProblem
from hipfind.solvers.registry import default_registry
from hipfind.target import known
from tests.helpers import fake_triton
from tests.helpers.fake_driver import FakeDriver
from tests.helpers.fake_triton import FakeTriton
from tests.helpers.process import ROOT, run_python

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
PROBLEM = ConvProblem.create("bwd", (2, 16, 6, 7), (16, 16, 3, 3), dtype="bf16")
COPY = default_registry().get("ConvTritonIgemmBwdV4R1Dynamic").GetSolution(known("gfx942"), PROBLEM).kernels[0]
"""A small kernel of ours with run-time numbers."""
assert isinstance(COPY, TritonSpec) and COPY.integers
ARCH = "gfx942"
"""That of FakeDriver's GPU."""


def named(entry: str, *more: str) -> TritonSpec:
    """A kernel that only the fake compiler can compile."""
    return dataclasses.replace(COPY, entry=entry, integers=tuple((name, 1) for name in more))


@pytest.fixture(autouse=True)
def cache(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    with settings.override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> FakeTriton:
    """The fake compiler's process."""
    monkeypatch.setattr(triton_compiler, "version", lambda: "Triton 3")
    return fake_triton.install(monkeypatch, tmp_path)


@pytest.fixture
def driver(compiler: FakeTriton) -> FakeDriver:
    FakeDriver.make_current(-1)
    return FakeDriver()


@pytest.fixture
def device(driver: FakeDriver) -> GpuDevice:
    return GpuDevice(driver, lambda device: pytest.fail("no products here"))


# the compiler --------------------------------------------------------------------------------------------------------

ALONE = """
import json, sys
from hipfind.device.triton_compiler import TritonCode, compile_kernel
from tests.device.test_triton_compiler import COPY
before = set(sys.modules)
found = {arch: TritonCode.unpack(compile_kernel(COPY, arch)) for arch in ("gfx942", "gfx1100", "sm_90")}
print(json.dumps([
    {arch: [one.name, one.threads, one.shared, one.code[:4].hex()] for arch, one in found.items()},
    [name for name in ("torch", "triton") if name in sys.modules],
]))
"""


@needs_triton
def test_it_needs_neither_a_gpu_nor_torch_and_loads_no_triton_here(tmp_path: pathlib.Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch')")
    done = run_python(("-c", ALONE), tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}", PYTHONWARNINGS="default")
    assert done.returncode == 0, done.stderr
    found, loaded = json.loads(done.stdout)
    assert loaded == []
    elf = "7f454c46"
    assert {arch: (name, threads, code) for arch, (name, threads, _, code) in found.items()} == {
        "gfx942": ("pack", 256, elf), "gfx1100": ("pack", 128, elf), "sm_90": ("pack", 128, elf),
    }  # fmt: skip


@needs_triton
@pytest.mark.parametrize("arch", ["gfx90a", "sm_90"])
def test_warnings_of_the_compilers_are_no_failures(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    monkeypatch.delenv("TRITON_DEFAULT_FP_FUSION", raising=False)
    assert TritonCode.unpack(triton_compiler.compile_kernel(COPY, arch)).code


def test_packed_code_comes_back_as_it_was() -> None:
    code = TritonCode("a_kernel", 256, 49152, bytes(range(256)) + b"\n\n{}")
    assert TritonCode.unpack(code.pack()) == code


@needs_triton
def test_a_kernel_that_does_not_compile_has_the_compilers_log() -> None:
    wrong = dataclasses.replace(COPY, constants=tuple({**dict(COPY.constants), "BP": 48}.items()))
    good, bad = triton_compiler.compile_many([COPY, wrong], ARCH)
    assert isinstance(good, bytes) and isinstance(bad, CompileError)
    assert "Triton could not compile pack.py for gfx942" in str(bad)
    assert "BP=48" in bad.got and "power of 2" in bad.log
    with pytest.raises(CompileError, match="no attribute 'nothing'"):
        triton_compiler.compile_kernel(dataclasses.replace(COPY, entry="nothing"), ARCH)


def test_after_a_process_died_the_next_kernels_are_compiled(compiler: FakeTriton) -> None:
    specs = [named(entry) for entry in ("first", "dies", "second", "broken", "dies", "third")]
    results = triton_compiler.compile_many(specs, ARCH, workers=1)
    codes = [TritonCode.unpack(one).code if isinstance(one, bytes) else one.log for one in results]
    died = "the compiler's process ended with code 9"
    assert codes == [b"code of first", died, b"code of second", "no such thing", died, b"code of third"]
    assert compiler.processes == 3


def test_a_process_that_takes_too_long_is_ended(compiler: FakeTriton, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_compiler, "_LONGEST_S", 4.0)
    results = triton_compiler.compile_many([named("hangs"), named("first")], ARCH, workers=1)
    assert isinstance(results[0], CompileError) and "ended with code -9" in results[0].log
    assert isinstance(results[1], bytes)


def test_many_processes_share_the_kernels(compiler: FakeTriton) -> None:
    specs = [named(f"kernel_{number}") for number in range(20)]
    results = triton_compiler.compile_many(specs, ARCH, workers=3)
    assert [TritonCode.unpack(one).name for one in results if isinstance(one, bytes)] == [one.entry for one in specs]
    assert sorted(compiler.compiled) == sorted((spec.entry, True) for spec in specs)
    assert 1 <= compiler.processes <= 3


def test_without_triton_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_compiler, "version", lambda: "")
    with pytest.raises(CompilerNotFoundError, match=r"pip install 'hipfind\[triton\]'"):
        triton_compiler.compile_kernel(COPY, ARCH)
    triton_compiler.fill_cache([COPY, named("other")], ARCH)  # whoever prepares them will meet it
    assert not kernel_cache().has(triton_compiler.cache_key(COPY, ARCH))


# the cache -----------------------------------------------------------------------------------------------------------


def test_the_cache_is_filled_with_what_it_lacks(compiler: FakeTriton) -> None:
    first, broken, second = named("first"), named("broken"), named("second")
    specs = [first, KernelSpec("cast.hip", "cast_from_fp32"), broken, second]
    triton_compiler.fill_cache(specs, ARCH)
    assert sorted(compiler.compiled) == [("broken", True), ("first", True), ("second", True)]
    cache = kernel_cache()
    has = [cache.has(triton_compiler.cache_key(spec, ARCH)) for spec in (first, broken, second)]
    assert has == [True, False, True]
    triton_compiler.fill_cache([first, second], ARCH)
    assert len(compiler.compiled) == 3, "what is there is not compiled again"
    triton_compiler.fill_cache([first, second], "gfx90a")
    assert len(compiler.compiled) == 5, "for another target it is"


def test_what_a_null_device_compiles_the_real_one_finds(device: GpuDevice, compiler: FakeTriton) -> None:
    specs = [named("one"), named("two"), named("three")]
    null = NullDevice(ARCH)
    null.compile_ahead(specs[:2])
    null.prepare_kernel(specs[2], (), 1)
    assert sorted(compiler.compiled) == [("one", True), ("three", True), ("two", True)]
    for spec in specs:
        device.prepare_kernel(spec, (), 1)
    assert len(compiler.compiled) == 3


def test_what_a_kernel_imports_is_part_of_its_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """And so is everything in its spec."""
    monkeypatch.setattr("hipfind.kernels.spec.TRITON_SOURCES", tmp_path)
    (tmp_path / "helper.py").write_text("1")
    (tmp_path / "kernel.py").write_text("from hipfind.kernels.triton.helper import one\n")
    spec = dataclasses.replace(COPY, source="kernel.py")
    changes: tuple[dict[str, Any], ...] = (
        {}, {"entry": "other"}, {"warps": 8}, {"stages": 3}, {"aligned": False}, {"constants": ()},
        {"integers": (("elements", 16),)}, {"pointers": (("parts", "fp32"), ("out", "fp16"))},
    )  # fmt: skip
    before = {dataclasses.replace(spec, **change).content_hash for change in changes}
    (tmp_path / "helper.py").write_text("2")
    after = {dataclasses.replace(spec, **change).content_hash for change in changes}
    assert len(before) == len(after) == len(changes) and not before & after


# launches ------------------------------------------------------------------------------------------------------------


def test_a_launch_packs_pointers_and_32_bit_parameters(device: GpuDevice, driver: FakeDriver) -> None:
    spec = dataclasses.replace(named("kernel", "a", "b", "c"), warps=8, stages=4)
    run = device.prepare_kernel(spec, (5, -7, 2**31 - 1), items=70000)
    run([0x1000, 0x2000], 0)
    run([0x3000, 0x4000], 7)
    first, second = driver.launches
    assert first.words[:2] == (0x1000, 0x2000) and second.words[:2] == (0x3000, 0x4000)
    assert struct.unpack("4i", struct.pack("2Q", *first.words[2:4])) == (5, -7, 2**31 - 1, 0)
    assert first.words[4:] == second.words[4:] == (0, 0), "pointers to scratch memory that it does not need"
    assert (first.blocks, first.threads, first.shared) == (70000, 256, 4000)
    assert (first.stream, second.stream) == (0, 7)


def test_without_parameters_only_pointers_are_packed(device: GpuDevice, driver: FakeDriver) -> None:
    device.prepare_kernel(named("kernel"), (), 1)([16, 32], 0)
    assert driver.launches[0].words == (16, 32, 0, 0)


def test_operands_at_odd_places_have_a_kernel_of_their_own(
    device: GpuDevice, driver: FakeDriver, compiler: FakeTriton
) -> None:
    """It is compiled when the first of them comes, once."""
    run = device.prepare_kernel(named("kernel", "a"), (3,), 2)
    run([0x1000, 0x2010], 0)
    assert compiler.compiled == [("kernel", True)]
    for addresses in ([0x1000, 0x2008], [0x1002, 0x2000], [0x1000, 0x2000]):
        run(addresses, 0)
    assert compiler.compiled == [("kernel", True), ("kernel", False)]
    aligned, odd, also_odd, again = (launch.function for launch in driver.launches)
    assert aligned == again != odd == also_odd
    assert [launch.words[:2] for launch in driver.launches][1:3] == [(0x1000, 0x2008), (0x1002, 0x2000)]
    assert {launch.words[2:] for launch in driver.launches} == {(3, 0, 0)}


def test_a_failed_launch_names_the_kernel(device: GpuDevice, driver: FakeDriver) -> None:
    run = device.prepare_kernel(named("kernel"), (), 1)
    driver.faults["launch"] = 1
    with pytest.raises(KernelLaunchError, match=r"kernel did not start on fake:0.*fakeError \(1\): injected"):
        run([16, 16], 0)
    driver.faults.clear()
    run([16, 16], 0)
    assert len(driver.launches) == 1


@needs_triton
@pytest.mark.parametrize("arch", [ARCH, "sm_90"])
def test_compiled_kernels_take_their_arguments_where_launches_put_them(arch: str) -> None:
    """Pointers, then 32-bit numbers without gaps, then the two pointers to scratch memory."""
    request = json.dumps({**dataclasses.asdict(COPY), "arch": arch, "assembly": True})
    command = [sys.executable, "-m", "hipfind.device.triton_worker"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=True)
    assembly = json.loads(done.stdout)["assembly"]
    if arch == ARCH:
        described = assembly[assembly.index(".args:") : assembly.index(".kernarg_segment_size")]
        places = list(map(int, re.findall(r"\.offset:\s+(\d+)", described)))
    else:
        sizes = [int(bits) // 8 for bits in re.findall(r"\.param \.[ub](\d+)", assembly)]
        places = [0]
        for size, following in zip(sizes, [*sizes[1:], 1], strict=True):
            places.append(-(-(places[-1] + size) // following) * following)
        places.pop()
    numbers = len(COPY.integers)
    end = 16 + 8 * -(-numbers // 2)
    assert places == [0, 8, *range(16, 16 + 4 * numbers, 4), end, end + 8]
