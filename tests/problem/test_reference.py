"""Both float64 references against a loop over the definition, and against each other on problems of many blocks."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipfind.errors import ArrayError
from hipfind.problem import ConvProblem
from hipfind.problem import reference as module
from tests.helpers.arrays import Array, make_arrays
from tests.helpers.strategies import conv_problems

Float64Array = npt.NDArray[np.float64]
ANY_PROBLEM = conv_problems(scaling=True)


def by_definition(problem: ConvProblem, arrays: dict[str, Array]) -> Float64Array:
    """One product at a time. A transposed convolution's large image is y; its weights are [C, K/groups, ...]."""
    p = problem
    transposed = p.mode == "transpose"
    large, small = ("y", "x") if transposed else ("x", "y")
    values = {role: np.zeros(p.tensor(role).lengths) for role in p.roles}
    for role in p.inputs:
        values[role] = arrays[role].astype(np.float64)
    result = np.zeros(p.tensor(p.output).lengths)
    rows, columns = p.w.lengths[0] // p.groups, p.w.lengths[1]
    small_positions = itertools.product(*map(range, p.tensor(small).lengths[2:]))
    for position, tap in itertools.product(list(small_positions), itertools.product(*map(range, p.filter))):
        pixel = tuple(
            o * s - begin + f * d for o, s, begin, f, d in zip(position, p.stride, p.pad, tap, p.dilation, strict=True)
        )
        if any(i < 0 or i >= extent for i, extent in zip(pixel, p.tensor(large).lengths[2:], strict=True)):
            continue
        for n, group, row, column in itertools.product(range(p.n), range(p.groups), range(rows), range(columns)):
            places = {
                large: (n, group * columns + column, *pixel),
                small: (n, group * rows + row, *position),
                "w": (group * rows + row, column, *tap),
            }
            first, second = p.inputs
            result[places[p.output]] += values[first][places[first]] * values[second][places[second]]
    result *= p.alpha
    if p.beta != 0.0:
        result += p.beta * arrays[p.output].astype(np.float64)
    return result


def all_indices(lengths: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return np.array(list(np.ndindex(*lengths)), np.int64).reshape(-1, len(lengths))


def close(a: Float64Array, b: Float64Array) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@given(ANY_PROBLEM, st.integers(0, 2**32 - 1))
def test_both_references_follow_the_definition(problem: ConvProblem, seed: int) -> None:
    arrays = make_arrays(problem, seed)
    expected = by_definition(problem, arrays)
    result = problem.reference(arrays)
    assert result.dtype == np.float64
    assert result.shape == problem.tensor(problem.output).lengths
    close(result, expected)
    close(problem.reference_at(arrays, all_indices(result.shape)), expected.reshape(-1))


@given(ANY_PROBLEM, st.sampled_from([1, 7, 100, 1000]))
def test_blocks_of_any_size_give_one_result(problem: ConvProblem, block: int) -> None:
    arrays = make_arrays(problem, seed=0)
    points = all_indices(problem.tensor(problem.output).lengths)[:50]
    whole, some = problem.reference(arrays), problem.reference_at(arrays, points)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        close(problem.reference(arrays), whole)
        close(problem.reference_at(arrays, points), some)


@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
@pytest.mark.parametrize(
    "shape",
    [
        {"x": (64, 3, 14, 14), "w": (40, 3, 14, 14), "stride": 14},
        {"x": (2, 8, 30, 41), "w": (12, 4, 3, 5), "stride": (2, 3), "pad": ((1, 0), (2, 3)), "groups": 2},
        {"x": (2, 6, 20, 20), "w": (6, 1, 3, 3), "stride": (4, 6), "dilation": (6, 4), "pad": 7, "groups": 6},
        {"x": (3, 4, 5, 7, 9), "w": (4, 4, 2, 3, 4), "stride": (3, 1, 2), "dilation": (2, 3, 1), "pad": (1, 3, 0)},
        {
            "x": (2, 6, 5, 5),
            "w": (6, 2, 3, 3),
            "stride": 2,
            "pad": 1,
            "mode": "transpose",
            "output_padding": 1,
            "groups": 2,
        },
        {"x": (2, 3, 4, 4), "w": (5, 3, 1, 1), "stride": 3, "pad": 5},
        {"x": (1, 2, 40, 3), "w": (2, 2, 2, 1), "stride": (5, 1), "dilation": (30, 1), "pad": (2, 0)},
    ],
)
def test_larger_problems(shape: dict[str, Any], direction: str) -> None:
    problem = ConvProblem.create(direction, **shape)
    arrays = make_arrays(problem, seed=1)
    result = problem.reference(arrays)
    points = np.random.default_rng(2).integers(0, result.shape, (500, result.ndim))
    close(problem.reference_at(arrays, points), result[tuple(points.T)])
    assert np.abs(result).max() > 0


@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
def test_the_three_directions_are_adjoint(direction: str) -> None:
    """<dy, conv(x, w)> is one number, whichever of the three tensors is the result."""
    problem = ConvProblem.create(
        direction, (3, 6, 11, 9), (4, 3, 3, 2), stride=(2, 3), pad=(1, 2), groups=2, dtype="fp64"
    )
    rng = np.random.default_rng(0)
    arrays = {role: rng.standard_normal(problem.tensor(role).lengths) for role in problem.roles}
    forward = dataclasses.replace(problem, direction="fwd").reference(arrays)
    assert np.vdot(problem.reference(arrays), arrays[problem.output]) == pytest.approx(np.vdot(forward, arrays["y"]))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8])
