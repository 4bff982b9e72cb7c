"""The Triton kernels compile for these GPUs, use their matrix cores and keep sums in registers; no GPU is needed.

With the configs that solvers take by default, for layers of real networks. Each target compiles by worker processes of
its own, as hipfind.device.triton_compiler does, which give the assembly as well.
"""

from __future__ import annotations

import base64
import concurrent.futures
import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from hipfind.kernels.spec import TRITON_SOURCES, TritonSpec
from hipfind.problem import ConvProblem
from hipfind.solvers.igemm.base import TritonSolver
from hipfind.solvers.registry import default_registry
from hipfind.target import Target, known

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")

COMPLETE = ("gfx942", "sm_90")
"""Targets for which every kernel is compiled. For the others some of those that multiply, to save time."""
TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "sm_90")
WORKERS = 2
INSTRUCTION = {"gfx9": r"v_mfma_f32_\w+", "gfx11": r"v_wmma_f32_\w+", "sm_90": r"wgmma\.mma_async"}

RESNET = {"x": (32, 128, 28, 28), "w": (128, 128, 3, 3), "pad": 1, "layout": "NHWC"}
STEM = {"x": (32, 3, 224, 224), "w": (64, 3, 7, 7), "pad": 3, "stride": 2, "layout": "NHWC"}
PATCHES = {"x": (32, 3, 224, 224), "w": (768, 3, 16, 16), "stride": 16}
POINT = {"x": (256, 512, 7, 7), "w": (1024, 512, 7, 7)}
GROUPED = {"x": (32, 128, 56, 56), "w": (128, 4, 3, 3), "pad": 1, "groups": 32, "layout": "NHWC"}
VIDEO = {"x": (4, 64, 8, 28, 28), "w": (64, 64, 3, 3, 3), "pad": 1}
STRIDED = {"x": (32, 128, 56, 56), "w": (256, 128, 3, 3), "pad": 1, "stride": 2, "layout": "NHWC"}
SOME: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("ConvTritonContractFwd", "fwd", PATCHES),
    ("ConvTritonContractWrw", "wrw", PATCHES),
    ("ConvTritonRunsFwd", "fwd", STEM),
    ("ConvTritonCellsBwd", "bwd", STEM),
    ("ConvTritonIgemmFwd", "fwd", RESNET),
    ("ConvTritonIgemmBwdV4R1", "bwd", STRIDED),
    ("ConvTritonIgemmBwdV4R1Dynamic", "bwd", STRIDED),
    ("ConvTritonIgemmWrw", "wrw", RESNET),
)
"""Solver, direction, problem."""
MORE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("ConvTritonContractFwd", "fwd", POINT),
    ("ConvTritonContractBwd", "bwd", PATCHES),
    ("ConvTritonIgemmFwd", "fwd", GROUPED),
    ("ConvTritonIgemmFwd", "fwd", VIDEO),
    ("ConvTritonIgemmWrw", "wrw", STEM),
)
AUXILIARY = ("pack", "merge_groups", "expand_runs", "expand_cells", "split_sum")
"""Kernels that multiply nothing."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A kernel that was compiled: its spec, the assembly, bytes of shared memory, the code object."""

    spec: TritonSpec
    assembly: str
    shared: int
    code: bytes

    @property
    def name(self) -> str:
        constants = dict(self.spec.constants)
        tile = {name: constants[name] for name in ("BM", "BN", "BK", "SPLIT") if name in constants}
        return f"{self.spec.entry} {self.spec.pointers[0][1]} {tile} warps={self.spec.warps} stages={self.spec.stages}"

    @property
    def multiplies(self) -> bool:
        return self.spec.entry not in AUXILIARY

    @property
    def is_again(self) -> bool:
        """Whether it does flagged tiles again, which seldom happens, so that it may be slow."""
        return bool(dict(self.spec.constants).get("AGAIN"))


def specs_of(target: Target) -> list[TritonSpec]:
    """What is compiled for a target, bf16 and fp16 in turn."""
    found: dict[TritonSpec, None] = {}
    for number, (solver_id, direction, arguments) in enumerate(SOME + (MORE if target.arch in COMPLETE else ())):
        problem = ConvProblem.create(direction, dtype=("bf16", "fp16")[number % 2], **arguments)
        solver = default_registry().get(solver_id)
        assert solver.IsApplicable(target, problem), f"{solver_id} does not take {problem.key()}"
        for spec in solver.GetSolution(target, problem).kernels:
            is_main = spec.entry not in AUXILIARY and ("AGAIN", 1) not in spec.constants
            if is_main or target.arch in COMPLETE:
                found[spec] = None
    return list(found)


def compile_for(arch: str, specs: Sequence[TritonSpec]) -> list[Compiled]:
    """All compiled by a few processes. Fails for whatever Triton cannot compile."""
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        shares = pool.map(functools.partial(_share, arch), [specs[start::WORKERS] for start in range(WORKERS)])
        return [one for share in shares for one in share]


