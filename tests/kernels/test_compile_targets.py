"""Every portable kernel compiles for the GPUs named here and keeps its data in registers; no GPU is needed.

AMD's targets through ziglang's clang, with the options that hiprtc gets; NVIDIA's through NVRTC. The kernels and their
definitions are those that the solvers and the devices' products hand out, so a new one is found by itself.
"""

from __future__ import annotations

import collections
import functools
import importlib.util
import os
import pathlib
import re
import stat
import subprocess
from collections.abc import Iterator

import pytest

from hipfind.device.gpu_products import product_kernel
from hipfind.device.host_blas import CONVERSIONS
from hipfind.errors import CompilerNotFoundError
from hipfind.kernels.spec import BLOCK, HIP_SOURCES, KernelSpec, TritonSpec
from hipfind.problem.dtypes import DType
from hipfind.solvers.registry import default_registry
from hipfind.target import known
from tests.solvers.catalogue import PROBLEMS

AMD = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
NVIDIA = "sm_90"
COMPLETE = ("gfx942", NVIDIA)
"""Targets for which every set of definitions is compiled, up to the code object. For the others it is one set for each
element type, up to assembly, to save time."""

Defines = tuple[tuple[str, str], ...]
SOURCES = sorted(path.name for path in HIP_SOURCES.glob("*.hip") if path.name != CONVERSIONS)


@functools.cache
def binaries(arch: str) -> dict[str, dict[Defines, set[str]]]:
    """What is compiled for a target: source -> definitions -> the kernels that are used of it."""
    found: dict[str, dict[Defines, set[str]]] = {source: collections.defaultdict(set) for source in SOURCES}
    for dtype in (DType.FP64, DType.FP32, DType.FP16, DType.BF16):
        for dtype_c in {dtype, DType.FP32} if dtype.is_half else {dtype}:
            spec = product_kernel(dtype, dtype_c)
            found[spec.source][spec.defines].add(spec.entry)
    target = known(arch)
    for solver in default_registry().solvers:
        for problem in PROBLEMS[solver.operation]:
            if solver.IsApplicable(target, problem):
                for spec in solver.GetSolution(target, problem).kernels:
                    if isinstance(spec, TritonSpec):
                        continue
                    found[spec.source][spec.defines].add(spec.entry)
    return found


def chosen(arch: str, source: str) -> Iterator[tuple[Defines, set[str]]]:
    """What of ``binaries`` is compiled for a target."""
    done: set[str] = set()
    for defines, entries in sorted(binaries(arch)[source].items()):
        element = dict(defines)["ELEM"]
        if arch in COMPLETE or element not in done:
            done.add(element)
            yield defines, entries


@pytest.mark.parametrize("source", SOURCES)
def test_the_catalogue_of_problems_reaches_every_kernel(source: str) -> None:
    written = re.findall(r"^HF_KERNEL\((\w+)", (HIP_SOURCES / source).read_text(), re.MULTILINE)
    for arch in (*AMD, NVIDIA):
        assert set().union(*binaries(arch)[source].values()) == set(written), arch


@pytest.fixture(scope="session")
def clang(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, str]]:
    """Command and environment of clang for AMD GPUs."""
    ziglang = importlib.util.find_spec("ziglang")
    if ziglang is None or ziglang.origin is None:
        pytest.skip("ziglang is not installed (pip install hipfind[host])")
    zig = pathlib.Path(ziglang.origin).with_name("zig")
    # clang calls a linker of the name lld with a flavour in front; zig's is a subcommand.
    folder = tmp_path_factory.mktemp("bin")
    linker = folder / "lld"
    linker.write_text(f'#!/bin/sh\nshift 2\nexec "{zig}" ld.lld "$@"\n')
    linker.chmod(linker.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "PATH": os.pathsep.join((str(folder), os.environ["PATH"]))}
    options = ("clang", "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc")
    return [str(zig), *options, "-Werror"], environment


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("arch", AMD)
def test_amd_code_objects_use_no_scratch_memory(
    arch: str, source: str, clang: tuple[list[str], dict[str, str]], tmp_path: pathlib.Path
) -> None:
    hip_compiler = pytest.importorskip("hipfind.device.hip_compiler", reason="hip-python is not installed")
    command, environment = clang
    for defines, entries in chosen(arch, source):
        options = hip_compiler.options(KernelSpec(source, min(entries), defines), arch)
        is_linked = arch in COMPLETE
        output = tmp_path / ("code.co" if is_linked else "code.s")
        mode = "-save-temps=obj" if is_linked else "-S"
        done = subprocess.run(
            [*command, mode, *options, "-o", str(output), str(HIP_SOURCES / source)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if is_linked:
            assert output.read_bytes().startswith(b"\x7fELF")
        assembly = next(tmp_path.glob("*.s")).read_text()
        assert not re.findall(r"^\s+scratch_\w+", assembly, re.MULTILINE)
        for entry, facts in metadata(assembly, entries).items():
            assert facts["private_segment_fixed_size"] == 0, f"{entry} {defines} uses scratch memory"
            assert facts["vgpr_spill_count"] == 0, f"{entry} {defines} spills vector registers"
            assert facts["max_flat_workgroup_size"] == BLOCK
            assert facts["wavefront_size"] == known(arch).wave_size


def metadata(assembly: str, entries: set[str]) -> dict[str, dict[str, int]]:
    """kernel -> the numbers that the assembly's ".amdgpu_metadata" states about it."""
    text = assembly[assembly.index("amdhsa.kernels:") : assembly.index("amdhsa.target:")]
    kernels: dict[str, dict[str, int]] = {}
    for part in text.split("\n  - ")[1:]:
        name = re.search(r"^    \.name: +(\w+)$", part, re.MULTILINE)
        assert name is not None, part
        kernels[name[1]] = {key: int(value) for key, value in re.findall(r"^ *\.(\w+): +(\d+)$", part, re.MULTILINE)}
    return {entry: kernels[entry] for entry in entries}


@pytest.mark.parametrize("source", SOURCES)
def test_nvidia_kernels_use_no_local_memory(source: str) -> None:
    for defines, entries in chosen(NVIDIA, source):
        log = nvrtc_log(KernelSpec(source, min(entries), defines), NVIDIA)
        functions = dict(re.findall(r"Compiling entry function '(\w+)'(.*?)Used \d+ registers", log, re.DOTALL))
        for entry in entries:
            assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in functions[entry], log


def nvrtc_log(spec: KernelSpec, arch: str) -> str:
    """The assembler's remarks on a kernel; skips where NVRTC is not installed."""
    cuda_compiler = pytest.importorskip("hipfind.device.cuda_compiler", reason="cuda-bindings is not installed")
    from cuda.bindings import nvrtc

    try:
        cuda_compiler.version()
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    source, *headers = ((HIP_SOURCES / name).read_bytes() for name in (spec.source, *spec.headers))
    names = [name.encode() for name in spec.headers]
    _, program = nvrtc.nvrtcCreateProgram(source, spec.source.encode(), len(headers), headers, names)
    options = [option.encode() for option in (*cuda_compiler.options(spec, arch), "--ptxas-options=-v")]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    return log.decode()
