"""The float64 reference is the adjoint of the interpolation, agrees with torch, and keeps NaN where it belongs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipfind.errors import ArrayError
from hipfind.problem import UpsampleProblem
from hipfind.problem.upsample_reference import taps, upsample_reference, upsample_reference_at
from tests.helpers.arrays import make_arrays
from tests.helpers.strategies import upsample_problems
from tests.helpers.upsampling import resize

Array = npt.NDArray[Any]


@given(problem=upsample_problems(dtypes=("fp64",), empty=False), seed=st.integers(0, 2**16))
def test_it_is_the_adjoint_of_the_interpolation(problem: UpsampleProblem, seed: int) -> None:
    """<g, U x> = <U^T g, x>, to 1e-12 of what the terms amount to."""
    gradient = make_arrays(problem, seed)["dy"]
    x = np.random.default_rng(seed).standard_normal(problem.x.lengths)
    forward, backward = resize(problem, x), upsample_reference(problem, {"dy": gradient})
    difference = float((gradient * forward).sum() - (backward * x).sum())
    assert abs(difference) <= 1e-12 * float(np.abs(gradient * forward).sum() + np.abs(backward * x).sum())


@given(problem=upsample_problems(directions=("fwd", "bwd"), empty=False), seed=st.integers(0, 2**16))
def test_single_pixels_agree_with_the_whole(problem: UpsampleProblem, seed: int) -> None:
    arrays = make_arrays(problem, seed)
    output = problem.tensor(problem.output)
    indices = np.array(list(np.ndindex(output.lengths)))[:: max(output.elements // 50, 1)]
    whole = upsample_reference(problem, arrays)[tuple(indices.T)]
    assert np.allclose(upsample_reference_at(problem, arrays, indices), whole, rtol=1e-13, atol=1e-13)


@given(problem=upsample_problems(dtypes=("fp64",), empty=False), seed=st.integers(0, 2**16))
def test_it_agrees_with_torch(problem: UpsampleProblem, seed: int) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    gradient = np.ascontiguousarray(make_arrays(problem, seed)["dy"])
    scales = [axis.scale for axis in problem.axes]
    theirs = torch.ops.aten.upsample_bilinear2d_backward(
        torch.from_numpy(gradient),
        list(problem.y.lengths[2:]),
        list(problem.x.lengths),
        problem.align_corners,
        *scales,
    ).numpy()
    # torch rounds coordinates, which here are below 2^6, and so weights by some 2^-47
    bound = 2.0**-46 * problem.reduction_length * float(np.abs(gradient).max())
    assert np.abs(upsample_reference(problem, {"dy": gradient}) - theirs).max() <= bound


@given(problem=upsample_problems(directions=("fwd",), dtypes=("fp64",), empty=False), seed=st.integers(0, 2**16))
def test_forward_it_agrees_with_torch(problem: UpsampleProblem, seed: int) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = np.ascontiguousarray(make_arrays(problem, seed)["x"])
    theirs = torch.ops.aten.upsample_bilinear2d(
        torch.from_numpy(x), list(problem.y.lengths[2:]), problem.align_corners, *(axis.scale for axis in problem.axes)
    ).numpy()
    assert np.abs(upsample_reference(problem, {"x": x}) - theirs).max() <= 2.0**-42 * float(np.abs(x).max())


@pytest.mark.parametrize("size", [(9, 5), (5, 9), (7, 3)])
def test_borders_have_the_full_weight(size: tuple[int, int]) -> None:
    """Doubling spreads every pixel's weight over 4 x 4 outputs; at the border those outside fall back on it: 4 each."""
    height, width = size
    problem = UpsampleProblem.create("bwd", (1, 1, height, width), (1, 1, 2 * height, 2 * width), dtype="fp64")
    ones = np.ones(problem.y.lengths)
    assert np.array_equal(upsample_reference(problem, {"dy": ones}), np.full(problem.x.lengths, 4.0))


