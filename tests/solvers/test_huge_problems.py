"""Sizes past 32 bits: exact arithmetic on descriptors; nothing is allocated, but for one test that needs memory."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from typing import Any

import pytest

from hipfind.device.base import Device
from hipfind.invokers.invoker import build
from hipfind.invokers.steps import GemmStep, KernelStep, flat
from hipfind.problem import ConvProblem, tolerance
from hipfind.solvers.registry import default_registry
from hipfind.target import KNOWN_TARGETS, known
from tests.helpers.arrays import make_arrays
from tests.helpers.bounds import assert_inside
from tests.helpers.conv_cases import DIRECTIONS

REGISTRY = default_registry()
SOLVERS = REGISTRY.for_operation("conv")
GPU = known("gfx942")

HUGE: dict[str, dict[str, Any]] = {
    "video patches": {"x": (458_752, 3, 2, 14, 14), "w": (1280, 3, 2, 14, 14), "stride": (2, 14, 14), "dtype": "bf16"},
    "conv3d": {"x": (1, 256, 19, 146, 258), "w": (256, 256, 3, 3, 3), "dtype": "fp16"},
    "int8 conv3d as fp32": {"x": (1, 64, 128, 128, 128), "w": (32, 64, 3, 3, 3), "pad": 1},
    "2^31 elements": {"x": (4097, 2, 512, 512), "w": (2, 2, 8, 8), "stride": 8, "dtype": "fp16"},
    "5000x5000": {"x": (5, 24, 4903, 5078), "w": (8, 24, 3, 3)},
    "1x1, 2^32 pixels": {"x": (70_000, 4, 256, 256), "w": (4, 4, 1, 1), "dtype": "bf16"},
    "1x1, stride 2": {"x": (70_000, 4, 256, 256), "w": (4, 4, 1, 1), "stride": 2, "dtype": "bf16"},
} | {
    f"{n} patches": {"x": (n, 3, 14, 14), "w": (1024, 3, 14, 14), "stride": 14, "dtype": "bf16"}
    for n in (32_767, 32_768, 262_144, 458_752)
}


@pytest.mark.parametrize("name", HUGE)
def test_steps_of_huge_problems_stay_inside_and_are_counted_exactly(name: str) -> None:
    shape = HUGE[name]
    first, last = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}[len(shape["x"])]
    for direction, layout, target in itertools.product(DIRECTIONS, (first, last), KNOWN_TARGETS):
        problem = ConvProblem.create(direction, layout=layout, **shape)
        answers = {solver: solver.IsApplicable(target, problem) for solver in SOLVERS}
        assert any(answers.values()), f"{direction} {layout} {target.arch}"
        for solver, answer in answers.items():
            if answer:
                solution = solver.GetSolution(target, problem)
                assert_inside(problem, solution)
                assert solution.workspace_bytes == solver.GetWorkspaceSize(target, problem)
                assert math.isfinite(solver.GetWti(target, problem))


def test_columns_past_32_bits() -> None:
    """4,331,667,456 columns: each is written by a work item, and the workspace holds them all."""
    problem = ConvProblem.create("fwd", **HUGE["conv3d"])
    columns = 256 * 27 * 17 * 144 * 256
    assert columns > 2**32
    solution = REGISTRY.get("GemmFwdRest").GetSolution(GPU, problem)
    (im2col,) = [step for _, step in flat(solution.steps) if isinstance(step, KernelStep)]
    assert im2col.items == columns
    assert solution.workspace_bytes == 2 * columns


def test_image_offsets_past_32_bits() -> None:
    problem = ConvProblem.create("fwd", **HUGE["2^31 elements"])
    solution = REGISTRY.get("GemmFwdRest").GetSolution(GPU, problem)
    ((count, im2col), *_) = flat(solution.steps)
    assert isinstance(im2col, KernelStep)
    assert im2col.operands[0].advance * (count - 1) == 4096 * 2 * 512 * 512 * 2 >= 2**32


@pytest.mark.parametrize("name", [name for name in HUGE if name.endswith("patches")])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_patches_stay_one_product_however_many(direction: str, name: str) -> None:
    solver = REGISTRY.get({"fwd": "GemmFwdRest", "bwd": "GemmBwdRest", "wrw": "GemmWrwUniversal"}[direction])
    problem = ConvProblem.create(direction, **HUGE[name])
    assert solver.IsApplicable(GPU, problem)
    (step,) = solver.GetSolution(GPU, problem).steps
    assert isinstance(step, GemmStep)
    assert sorted((step.gemm.m, step.gemm.n, step.gemm.k)) == sorted(
        (problem.n, problem.k, problem.w.elements // problem.k)
    )


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp64"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_limit_is_a_matrix_dimension_of_31_bits_not_a_number_of_bytes(direction: str, dtype: str) -> None:
    solver = REGISTRY.get(
        {"fwd": "GemmFwd1x1_0_1", "bwd": "GemmBwd1x1_stride1", "wrw": "GemmWrw1x1_stride1"}[direction]
    )
    for pixels, is_fine in ((2**31 - 2, True), (2**31 - 1, True), (2**31, False)):
        for layout in ("NCHW", "NHWC"):
            problem = ConvProblem.create(direction, (1, 2, 1, pixels), (3, 2, 1, 1), dtype=dtype, layout=layout)
            answer = solver.IsApplicable(GPU, problem)
            assert bool(answer) == is_fine
            assert is_fine or (answer.reason is not None and answer.reason.name == "TOO_LARGE")
        many = ConvProblem.create(direction, (pixels, 2, 1, 1), (3, 2, 1, 1), dtype=dtype)
        assert bool(solver.IsApplicable(GPU, many)) == is_fine


def test_a_workspace_past_85_percent_of_memory_is_refused() -> None:
    problem = ConvProblem.create("fwd", (1, 8, 64, 64), (8, 8, 3, 3), pad=1)
    solver = REGISTRY.get("GemmFwdRest")
    workspace = solver.GetWorkspaceSize(GPU, problem)
    enough = dataclasses.replace(GPU, memory_bytes=-(-workspace * 100 // 85))
    assert solver.IsApplicable(enough, problem)
    answer = solver.IsApplicable(dataclasses.replace(enough, memory_bytes=enough.memory_bytes - 1), problem)
    assert answer.reason is not None and answer.reason.name == "WORKSPACE_TOO_LARGE"
    assert str(workspace) in str(answer)


@pytest.mark.slow
def test_the_image_behind_two_to_the_31_elements_is_read(device: Device) -> None:
    """4.3 GB of zeros, one image at the very end that is not: only its output may differ from zero."""
    shape = {**HUGE["2^31 elements"], "stride": 504}  # the four corners of each image
    problem = ConvProblem.create("fwd", **shape)
    needed = problem.x.nbytes + 2 * problem.y.nbytes
    if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 1.5 * needed:
        pytest.skip(f"needs {1.5 * needed / 1e9:.0f} GB of free memory")
    last = ConvProblem.create("fwd", **{**shape, "x": (1, *shape["x"][1:])})
    arrays = make_arrays(last, seed=5)
    expected = last.reference(arrays)
    x, w, y = (device.allocate(tensor.nbytes) for tensor in (problem.x, problem.w, problem.y))
    device.set_bytes(x.address, x.nbytes, 0)
    device.copy_in(x.address + x.nbytes - last.x.nbytes, arrays["x"])
    device.copy_in(w.address, arrays["w"])
    for solver in SOLVERS:
        if solver.IsApplicable(device.target, problem):
            solution = solver.GetSolution(device.target, problem)
            workspace = device.allocate(solution.workspace_bytes)
            device.set_bytes(y.address, y.nbytes, 0xFF)
            build(solution, device, problem.roles).run([x.address, w.address, y.address, workspace.address])
            out = device.as_numpy(y, problem.dtype.numpy, problem.y.lengths)
            assert not out[:-1].any(), solver.SolverDbId()
            assert tolerance.judge(last, arrays, out[-1:], expected).ok, solver.SolverDbId()
