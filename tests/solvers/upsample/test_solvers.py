"""What the upsampling solvers hand out and refuse, and how they rank."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hipfind.invokers.steps import ClearStep, KernelStep, flat
from hipfind.problem import ConvProblem, UpsampleProblem
from hipfind.solvers.reasons import Reason
from hipfind.solvers.registry import AnySolver, default_registry
from hipfind.target import known

HOST, GPU = known("x86_64"), known("sm_90")
SOLVERS = {solver.SolverDbId(): solver for solver in default_registry().for_operation("upsample")}
SIZES = {"x": (2, 3, 9, 5), "y": (2, 3, 18, 10)}


def create(direction: str = "bwd", **more: Any) -> UpsampleProblem:
    return UpsampleProblem.create(direction, **{**SIZES, **more})


def words(name: str, problem: UpsampleProblem, target: Any = GPU) -> list[str]:
    solver = SOLVERS[name]
    answer = solver.IsApplicable(target, problem)
    assert answer, f"{name} refuses {problem}: {answer}"
    steps = flat(solver.GetSolution(target, problem).steps)
    return ["clear" if isinstance(step, ClearStep) else step.kernel.entry for _, step in steps if _is_plain(step)]


def _is_plain(step: object) -> bool:
    return isinstance(step, (ClearStep, KernelStep))


def refusal(solver: AnySolver, problem: Any, target: Any = GPU) -> Reason | None:
    return solver.IsApplicable(target, problem).reason


def test_steps_of_each_solver() -> None:
    problem = create()
    assert words("UpsampleBwdBlock", problem) == ["upsample_block"]
    assert words("UpsampleBwdGather", problem) == ["upsample_tables", "upsample_gather"]
    assert words("UpsampleBwdSeparable", problem) == ["upsample_tables", "upsample_rows", "upsample_columns"]
    assert words("UpsampleBwdScatter", problem) == ["clear", "upsample_scatter"]
    assert words("UpsampleBwdScatter", create(dtype="bf16")) == ["clear", "upsample_scatter", "sum_partials"]
    assert words("UpsampleBwdScatter", create(x_strides=(300, 100, 11, 2)))[-1] == "sum_partials"
    assert words("UpsampleBwdWhole", create()) == ["upsample_whole_first"]
    assert words("UpsampleBwdWhole", create(layout="NHWC")) == ["upsample_whole_last"]
    assert words("UpsampleBwdWhole", create(x=(2, 3, 8, 4), y=(2, 3, 4, 2))) == ["upsample_half"]
    assert words("UpsampleEmptyBatch", create(x=(0, 3, 9, 5), y=(0, 3, 18, 10))) == []


def test_a_window_for_one_group_needs_no_workspace_and_one_for_many_sums_up() -> None:
    block = SOLVERS["UpsampleBwdBlock"]
    assert block.GetWorkspaceSize(GPU, create()) == 0
    one = UpsampleProblem.create("bwd", (1, 2, 1, 1), (1, 2, 1024, 1024))
    assert words("UpsampleBwdBlock", one) == ["upsample_block", "sum_partials"]
    assert block.GetWorkspaceSize(GPU, one) % (one.x.elements * 4) == 0
    assert block.GetWorkspaceSize(GPU, one) >= GPU.compute_units * 4


def test_refusals() -> None:
    for solver in SOLVERS.values():
        assert refusal(solver, ConvProblem.create("bwd", (1, 1, 3, 3), (1, 1, 2, 2))) is Reason.OPERATION
        if solver.SolverDbId() != "UpsampleEmptyBatch":
            way = "fwd" if "Fwd" in solver.SolverDbId() else "bwd"
            assert refusal(solver, create("bwd" if way == "fwd" else "fwd")) is Reason.DIRECTION
            assert refusal(solver, create(way, x=(0, 3, 9, 5), y=(0, 3, 18, 10))) is Reason.EMPTY
            assert refusal(solver, create(way), dataclasses.replace(HOST, kernels=False)) is Reason.NO_COMPILER
            assert refusal(solver, create(way), dataclasses.replace(GPU, max_items=10)) is Reason.TOO_LARGE
            huge = create(way, x=(1, 1, 2**30, 1), y=(1, 1, 2**30, 1))
            assert refusal(solver, huge) is Reason.TOO_LARGE
    assert refusal(SOLVERS["UpsampleEmptyBatch"], create()) is Reason.NOT_EMPTY
    scattered = create(y_strides=(540, 180, 1, 18))
    assert refusal(SOLVERS["UpsampleBwdBlock"], scattered) is Reason.LAYOUT
    assert refusal(SOLVERS["UpsampleBwdSeparable"], scattered) is Reason.LAYOUT
    assert refusal(SOLVERS["UpsampleBwdBlock"], create(x=(1, 7001, 2, 2), y=(1, 7001, 4, 4), layout="NHWC")) is (
        Reason.TOO_LARGE
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {"y": (2, 3, 18, 15)},
        {"y": (2, 3, 45, 25)},
        {"y": (2, 3, 27, 15), "align_corners": True},
        {"x": (2, 3, 1, 5), "y": (2, 3, 2, 10), "align_corners": True},
        {"x": (2, 3, 8, 5), "y": (2, 3, 4, 2), "scales": 0.5},
        {"scales": (2.1, 2.0)},
    ],
    ids=str,
)
def test_whole_scales_only(attributes: dict[str, Any]) -> None:
    """Two scales, one without a kernel, corners that move windows, odd halves, a factor that is not what sizes say."""
    assert refusal(SOLVERS["UpsampleBwdWhole"], create(**attributes)) is Reason.SCALE


def test_rows_of_whole_scales_are_counted_in_32_bits() -> None:
    far = create(x=(1, 1, 2, 2), y=(1, 1, 4, 4), y_strides=(2**40, 2**40, 2**30, 1))
    assert refusal(SOLVERS["UpsampleBwdWhole"], far) is Reason.TOO_LARGE


@pytest.mark.parametrize(("layout", "entry"), [("NCHW", "upsample_whole_first"), ("NHWC", "upsample_whole_last")])
def test_groups_share_large_windows_where_there_are_few_pixels(layout: str, entry: str) -> None:
    few, many = (UpsampleProblem.create("bwd", (n, 3, 32, 32), scales=32, dtype="bf16", layout=layout) for n in (1, 64))
    assert words("UpsampleBwdWhole", few) == ["upsample_whole_group"]
    assert words("UpsampleBwdWhole", many) == words("UpsampleBwdWhole", few, HOST) == [entry]


def test_only_the_scatter_is_refused_where_a_gpu_must_be_deterministic() -> None:
    problem = create(deterministic=True)
    refused = {
        name: refusal(solver, problem)
        for name, solver in SOLVERS.items()
        if "Fwd" not in name and not solver.IsApplicable(GPU, problem)
    }
    assert refused.pop("UpsampleEmptyBatch") is Reason.NOT_EMPTY
    assert refused == {"UpsampleBwdScatter": Reason.DETERMINISTIC}
    assert SOLVERS["UpsampleBwdScatter"].IsApplicable(HOST, problem), "a host thread scatters whole planes"


@pytest.mark.parametrize("arch", ["x86_64", "sm_90", "gfx942"])
@pytest.mark.parametrize(
    ("dx", "out"),
    [
        ((4, 256, 64, 64), (128, 128)),
        ((1, 3, 32, 32), (1024, 1024)),
        ((8, 256, 32, 32), (512, 512)),
        ((2, 19, 128, 256), (1024, 2048)),
        ((8, 128, 256, 256), (128, 128)),
    ],
)
def test_the_scatter_is_never_expected_to_win(arch: str, dx: tuple[int, ...], out: tuple[int, int]) -> None:
    """B63, before anything was measured."""
    for layout in ("NCHW", "NHWC"):
        problem = UpsampleProblem.create("bwd", dx, (*dx[:2], *out), layout=layout)
        expected = {
            name: solver.GetExpectedTime(known(arch), problem)
            for name, solver in SOLVERS.items()
            if solver.IsApplicable(known(arch), problem)
        }
        assert min(expected, key=lambda name: expected[name]) != "UpsampleBwdScatter"
        floor = problem.min_bytes / (known(arch).bandwidth_gbs * 1e9) * 1e3
        assert all(time >= floor for time in expected.values()), "faster than memory"
