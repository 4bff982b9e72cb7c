"""The naive direct solvers: every tile shape, right results on hard data, honest costs, few refusals."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipfind.device.base import Device
from hipfind.problem import ConvProblem
from hipfind.solvers.direct.naive_bwd import ConvDirectNaiveConvBwd
from hipfind.solvers.direct.naive_fwd import ConvDirectNaiveConvFwd
from hipfind.solvers.direct.naive_wrw import ConvDirectNaiveConvWrw
from hipfind.solvers.reasons import Reason
from hipfind.target import KNOWN_TARGETS, Target, known
from tests.helpers.arrays import make_arrays
from tests.helpers.solving import check_all, solve
from tests.helpers.strategies import conv_problems

SOLVERS = {
    "fwd": ConvDirectNaiveConvFwd(),
    "bwd": ConvDirectNaiveConvBwd(),
    "wrw": ConvDirectNaiveConvWrw(),
}
DTYPES = ("fp32", "fp16", "bf16", "fp64")
GPU = known("gfx942")

made_up = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def solved(device: Device, target: Target, problem: ConvProblem, arrays: dict[str, Any]) -> Any:
    """The output, in float64, of the solution for ``target`` run on ``device``: tiles differ by target."""
    return solve(device, SOLVERS[problem.direction], problem, arrays, target=target).astype(np.float64)


def tile_of(target: Target, problem: ConvProblem) -> tuple[str, str]:
    step = SOLVERS[problem.direction].GetSolution(target, problem).steps[0]
    defines = dict(step.kernel.defines)
    return defines["TILE_CHANNELS"], defines["TILE_POINTS"]


@made_up
@given(problem=conv_problems(scaling=True, modes=("convolution",), empty=False), seed=st.integers(0, 99))
def test_the_tile_of_a_gpu_thread_gives_right_results(problem: ConvProblem, seed: int, device: Device) -> None:
    """The very code that a GPU runs, one output an item, compiled for the device at hand."""
    assert tile_of(GPU, problem) == ("1", "1")

    assert check_all(device, [SOLVERS[problem.direction]], problem, seed, target=GPU)


SHAPES = {
    "many channels, long rows": {"x": (2, 21, 3, 75), "w": (37, 21, 2, 3), "pad": 1},
    "many channels, short rows": {"x": (5, 19, 4, 5), "w": (18, 19, 3, 2), "stride": (2, 1)},
    "one point": {"x": (70, 9, 4, 3), "w": (17, 9, 4, 3)},
    "some channels": {"x": (2, 6, 5, 150), "w": (9, 2, 3, 3), "groups": 3, "pad": (0, 2), "stride": (1, 2)},
    "depthwise": {"x": (3, 5, 7, 140), "w": (5, 1, 3, 5), "groups": 5, "pad": (1, 2)},
    "depthwise, dilated, strided": {
        "x": (3, 4, 9, 9), "w": (8, 1, 3, 3), "groups": 4, "stride": (3, 2), "dilation": 2, "pad": 3,
    },
    "three dimensions": {"x": (2, 8, 4, 5, 40), "w": (16, 8, 2, 3, 3), "pad": ((1, 0), (0, 1), (2, 1))},
    "stride larger than the filter": {"x": (2, 9, 11, 50), "w": (9, 9, 2, 2), "stride": (5, 7)},
    "more padding than image": {"x": (1, 8, 1, 2), "w": (8, 8, 3, 3), "pad": 4},
}  # fmt: skip


@pytest.mark.parametrize("direction", SOLVERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_full_and_partial_tiles(name: str, dtype: str, direction: str, device: Device) -> None:
    for last in (False, True):
        layout = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}[len(SHAPES[name]["x"])][last]
        problem = ConvProblem.create(direction, **SHAPES[name], dtype=dtype, layout=layout)
        assert check_all(device, [SOLVERS[direction]], problem)


def test_the_shapes_above_use_every_host_tile() -> None:
    host = known("x86_64")
    problems = [ConvProblem.create(direction, **shape) for shape in SHAPES.values() for direction in SOLVERS]
    assert {tile_of(host, problem) for problem in problems} == {("16", "32"), ("4", "64"), ("1", "128")}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("target", [known("x86_64"), GPU], ids=["host tile", "gpu tile"])
def test_a_million_terms_are_summed_without_loss(dtype: str, target: Target, device: Device) -> None:
    """Numbers of one sign: a plain fp32 sum loses a part of every term once it has grown, 1e-3 and more in the end."""
    problem = ConvProblem.create("wrw", (4, 1, 512, 512), (1, 1, 1, 1), dtype=dtype)
    arrays = make_arrays(problem, 0)
    rng = np.random.default_rng(0)
    for role in ("x", "y"):
        arrays[role][...] = (0.1 + 0.01 * rng.random(arrays[role].shape)).astype(arrays[role].dtype)
    expected = problem.reference(arrays)
    error = abs(solved(device, target, problem, arrays) / expected - 1).max()
    assert error < {"fp32": 3e-6, "bf16": 2.0**-8}[dtype]


@pytest.mark.parametrize("direction", SOLVERS)
@pytest.mark.parametrize("target", [known("x86_64"), GPU], ids=["host tile", "gpu tile"])
def test_infinity_stays_infinity_and_nan_stays_nan(direction: str, target: Target, device: Device) -> None:
    """Also when many partial sums follow: keeping rounding errors must not make NaN of infinity."""
    problem = ConvProblem.create(direction, (16, 80, 4, 4), (80, 80, 3, 3), dtype="fp32")
    first, second = problem.inputs
    for value in (np.inf, -np.inf, np.nan):
        arrays = make_arrays(problem, 0)
        arrays[second][...] = 1.0
        arrays[first][(0,) * 4] = value
        expected = problem.reference(arrays)
        out = solved(device, target, problem, arrays)
        assert np.array_equal(np.isnan(out), np.isnan(expected))
        assert np.array_equal(np.isinf(out) * np.sign(out), np.isinf(expected) * np.sign(expected), equal_nan=True)


@pytest.mark.parametrize("direction", SOLVERS)
def test_too_large_sums_become_infinite(direction: str, device: Device) -> None:
    problem = ConvProblem.create(direction, (2, 80, 4, 4), (80, 80, 3, 3), dtype="fp16")
    arrays = make_arrays(problem, 0)
    for role in problem.inputs:
        arrays[role][...] = 200.0
    assert np.isposinf(solved(device, device.target, problem, arrays)).any()


@pytest.mark.parametrize("direction", SOLVERS)
def test_beta_0_never_reads_the_output_and_other_betas_do(direction: str, device: Device) -> None:
    for alpha, beta in ((1.0, 0.0), (0.5, 0.0), (0.0, 2.0), (-2.0, 1.0)):
        problem = ConvProblem.create(direction, (2, 3, 6, 6), (4, 3, 3, 3), pad=1, alpha=alpha, beta=beta)
        assert check_all(device, [SOLVERS[direction]], problem)


@pytest.mark.parametrize("direction", SOLVERS)
def test_results_do_not_depend_on_how_often_or_beside_whom_they_are_computed(direction: str, device: Device) -> None:
    problem = ConvProblem.create(direction, (3, 40, 12, 12), (40, 40, 3, 3), pad=1)
    arrays = make_arrays(problem, 4)
    first = solved(device, device.target, problem, arrays)
    assert all(np.array_equal(solved(device, device.target, problem, arrays), first) for _ in range(5))


@given(problem=conv_problems(modes=("convolution",), empty=False))
def test_flops_are_those_of_products_inside_the_image(problem: ConvProblem) -> None:
    inside = 1
    for axis in range(problem.ndim):
        inside *= sum(
            0 <= o * problem.stride[axis] + tap * problem.dilation[axis] - problem.pad[axis] < problem.in_spatial[axis]
            for o, tap in itertools.product(range(problem.out_spatial[axis]), range(problem.filter[axis]))
        )
    (step,) = SOLVERS[problem.direction].GetSolution(GPU, problem).steps
    assert step.flops == 2 * problem.n * problem.k * problem.c // problem.groups * inside
    assert step.bytes == problem.min_bytes


@given(problem=conv_problems(modes=("convolution",), empty=False))
def test_items_cover_the_output_once(problem: ConvProblem) -> None:
    """On a GPU an item is an output; on the host tiles hold at least as many outputs as there are."""
    outputs = problem.tensor(problem.output).elements
    (gpu,) = SOLVERS[problem.direction].GetSolution(GPU, problem).steps
    (host,) = SOLVERS[problem.direction].GetSolution(known("x86_64"), problem).steps
    channels, points = (int(number) for number in tile_of(known("x86_64"), problem))
    assert outputs <= gpu.items < 2 * outputs + 1 and host.items * channels * points >= outputs


@given(problem=conv_problems(scaling=True, attributes=True))
def test_only_direction_dtype_emptiness_and_a_missing_compiler_are_refused(problem: ConvProblem) -> None:
    canonical = problem.canonical()
    for target in KNOWN_TARGETS:
        for direction, solver in SOLVERS.items():
            answer = solver.IsApplicable(target, canonical)
            if direction != canonical.direction:
                assert answer.reason is Reason.DIRECTION
            elif not canonical.is_empty:
                assert answer, answer
            without = solver.IsApplicable(dataclasses.replace(target, kernels=False), canonical)
            assert not without
            if answer:
                assert without.reason is Reason.NO_COMPILER


@pytest.mark.parametrize("result", ["int8", "int32", "fp32"])
def test_int8_is_refused(result: str) -> None:
    problem = ConvProblem.create("fwd", (1, 4, 5, 5), (4, 4, 3, 3), dtype=("int8", "int8", result))
    assert SOLVERS["fwd"].IsApplicable(GPU, problem).reason is Reason.DTYPE


def test_counts_beyond_64_bits_are_exact() -> None:
    """Python ints all the way: 2^50 outputs, more than 2^63 operations."""
    side = 1 << 10
    problem = ConvProblem.create("fwd", (1 << 20, 1024, side, side), (1024, 1024, 3, 3), pad=1)
    (step,) = SOLVERS["fwd"].GetSolution(GPU, problem).steps
    assert step.items == 1 << 50
    assert step.flops == 2 * (1 << 40) * (3 * side - 2) ** 2 > 1 << 63


@pytest.mark.parametrize("target", KNOWN_TARGETS, ids=lambda target: target.arch)
@pytest.mark.parametrize("direction", SOLVERS)
def test_it_expects_to_be_slow(direction: str, target: Target) -> None:
    problem = ConvProblem.create(direction, (32, 64, 56, 56), (64, 64, 3, 3), pad=1)
    assert 0.0 < SOLVERS[direction].GetWti(target, problem) <= 0.1