def test_known_weights() -> None:
    axis = UpsampleProblem.create("bwd", (1, 1, 3, 1), (1, 1, 6, 1)).axes[0]
    before, fraction = taps(axis)
    assert before.tolist() == [0, 0, 0, 1, 1, 2]
    assert fraction.tolist() == [0.0, 0.25, 0.75, 0.25, 0.75, 0.0]
    before, fraction = taps(UpsampleProblem.create("bwd", (1, 1, 3, 1), (1, 1, 5, 1), align_corners=True).axes[0])
    assert before.tolist() == [0, 0, 1, 1, 2]
    assert fraction.tolist() == [0.0, 0.5, 0.0, 0.5, 0.0]
    before, fraction = taps(UpsampleProblem.create("bwd", (1, 1, 8, 1), (1, 1, 2, 1)).axes[0])
    assert (before.tolist(), fraction.tolist()) == ([1, 5], [0.5, 0.5])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_pixels_without_a_weight_do_not_see_what_is_not_finite(value: float) -> None:
    """Same sizes: every output has one pixel. Doubling with aligned corners: the last pixel of all has one."""
    same = UpsampleProblem.create("bwd", (1, 1, 3, 4), (1, 1, 3, 4))
    gradient = np.ones((1, 1, 3, 4))
    gradient[0, 0, 1, 2] = value
    assert np.array_equal(upsample_reference(same, {"dy": gradient}), gradient, equal_nan=True)
    doubled = UpsampleProblem.create("bwd", (1, 1, 3, 4), (1, 1, 6, 8), align_corners=True)
    gradient = np.ones((1, 1, 6, 8))
    gradient[0, 0, 5, 7] = value
    result = upsample_reference(doubled, {"dy": gradient})
    assert np.flatnonzero(~np.isfinite(result)).tolist() == [11]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_forward_what_is_not_finite_is_seen_where_it_has_a_weight(value: float) -> None:
    x = np.ones((1, 1, 3, 4))
    x[0, 0, 1, 2] = value
    same = UpsampleProblem.create("fwd", (1, 1, 3, 4), (1, 1, 3, 4))
    assert np.array_equal(upsample_reference(same, {"x": x}), x, equal_nan=True)
    corners = UpsampleProblem.create("fwd", (1, 1, 3, 4), (1, 1, 5, 7), align_corners=True)  # every second is a pixel's
    seen = np.argwhere(~np.isfinite(upsample_reference(corners, {"x": x})[0, 0])).tolist()
    assert seen == [[row, column] for row in (1, 2, 3) for column in (3, 4, 5)]


@given(problem=upsample_problems(directions=("fwd",), empty=False), seed=st.integers(0, 2**16))
def test_the_usual_size_is_that_of_random_images(problem: UpsampleProblem, seed: int) -> None:
    arrays = make_arrays(problem, seed)
    many = np.random.default_rng(seed).standard_normal((200, 1, *problem.x.lengths[2:]))
    many *= 10.0 ** np.random.default_rng(seed + 1).uniform(-1, 1, many.shape[2:])  # not all pixels are of one size
    alone = UpsampleProblem.create(
        "fwd", many.shape, (200, 1, *problem.y.lengths[2:]), align_corners=problem.align_corners, scales=problem.scales
    )
    actual = float(np.sqrt(np.square(alone.reference({"x": many})).mean()))
    assert alone.usual_size({"x": many}) == pytest.approx(actual, rel=0.35)
    assert problem.usual_size(arrays) >= 0.0


@given(problem=upsample_problems(empty=False), seed=st.integers(0, 2**16))
def test_the_usual_size_is_that_of_random_gradients(problem: UpsampleProblem, seed: int) -> None:
    arrays = make_arrays(problem, seed)
    many = np.random.default_rng(seed).standard_normal((200, 1, *problem.y.lengths[2:]))
    alone = UpsampleProblem.create(
        "bwd", (200, 1, *problem.x.lengths[2:]), many.shape, align_corners=problem.align_corners, scales=problem.scales
    )
    actual = float(np.sqrt(np.square(alone.reference({"dy": many})).mean()))
    usual = alone.usual_size({"dy": many})
    assert usual == pytest.approx(actual, rel=0.35)
    assert problem.usual_size(arrays) >= 0.0


def test_bad_arrays_are_refused() -> None:
    problem = UpsampleProblem.create("bwd", (1, 1, 3, 4), (1, 1, 6, 8))
    with pytest.raises(ArrayError, match="needs dy"):
        upsample_reference(problem, {})
    with pytest.raises(ArrayError, match=r"must have the shape \(1, 1, 6, 8\) \(got \(1, 1, 6, 9\)\)"):
        upsample_reference(problem, {"dy": np.zeros((1, 1, 6, 9))})
    arrays = {"dy": np.zeros((1, 1, 6, 8))}
    with pytest.raises(ArrayError, match="within the output"):
        upsample_reference_at(problem, arrays, np.array([[0, 0, 3, 0]]))
    with pytest.raises(ArrayError, match="shape"):
        upsample_reference_at(problem, arrays, np.array([[0, 0, 3]]))