def test_inputs_of_other_types_are_taken_exactly(dtype: type) -> None:
    problem = ConvProblem.create("fwd", (2, 3, 5, 4), (4, 3, 2, 2))
    rng = np.random.default_rng(0)
    arrays = {role: rng.integers(-100, 100, problem.tensor(role).lengths).astype(dtype) for role in ("x", "w")}
    wide = {role: array.astype(np.float64) for role, array in arrays.items()}
    np.testing.assert_array_equal(problem.reference(arrays), problem.reference(wide))


def test_the_former_output_is_not_read_where_beta_is_zero() -> None:
    problem = ConvProblem.create("fwd", (1, 2, 4, 4), (3, 2, 2, 2), alpha=3.0)
    arrays = make_arrays(problem, seed=0)
    assert np.isnan(arrays["y"]).all()
    assert np.isfinite(problem.reference(arrays)).all()
    close(problem.reference({role: arrays[role] for role in ("x", "w")}), problem.reference(arrays))


@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
def test_a_batch_of_zero(direction: str) -> None:
    problem = ConvProblem.create(direction, (0, 2, 4, 4), (3, 2, 2, 2), beta=0.5)
    arrays = make_arrays(problem, seed=0)
    result = problem.reference(arrays)
    np.testing.assert_array_equal(result, 0.5 * arrays[problem.output])
    points = all_indices(result.shape)
    np.testing.assert_array_equal(problem.reference_at(arrays, points), result.reshape(-1))


def test_no_points() -> None:
    problem = ConvProblem.create("fwd", (1, 2, 4, 4), (3, 2, 2, 2))
    assert problem.reference_at(make_arrays(problem, seed=0), np.zeros((0, 4), np.int64)).shape == (0,)


def test_temporaries_are_bounded() -> None:
    """Blocks tile the extents: each position once, none with more elements than a block may have."""
    for extents, unit in (((9500, 1, 1), 588 + 1280), ((64, 112, 112), 10_000), ((3, 5), 10**9), ((7,), 3)):
        seen = np.zeros(extents, np.int8)
        for block in module._blocks(extents, unit):
            seen[block] += 1
            positions = seen[block].size
            assert positions == 1 or positions * unit <= module._BLOCK
        assert (seen == 1).all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": (1, 2, 4, 4)}, r"needs w for direction fwd.*\['x'\]"),
        ({"x": (1, 2, 4, 4), "w": (3, 2, 2, 1)}, r"w must have the shape \(3, 2, 2, 2\).*\(3, 2, 2, 1\)"),
        ({"x": (1, 2, 4, 4), "w": (3, 2, 2, 2)}, "needs y"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, tuple[int, ...]], message: str) -> None:
    problem = ConvProblem.create("fwd", (1, 2, 4, 4), (3, 2, 2, 2), beta=1.0)
    with pytest.raises(ArrayError, match=message):
        problem.reference({role: np.zeros(shape) for role, shape in arrays.items()})


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([[0, 0, 0]], r"shape \[points, 4\].*\(1, 3\)"),
        ([0, 0, 0, 0], r"shape \[points, 4\]"),
        ([[0, 3, 0, 0]], r"within the output \(1, 3, 3, 3\)"),
        ([[0, 0, -1, 0]], "within the output"),
    ],
)
def test_indices_that_do_not_fit(indices: list[Any], message: str) -> None:
    problem = ConvProblem.create("fwd", (1, 2, 4, 4), (3, 2, 2, 2))
    with pytest.raises(ArrayError, match=message):
        problem.reference_at(make_arrays(problem, seed=0), np.array(indices))
