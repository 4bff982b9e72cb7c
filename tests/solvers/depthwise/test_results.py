"""Right results from the depthwise solvers: made-up problems, all configs, odd addresses, what is not finite."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hipfind.device.base import Device
from hipfind.invokers.invoker import build
from hipfind.invokers.steps import WORKSPACE
from hipfind.problem import ConvProblem, tolerance
from hipfind.solvers.depthwise.base import DepthwiseSolver
from hipfind.solvers.depthwise.bwd import ConvDirectDepthwiseBwd
from hipfind.solvers.depthwise.fwd import ConvDirectDepthwiseFwd
from hipfind.solvers.depthwise.wrw import ConvDirectDepthwiseWrw
from hipfind.target import Target, known
from tests.helpers.arrays import make_arrays
from tests.helpers.solving import check_all, run

SOLVERS: dict[str, DepthwiseSolver] = {
    "fwd": ConvDirectDepthwiseFwd(),
    "bwd": ConvDirectDepthwiseBwd(),
    "wrw": ConvDirectDepthwiseWrw(),
}
GPUS = (known("sm_90"), known("gfx942"))
GPU = GPUS[0]

made_up = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def depthwise(draw: st.DrawFn) -> ConvProblem:
    """Any filter, stride, padding and dilation, images from one result to a few tiles."""
    c = draw(st.sampled_from((1, 2, 3, 5, 8, 16, 24)))

    def pair(*values: int) -> tuple[int, int]:
        return draw(st.sampled_from(values)), draw(st.sampled_from(values))

    taps, stride = pair(1, 2, 3, 5, 7), pair(1, 1, 2, 3)
    dilation = pair(1, 1, 1, 2)
    pads = (pair(0, 1, 2, 3), pair(0, 1, 2, 3))
    results = pair(1, 2, 5, 8, 12, 17)
    image = tuple(
        max((count - 1) * step + spread * (tap - 1) + 1 - sum(pad) + draw(st.integers(0, step - 1)), 1)
        for count, step, spread, tap, pad in zip(results, stride, dilation, taps, pads, strict=True)
    )
    if any(
        size + sum(pad) < spread * (tap - 1) + 1
        for size, pad, spread, tap in zip(image, pads, dilation, taps, strict=True)
    ):
        pads = ((0, 0), (0, 0))
        image = tuple(spread * (tap - 1) + 1 for spread, tap in zip(dilation, taps, strict=True))
    return ConvProblem.create(
        draw(st.sampled_from(tuple(SOLVERS))), (draw(st.integers(1, 3)), c, *image), (c, 1, *taps), stride=stride,
        pad=pads, dilation=dilation, groups=c, layout=draw(st.sampled_from(("NCHW", "NHWC"))),
        dtype=draw(st.sampled_from(("fp32", "bf16", "fp16", "fp64"))),
    )  # fmt: skip


@made_up
@given(problem=depthwise(), seed=st.integers(0, 2**16))
def test_any_depthwise_problem(problem: ConvProblem, seed: int, device: Device) -> None:
    assert check_all(device, SOLVERS.values(), problem, seed) == [SOLVERS[problem.direction].solver_id]


ODD_TILE = ConvProblem.create("fwd", (1, 2, 1, 6), (2, 1, 1, 3), pad=((0, 0), (1, 0)), groups=2, layout="NHWC")
"""A row of pairs, read under a mask, of which one compiler made wrong vectors."""


@made_up
@given(problem=depthwise(), seed=st.integers(0, 2**16))
@example(problem=ODD_TILE, seed=0)
@pytest.mark.parametrize("target", GPUS, ids=lambda target: target.arch)
def test_solutions_made_for_gpus(target: Target, problem: ConvProblem, seed: int, device: Device) -> None:
    names = check_all(device, SOLVERS.values(), problem, seed, target=target)
    assert names == [SOLVERS[problem.direction].solver_id] or max(problem.dilation) > 1


SMALL: tuple[dict[str, Any], ...] = (
    {"x": (2, 4, 14, 12), "w": (4, 1, 3, 3), "pad": 1, "groups": 4, "dtype": "bf16"},
    {"x": (2, 4, 13, 16), "w": (4, 1, 3, 3), "pad": ((1, 0), (0, 1)), "stride": 2, "groups": 4},
)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("shape", SMALL, ids=["stride 1", "stride 2"])
@pytest.mark.parametrize("direction", SOLVERS)
def test_every_config_gives_the_same_result(direction: str, shape: dict[str, Any], layout: str, device: Device) -> None:
    """Every tile that is searched, each with one of its depths in turn."""
    problem = ConvProblem.create(direction, layout=layout, **shape)
    solver, arrays = SOLVERS[direction], make_arrays(problem, 1)
    expected = problem.reference(arrays)
    by_tile = itertools.groupby(
        solver.Search(GPU, problem), lambda config: (config.rows, config.columns, config.channels)
    )
    groups = [list(configs) for _, configs in by_tile]
    assert len(groups) > 10
    for number, configs in enumerate(groups[:: 1 + len(groups) // 14]):
        config = configs[number % len(configs)]
        out = run(device, solver.GetSolution(GPU, problem, config), problem, arrays)
        assert tolerance.judge(problem, arrays, out, expected).ok, config


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("direction", SOLVERS)
def test_odd_addresses(direction: str, layout: str, device: Device) -> None:
    """Tensors that are less aligned than the packs that a thread reads at once."""
    problem = ConvProblem.create(direction, (2, 8, 12, 16), (8, 1, 3, 3), pad=1, groups=8, layout=layout, dtype="bf16")
    arrays = make_arrays(problem, 1)
    expected = problem.reference(arrays)
    solution = SOLVERS[direction].GetSolution(GPU, problem)
    contents = {role: np.array(arrays[role].base) for role in problem.roles}
    contents[WORKSPACE] = np.zeros(max(solution.workspace_bytes, 8), np.uint8)
    size = problem.dtype.itemsize
    memories = {name: device.allocate(array.nbytes + size) for name, array in contents.items()}
    offset = {name: 0 if name == WORKSPACE else size for name in contents}
    for name, array in contents.items():
        device.copy_in(memories[name].address + offset[name], array.view(np.uint8))
    build(solution, device, problem.roles).run([memories[name].address + offset[name] for name in contents])
    device.synchronize()
    output = problem.tensor(problem.output)
    whole = device.as_numpy(memories[problem.output], np.uint8, (output.nbytes + size,))
    flat = whole[size:].copy().view(output.dtype.numpy)
    out = np.ndarray(output.lengths, output.dtype.numpy, flat, 0, [stride * size for stride in output.strides])
    assert tolerance.judge(problem, arrays, out, expected).ok


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("direction", SOLVERS)
@pytest.mark.parametrize("target", [None, GPU], ids=["own", "gpu"])
def test_what_is_not_finite_stays_where_it_belongs(
    target: Target | None, direction: str, layout: str, value: float, device: Device
) -> None:
    """One bad element at a corner or an edge reaches the outputs that have a product with it, and no others."""
    problem = ConvProblem.create(direction, (1, 8, 9, 11), (8, 1, 5, 3), pad=(2, 1), groups=8, layout=layout)
    solution = SOLVERS[direction].GetSolution(target or device.target, problem)
    for role, other in (problem.inputs, problem.inputs[::-1]):
        last = tuple(length - 1 for length in problem.tensor(role).lengths)
        for place in ((0, 0, 0, 0), (0, 0, last[2], 0), last, (0, 0, 3, last[3])):
            arrays = make_arrays(problem, 1)
            marks = {name: np.zeros_like(array) for name, array in arrays.items()}
            marks[role][place] = marks[other][...] = 1
            arrays[role][place] = value
            depends = problem.reference(marks) != 0
            assert np.array_equal(~np.isfinite(run(device, solution, problem, arrays)), depends), (role, place)