def _share(arch: str, specs: Sequence[TritonSpec]) -> list[Compiled]:
    requests = [json.dumps({**dataclasses.asdict(spec), "arch": arch, "assembly": True}) + "\n" for spec in specs]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-m", "hipfind.device.triton_worker"],
        input="".join(requests), env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(specs), f"the compiler's process ended with code {done.returncode}: {done.stderr}"
    for spec, answer in zip(specs, answers, strict=True):
        assert "error" not in answer, f"{spec}: {answer['error']}"
    return [
        Compiled(spec, answer["assembly"], answer["shared"], base64.b64decode(answer["code"]))
        for spec, answer in zip(specs, answers, strict=True)
    ]


@pytest.mark.parametrize("arch", TARGETS)
def test_matrix_cores_and_registers(arch: str, tmp_path: pathlib.Path) -> None:
    """Matrix instructions, no more shared memory than there is, and no register in memory."""
    target = known(arch)
    pattern = next(pattern for prefix, pattern in INSTRUCTION.items() if arch.startswith(prefix))
    problems = []
    for one in compile_for(arch, specs_of(target)):
        found = re.findall(pattern, one.assembly)
        if one.multiplies and not found:
            problems.append(f"{one.name}: no {pattern}")
        if not one.multiplies:
            assert not found
        if one.shared > target.lds_bytes:
            problems.append(f"{one.name}: {one.shared} bytes of shared memory")
        spilled = _nvidia_spilled(one, tmp_path) if target.vendor == "nvidia" else _amd_spilled(one)
        if any(spilled.values()) and not one.is_again:
            problems.append(f"{one.name}: {spilled}")
    assert not problems, "\n".join([arch, *problems])


def _amd_spilled(one: Compiled) -> dict[str, int]:
    """What the code object says of registers and memory of a thread's own."""
    names = ("vgpr_spill_count", "private_segment_fixed_size")
    facts = {name: re.findall(rf"^\s+\.{name}:\s+(\d+)", one.assembly, re.MULTILINE) for name in names}
    return {name: int(value) for name, (value,) in facts.items()}


def _nvidia_spilled(one: Compiled, folder: pathlib.Path) -> dict[str, int]:
    """Instructions on a thread's own memory. An assembler may reserve a bit of stack that nothing uses."""
    return _instructions(one, folder, "LDL", "STL")


def _instructions(one: Compiled, folder: pathlib.Path, *names: str) -> dict[str, int]:
    """How often these are in the code object, by NVIDIA's tool, which comes with Triton."""
    root = importlib.util.find_spec("triton")
    assert root is not None and root.origin is not None
    path = folder / "code.cubin"
    path.write_bytes(one.code)
    tool = pathlib.Path(root.origin).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    done = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True)
    assert "EXIT" in done.stdout
    return {name: len(re.findall(rf"\b{re.escape(name)}\b", done.stdout)) for name in names}


UNET: tuple[tuple[str, str, dict[str, Any]], ...] = tuple(
    (solver_id, direction, {"x": (4, c, side, side), "w": (k, c, 3, 3), "pad": 1, "layout": layout})
    for layout, c, side, k in (("NHWC", 256, 128, 256), ("NHWC", 64, 256, 128), ("NCHW", 64, 256, 128))
    for solver_id, direction in (
        ("ConvTritonIgemmFwd", "fwd"), ("ConvTritonIgemmBwdV4R1", "bwd"), ("ConvTritonIgemmWrw", "wrw"),
    )
)  # fmt: skip
SPLIT = ("ConvTritonContractFwd", "fwd", {"x": (256, 64, 28, 28), "w": (128, 64, 7, 7), "stride": 7, "layout": "NHWC"})


def test_nothing_keeps_hopper_waiting(tmp_path: pathlib.Path) -> None:
    """Tiles are loaded ahead of their use, and matrix instructions are begun together: one arrival for several.

    It depends on the compiler, too: kernels that failed with Triton 3.6 passed with 3.9.
    """
    target = known("sm_90")
    specs: dict[TritonSpec, None] = {}
    for solver_id, direction, arguments in (*UNET, SPLIT):
        problem = ConvProblem.create(direction, dtype="bf16", **arguments)
        kernels = default_registry().get(solver_id).GetSolution(target, problem).kernels
        specs |= {one: None for one in kernels if isinstance(one, TritonSpec) and one.entry not in AUXILIARY}
    assert {dict(one.constants)["SPLIT"] == 1 for one in specs} == {True, False}
    for one in compile_for("sm_90", list(specs)):
        assert not re.findall(r"\bld\.global", one.assembly), f"{one.name}: loads that a step waits for"
        found = _instructions(one, tmp_path, "HGMMA", "WARPGROUP.ARRIVE")
        assert found["HGMMA"] >= 2 * found["WARPGROUP.ARRIVE"] > 0, f"{one.name}: {found}, one waits for the other"


def test_every_kernel_and_solver_is_compiled() -> None:
    written = set()
    for path in TRITON_SOURCES.glob("*.py"):
        written |= set(re.findall(r"^@triton\.jit\ndef (\w+)\(\n?\s*(?:\w+, )+", path.read_text(), re.MULTILINE))
    compiled = {spec.entry for spec in specs_of(known(COMPLETE[0]))}
    assert compiled <= written
    assert set(AUXILIARY) < compiled
    solvers = {solver.SolverDbId() for solver in default_registry().solvers if isinstance(solver, TritonSolver)}
    assert {solver_id for solver_id, *_ in SOME + MORE} == solvers
