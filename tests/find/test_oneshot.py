"""The one-shot functions' own part: any array and size that users hand them is taken, or refused by a typed error."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

import hipfind as hf
from hipfind import settings
from hipfind.errors import ArrayError, HipfindError, ProblemError
from hipfind.problem import UpsampleProblem, tolerance
from tests.helpers.arrays import make_arrays
from tests.helpers.strategies import upsample_problems
from tests.helpers.upsampling import resize

Array = npt.NDArray[Any]
X, W, DY = (np.ones(lengths, np.float32) for lengths in ((1, 2, 6, 6), (3, 2, 3, 3), (1, 3, 4, 4)))
RESIZED = np.ones((2, 3, 18, 10), np.float32)


@pytest.fixture(scope="module", autouse=True)
def on_the_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    path = tmp_path_factory.mktemp("db") / "hipfind.db"
    with settings.override(user_db_path=str(path), device="host"):
        yield path


made_up = examples(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


# ---- gradients of resizing -------------------------------------------------------------------------------------------


def gradient_of(problem: UpsampleProblem, arrays: dict[str, Array], out: Array | None) -> Array:
    result: Array = hf.upsample_bilinear2d_backward(
        arrays["dy"], problem.x.lengths[2:], problem.align_corners, problem.scales, out=out
    )
    return result


@made_up
@given(problem=upsample_problems(max_size=20), into_out=st.booleans(), seed=st.integers(0, 2**16))
def test_any_gradient(problem: UpsampleProblem, into_out: bool, seed: int) -> None:
    """Every dtype, layout and stride, resized to more and to fewer pixels, by sizes and by scale factors."""
    arrays = make_arrays(problem, seed)
    out = gradient_of(problem, arrays, arrays["dx"] if into_out else None)
    assert (out.shape, out.dtype) == (problem.x.lengths, problem.dtype.numpy)
    assert (out is arrays["dx"]) == into_out
    assert tolerance.judge(problem, arrays, out, problem.reference(arrays)).ok


@made_up
@given(problem=upsample_problems(dtypes=("fp64",), empty=False, max_size=20), seed=st.integers(0, 2**16))
def test_it_is_the_adjoint_of_resizing(problem: UpsampleProblem, seed: int) -> None:
    """<g, U x> = <U^T g, x> to 1e-12 in fp64."""
    arrays = make_arrays(problem, seed)
    x = np.random.default_rng(seed).standard_normal(problem.x.lengths)
    forward, backward = arrays["dy"] * resize(problem, x), gradient_of(problem, arrays, None) * x
    assert abs(float(forward.sum() - backward.sum())) <= 1e-12 * float(np.abs(forward).sum() + np.abs(backward).sum())


FORMS = list(itertools.product(("contiguous_format", "channels_last"), repeat=2))


@pytest.mark.parametrize(("form", "dy_form"), FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "how",
    [{"size": (31, 9)}, {"size": (31, 9), "align_corners": True}, {"scale_factor": (1.6, 0.7)}],
    ids=["size", "corners", "scale"],
)
def test_it_is_what_torch_says_of_its_own_resizing(how: dict[str, Any], dtype: str, form: str, dy_form: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    kind = getattr(torch, dtype)
    x = torch.randn(2, 8, 20, 14, dtype=torch.float64).contiguous(memory_format=getattr(torch, form)).requires_grad_()
    y = torch.nn.functional.interpolate(x, mode="bilinear", **how)
    dy = torch.randn(y.shape).to(kind).contiguous(memory_format=getattr(torch, dy_form))
    y.backward(dy.double())
    sizes = (x.shape[2:], how.get("align_corners", False), how.get("scale_factor"))
    out = hf.upsample_bilinear2d_backward(dy, *sizes)
    assert isinstance(out, torch.Tensor) and out.dtype is kind
    assert out.is_contiguous(memory_format=getattr(torch, dy_form)), "dx lies as dy does"
    into = torch.full_like(x.detach(), float("nan"), dtype=kind)
    assert hf.upsample_bilinear2d_backward(dy, *sizes, out=into) is into and into.stride() == x.stride()
    for result in (out, into):
        error = float((result.double() - x.grad).norm() / x.grad.norm())
        assert error <= max(4 * torch.finfo(kind).eps, 1e-13), "torch rounds its coordinates"


@pytest.mark.parametrize("size", [[9, 5], np.array([9, 5]), (np.int64(9), np.int32(5))], ids=["list", "array", "numpy"])
@pytest.mark.parametrize("scales", [None, 2, np.float32(2), [2.0, None], np.array([2.0, 2.0])], ids=str)
def test_sizes_and_scales_of_any_kind(size: Any, scales: Any) -> None:
    assert np.array_equal(
        hf.upsample_bilinear2d_backward(RESIZED, size, scales=scales), np.full((2, 3, 9, 5), 4.0, np.float32)
    )


@pytest.mark.parametrize(
    ("size", "scales", "message"),
    [
        (9, None, r"input_size must be whole numbers \(got 9\)"),
        (None, None, r"input_size must be whole numbers \(got None\)"),
        ("95", None, r"input_size must be whole numbers \(got '95'\)"),
        ((9.5, 5), None, r"input_size must be whole numbers \(got \(9.5, 5\)\)"),
        (((9,), 5), None, r"input_size must be whole numbers"),
        ((9, 5, 1), None, r"input_size needs 2 numbers: height and width \(got \(9, 5, 1\)\)"),
        ((2**62, 5), None, r"height of dx times height of dy must be at most 2\^60 \(got 4611686018427387904 and 18\)"),
        ((9, 5), 0, r"scales must be finite numbers greater than 0 \(got 0\)"),
        ((9, 5), (2, -2.0), r"scales must be finite numbers greater than 0 \(got -2.0\)"),
        ((9, 5), float("inf"), r"scales must be finite numbers greater than 0 \(got inf\)"),
        ((9, 5), float("nan"), r"scales must be finite numbers greater than 0 \(got nan\)"),
        ((9, 5), (2, 2, 2), r"scales needs one number, or two for height and width"),
        ((9, 5), "twice", r"scales needs one number, or two for height and width \(got twice\)"),
        ((9, 5), (2, 1.9), r"width of dy must be .* = 9 \(got dx=\(2, 3, 9, 5\), dy=\(2, 3, 18, 10\), scale 1.9\)"),
        ((8, 5), 2, r"height of dy must be .* = 16 \(got dx=\(2, 3, 8, 5\), dy=\(2, 3, 18, 10\), scale 2"),
    ],
    ids=str,
)
def test_bad_sizes_and_scales_are_named(size: Any, scales: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        hf.upsample_bilinear2d_backward(RESIZED, size, scales=scales)


# ---- resizing --------------------------------------------------------------------------------------------------------


@made_up
@given(problem=upsample_problems(directions=("fwd",)), into_out=st.booleans(), seed=st.integers(0, 2**16))
def test_any_resize(problem: UpsampleProblem, into_out: bool, seed: int) -> None:
    """Every dtype, layout and stride, to more and to fewer pixels, by sizes and by scale factors."""
    arrays = make_arrays(problem, seed)
    out = hf.upsample_bilinear2d(
        arrays["x"], problem.y.lengths[2:], problem.align_corners, problem.scales, out=arrays["y"] if into_out else None
    )
    assert (out.shape, out.dtype) == (problem.y.lengths, problem.dtype.numpy)
    assert (out is arrays["y"]) == into_out
    assert tolerance.judge(problem, arrays, out, problem.reference(arrays)).ok


@made_up
@given(problem=upsample_problems(dtypes=("fp64",), empty=False, max_size=20), seed=st.integers(0, 2**16))
def test_a_resize_and_its_gradient_are_adjoint(problem: UpsampleProblem, seed: int) -> None:
    """<U x, g> = <x, U^T g> to 1e-12 in fp64."""
    arrays = make_arrays(problem, seed)
    x = np.random.default_rng(seed).standard_normal(problem.x.lengths)
    y = hf.upsample_bilinear2d(x, problem.y.lengths[2:], problem.align_corners, problem.scales)
    left, right = y * arrays["dy"], x * gradient_of(problem, arrays, None)
    assert abs(float(left.sum() - right.sum())) <= 1e-12 * float(np.abs(left).sum() + np.abs(right).sum())


def test_a_size_may_follow_from_scales() -> None:
    x = np.random.default_rng(1).standard_normal((1, 2, 9, 5)).astype(np.float32)
    y = hf.upsample_bilinear2d(x, scales=(1.7, 2))
    assert y.shape == (1, 2, 15, 10)
    out = np.full((1, 2, 15, 20), np.nan, np.float32)[..., ::2]
    assert hf.upsample_bilinear2d(x, scales=[1.7, 2.0], out=out) is out
    np.testing.assert_allclose(out, y, rtol=1e-5, atol=1e-6)  # by another solver
    assert not np.allclose(y, hf.upsample_bilinear2d(x, (15, 10)), atol=1e-3)


@pytest.mark.parametrize("form", ["contiguous_format", "channels_last"])
def test_a_resized_tensor_is_torchs(form: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.randn(2, 4, 6, 5, dtype=torch.float64).to(memory_format=getattr(torch, form))
    y = hf.upsample_bilinear2d(x, (11, 9), align_corners=True)
    expected = torch.nn.functional.interpolate(x, (11, 9), mode="bilinear", align_corners=True)
    torch.testing.assert_close(y, expected)
    assert y.stride() == expected.stride()


@pytest.mark.parametrize(
    ("size", "scales", "message"),
    [
        (9, None, r"output_size must be whole numbers \(got 9\)"),
        ((9, 5, 1), None, r"output_size needs 2 numbers: height and width \(got \(9, 5, 1\)\)"),
        (None, None, r"the output's size needs y or a scale for height and width"),
        (None, (2, None), r"the output's size needs y or a scale for height and width"),
        ((36, 21), 2, r"width of y must be .* = 20 \(got x=\(2, 3, 18, 10\), y=\(2, 3, 36, 21\), scale 2.0\)"),
        ((0, 5), None, r"x and y need channels and sizes of 1 or more"),
    ],
    ids=str,
)
def test_bad_output_sizes_are_named(size: Any, scales: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        hf.upsample_bilinear2d(RESIZED, size, scales=scales)


# ---- arrays, of all one-shot functions -------------------------------------------------------------------------------

CALLS = {
    "conv x": lambda bad: hf.conv(bad, W),
    "conv w": lambda bad: hf.conv(X, bad),
    "conv_bwd_data dy": lambda bad: hf.conv_bwd_data(bad, W, X.shape),
    "conv_bwd_data w": lambda bad: hf.conv_bwd_data(DY, bad, X.shape),
    "conv_bwd_weights dy": lambda bad: hf.conv_bwd_weights(bad, X, W.shape),
    "conv_bwd_weights x": lambda bad: hf.conv_bwd_weights(DY, bad, W.shape),
    "resize x": lambda bad: hf.upsample_bilinear2d(bad, (9, 5)),
    "resize out": lambda bad: hf.upsample_bilinear2d(RESIZED, (9, 5), out=bad),
    "upsample dy": lambda bad: hf.upsample_bilinear2d_backward(bad, (9, 5)),
    "upsample out": lambda bad: hf.upsample_bilinear2d_backward(RESIZED, (9, 5), out=bad),
}


@pytest.mark.parametrize("call", list(CALLS))
@pytest.mark.parametrize("bad", [[[1.0]], "array", 3], ids=repr)
def test_what_is_no_array_is_refused(call: str, bad: Any) -> None:
    with pytest.raises(ArrayError, match=rf"an array or a tensor is needed .*\(got {type(bad).__name__}\)"):
        CALLS[call](bad)


@pytest.mark.parametrize("call", [name for name in CALLS if not name.endswith(" out")])
@pytest.mark.parametrize("dtype", [np.int32, np.complex64, object, ">f4"], ids=str)
def test_dtypes_that_no_solver_takes_are_refused(call: str, dtype: Any) -> None:
    shapes = {"x": X, "w": W, "dy": RESIZED if call == "upsample dy" else DY}
    with pytest.raises(HipfindError, match=r"dtype|byte order"):
        CALLS[call](np.ones(shapes[call.split()[1]].shape, dtype))


def test_shapes_and_windows_may_be_arrays() -> None:
    expected = hf.conv(X, W, stride=(1, 1), pad=1)
    assert np.array_equal(hf.conv(X, W, stride=np.array([1, 1]), pad=np.int64(1)), expected)
    assert hf.conv_bwd_data(DY, W, np.array(X.shape)).shape == X.shape
    assert hf.conv_bwd_weights(DY, X, list(W.shape)).shape == W.shape
