"""Right results from every Triton solver, against float64: problems of each kind with many tiles, made-up problems."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfind.problem import ConvProblem, tolerance
from hipfind.solvers.igemm.base import TritonSolver
from hipfind.solvers.igemm.tiles import TileConfig
from tests.helpers.arrays import make_arrays
from tests.helpers.interpreter import SOLVERS, InterpreterDevice
from tests.helpers.solving import run

DEVICES = {arch: InterpreterDevice(arch) for arch in ("sm_90", "gfx942")}
DTYPES: tuple[dict[str, Any], ...] = ({"dtype": "bf16"}, {"dtype": "fp16"}, {"dtype": "fp32", "compute": "tf32"})
LAYOUTS: dict[int, tuple[Any, ...]] = {
    4: ("NHWC", "NCHW", ("NHWC", "NCHW", "NCHW"), ("NCHW", "NHWC", "NHWC")),
    5: ("NDHWC", "NCDHW", ("NCDHW", "NDHWC", "NCDHW")),
}
STEM = {"x": (1, 3, 9, 11), "w": (40, 3, 5, 3), "pad": ((2, 1), (1, 1)), "stride": (1, 2)}
"""Few channels in, as in the first layer of a network on images."""
PLAIN = {"x": (2, 16, 5, 6), "w": (20, 16, 3, 3), "pad": 1}
STRIDED = {"x": (1, 16, 9, 10), "w": (20, 8, 3, 2), "pad": ((1, 0), (0, 2)), "stride": (2, 3), "dilation": (2, 1),
           "groups": 2}  # fmt: skip
MERGED = {"x": (2, 16, 5, 4), "w": (32, 4, 3, 3), "pad": 1, "groups": 4}
DEEP = {"x": (1, 8, 3, 4, 5), "w": (6, 8, 3, 3, 2), "pad": (1, 0, 1), "stride": (1, 1, 2)}
ENDS = {"x": (2, 8, 4, 3, 5), "w": (4, 8, 1, 1, 1), "pad": ((0, 1), (0, 2), (0, 1))}
"""Windows of one pixel behind the image."""
PATCHES = {"x": (2, 3, 8, 8), "w": (20, 3, 4, 4), "stride": 4}
CUBES = {"x": (2, 8, 4, 6, 6), "w": (4, 8, 2, 3, 2), "stride": (2, 3, 2)}
POINTWISE = {"x": (2, 8, 5, 6), "w": (12, 4, 1, 1), "groups": 2}
LONG_ROW = {"x": (2, 64, 6, 3), "w": (8, 64, 6, 3)}
"""Sums of 1152 forward and of 1152 outputs for weights, which are split."""
LONG_WINDOW = {"x": (1, 128, 3, 4), "w": (16, 128, 3, 3), "pad": 1}
MANY_FILTERS = {"x": (1, 8, 4, 4), "w": (1040, 8, 2, 2), "stride": 2}
MANY_FILTERS_AT_WINDOWS = {"x": (1, 16, 4, 3), "w": (272, 16, 3, 3), "pad": 1, "stride": 2}
NARROW = {"x": (2, 4, 7, 6), "w": (6, 4, 1, 1), "pad": 1}
"""Cells of one pixel: columns for the narrowest tile alone."""
MANY_PIXELS = {"x": (2, 8, 24, 28), "w": (8, 8, 3, 3), "pad": 1}
MANY_PATCHES = {"x": (2, 4, 46, 50), "w": (8, 4, 2, 2), "stride": 2}
KINDS: dict[str, tuple[dict[str, Any], ...]] = {
    "ConvTritonContractFwd": (PATCHES, CUBES, POINTWISE, LONG_ROW),
    "ConvTritonContractBwd": (PATCHES, CUBES, POINTWISE, MANY_FILTERS),
    "ConvTritonContractWrw": (PATCHES, CUBES, POINTWISE, MANY_PATCHES),
    "ConvTritonRunsFwd": (STEM, {"x": (2, 4, 6, 7), "w": (150, 4, 2, 2), "dilation": (2, 1), "pad": 1}),
    "ConvTritonIgemmFwd": (PLAIN, STRIDED, MERGED, DEEP, ENDS, LONG_WINDOW),
    "ConvTritonCellsBwd": (STEM, {"x": (2, 8, 5, 4), "w": (20, 8, 3, 3), "pad": 1, "stride": 2}, NARROW),
    "ConvTritonIgemmBwdV4R1": (PLAIN, STRIDED, MERGED, DEEP, ENDS, MANY_FILTERS_AT_WINDOWS),
    "ConvTritonIgemmBwdV4R1Dynamic": (
        {"x": (2, 16, 5, 6), "w": (32, 16, 3, 3), "pad": 1, "stride": 2},
        {"x": (1, 32, 7, 6), "w": (32, 16, 3, 2), "dilation": (2, 3), "stride": (4, 1), "groups": 2},
        {"x": (1, 16, 2, 3, 4), "w": (16, 16, 2, 3, 2), "pad": 1, "stride": (1, 2, 3)},
        MANY_FILTERS_AT_WINDOWS,
    ),
    "ConvTritonIgemmWrw": (STEM, PLAIN, STRIDED, MERGED, DEEP, ENDS, MANY_PIXELS),
}  # fmt: skip
UNSPLIT = ("ConvTritonRunsFwd", "ConvTritonCellsBwd")
DIRECTIONS = {"Fwd": "fwd", "Bwd": "bwd", "Wrw": "wrw"}


def direction_of(solver: TritonSolver) -> str:
    (direction,) = {value for name, value in DIRECTIONS.items() if name in solver.solver_id}
    return direction


def valid_configs(device: InterpreterDevice, solver: TritonSolver, problem: ConvProblem) -> list[TileConfig]:
    """Every valid config, but for how many waves and loads there are, of which the interpreter knows nothing."""
    tiles = itertools.product((1, 2, 3, 4, 6, 8), (32, 64, 128, 256), (16, 32, 64, 128, 256), (16, 32, 64, 128))
    configs = (TileConfig(m, n, k, split) for split, m, n, k in tiles)
    return [config for config in configs if solver.IsValidPerformanceConfig(device.target, problem, config)]


def configs_of(
    device: InterpreterDevice, solver: TritonSolver, problem: ConvProblem, turn: Iterator[int]
) -> list[TileConfig]:
    """The default; for each split one that is valid, another one each turn, and two more of unsplit sums."""
    found = [solver.GetDefaultPerformanceConfig(device.target, problem)]
    for split, configs in itertools.groupby(valid_configs(device, solver, problem), lambda config: config.split):
        choice = [config for config in configs if split == 1 or config.k > 32]  # long sums take long here
        found += [choice[7 * next(turn) % len(choice)] for _ in range(2 if split == 1 else 1)]
    return list(dict.fromkeys(found))


def check(device: InterpreterDevice, solver: TritonSolver, problem: ConvProblem, configs: list[TileConfig]) -> None:
    arrays = make_arrays(problem, 1)
    expected = problem.reference(arrays)
    for config in configs:
        out = run(device, solver.GetSolution(device.target, problem, config), problem, arrays)
        verdict = tolerance.judge(problem, arrays, out, expected)
        assert verdict.ok, f"{solver.solver_id} {config} is wrong: {verdict} for {problem.key()}"


def test_every_solver_has_its_kinds_of_problems() -> None:
    assert [solver.solver_id for solver in SOLVERS] == list(KINDS)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.solver_id)
def test_each_kind_of_problem_with_many_tiles(solver: TritonSolver) -> None:
    """Every kind in half of the layouts, with element types and targets in turn."""
    turns, turn = zip(itertools.cycle(DTYPES), itertools.cycle(DEVICES.values())), itertools.count()
    splits = set()
    for number, kind in enumerate(KINDS[solver.solver_id]):
        taken = 0
        for layout in LAYOUTS[len(kind["x"])][number % 2 :: 2]:
            dtype, device = next(turns)
            problem = ConvProblem.create(direction_of(solver), layout=layout, **kind, **dtype)
            if solver.IsApplicable(device.target, problem):
                taken += 1
                configs = configs_of(device, solver, problem, turn)
                splits |= {config.split for config in configs}
                check(device, solver, problem, configs)
        assert taken, f"{solver.solver_id} takes {kind} in no layout"
    assert len(splits) > 2 or solver.solver_id in UNSPLIT


@st.composite
def problems(draw: st.DrawFn) -> ConvProblem:
    """Convolutions that some Triton solver takes: 2D and 3D, packed in any layouts, all with few results."""
    ndim, groups = draw(st.sampled_from((2, 2, 3))), draw(st.sampled_from((1, 1, 2, 4)))
    channels = (1, 3, 4, 8, 16, 20) if groups == 1 else (4, 5, 8, 16)
    c, k = (groups * draw(st.sampled_from(channels)) for _ in range(2))

    def each(*values: int) -> tuple[int, ...]:
        return tuple(draw(st.sampled_from(values)) for _ in range(ndim))

    results = each(1, 2, 3, 5) if ndim == 2 else each(1, 2, 3)
    taps, stride, dilation, before, after = each(1, 2, 3), each(1, 1, 2, 3), each(1, 1, 2), each(0, 0, 1, 2), each(0, 1)
    image = tuple(
        max((count - 1) * step + spread * (tap - 1) + 1 - begin - end + draw(st.integers(0, step - 1)), 1)
        for count, step, spread, tap, begin, end in zip(results, stride, dilation, taps, before, after, strict=True)
    )
    dtype = draw(st.sampled_from(DTYPES))
    layout = draw(st.sampled_from(LAYOUTS[ndim + 2]))
    return ConvProblem.create(
        "fwd", (draw(st.integers(1, 2)), c, *image), (k, c // groups, *taps), stride=stride, dilation=dilation,
        pad=tuple(zip(before, after, strict=True)), groups=groups, layout=layout, **dtype,
    )  # fmt: skip


@settings(max_examples=20)
@given(problem=problems(), arch=st.sampled_from(tuple(DEVICES)), place=st.floats(0.0, 1.0, exclude_max=True))
@pytest.mark.parametrize("direction", DIRECTIONS.values())
def test_any_problem(direction: str, problem: ConvProblem, arch: str, place: float) -> None:
    """With the default and one other config, any that is valid."""
    device = DEVICES[arch]
    problem = dataclasses.replace(problem, direction=direction).canonical()
    takers = [solver for solver in SOLVERS if solver.IsApplicable(device.target, problem)]
    assert takers
    for solver in takers:
        configs = valid_configs(device, solver, problem)
        default = solver.GetDefaultPerformanceConfig(device.target, problem)
        check(device, solver, problem, [default, configs[int(place * len(configs))]])


def test_the_interpreters_products_of_bf16_are_right() -> None:
    """What the helper does in the interpreter's place is no rounding to bf16 or worse: a long sum of like numbers."""
    problem = ConvProblem.create("fwd", (1, 512, 1, 1), (32, 512, 1, 1), dtype="bf16")
    arrays = make_arrays(problem, 1)
    for array in (arrays["x"], arrays["w"]):
        array[...] = np.abs(array)
    (solver,) = (one for one in SOLVERS if one.solver_id == "ConvTritonContractFwd")
    out = run(DEVICES["sm_90"], solver.GetSolution(DEVICES["sm_90"].target, problem), problem, arrays)
    expected = problem.reference(arrays)
    assert np.abs(out.astype(np.float64) / expected - 1.0).max() <= 2.0**-8
