"""The error measure fails what must fail, and the limit divides right results from results rounded too often."""

from __future__ import annotations

import dataclasses
import math

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hipfind.errors import ArrayError
from hipfind.problem import ConvProblem, DType
from hipfind.problem.tolerance import check, judge, limit, relative_error
from tests.helpers.arrays import make_arrays

FLOATS = [dtype for dtype in DType if dtype.is_float]


def batch_sum(terms: npt.NDArray[np.float32], dtype: npt.DTypeLike) -> npt.NDArray[np.float64]:
    """Sum over the first axis in a row, kept in ``dtype`` after each term."""
    total = np.zeros(terms.shape[1:], dtype)
    for term in terms:
        total = (total.astype(np.float32) + term).astype(dtype)
    return total.astype(np.float64)


def test_the_error_is_relative_to_the_reference() -> None:
    ref = np.array([3.0, 4.0])
    assert relative_error(np.array([3.0, 4.0], np.float32), ref) == 0.0
    assert relative_error(np.array([3.0, 4.5]), ref) == pytest.approx(0.1)
    assert relative_error(np.zeros(2), ref) == 1.0
    assert relative_error(np.array([0.3, 0.4]), np.zeros(2)) == pytest.approx(0.5)
    assert relative_error(np.zeros((2, 0)), np.zeros((2, 0))) == 0.0
    assert relative_error(np.zeros(2), np.zeros(2)) == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_fails(bad: float) -> None:
    out, ref = np.ones(1000), np.ones(1000)
    out[777] = bad
    verdict = check(out, ref, DType.FP32, 1)
    assert math.isnan(verdict.error)
    assert not verdict.ok
    assert math.isnan(relative_error(np.array([bad]), np.zeros(1)))


def test_a_reference_that_is_not_finite_must_be_matched() -> None:
    ref = np.array([math.inf, math.nan, 2.0])
    assert relative_error(np.array([math.inf, math.nan, 2.0]), ref) == 0.0
    assert relative_error(np.array([math.inf, math.nan, 3.0]), ref) == 0.5
    for wrong in (
        [-math.inf, math.nan, 2.0],
        [math.inf, 1.0, 2.0],
        [1.0, math.nan, 2.0],
        [math.inf, math.nan, math.inf],
    ):
        assert math.isnan(relative_error(np.array(wrong), ref))
        assert not check(np.array(wrong), ref, DType.FP32, 1, usual_size=1.0).ok
    assert check(ref, ref, DType.FP32, 1, usual_size=1.0).ok


def test_one_unwritten_element_fails_in_every_dtype() -> None:
    for dtype in FLOATS:
        out = np.ones((64, 64), dtype.numpy)
        out[5, 7] = np.nan
        assert not check(out, np.ones((64, 64)), dtype, 64).ok


def test_different_shapes() -> None:
    with pytest.raises(ArrayError, match=r"shape \(2, 3\).*\(3, 2\)"):
        relative_error(np.zeros((3, 2)), np.zeros((2, 3)))


@given(hnp.arrays(np.float64, 5, elements=st.floats(-1e300, 1e300)), st.sampled_from([1e-300, 1.0, 1e300]))
def test_norms_neither_overflow_nor_vanish(ref: npt.NDArray[np.float64], scale: float) -> None:
    with np.errstate(over="ignore"):
        ref = np.clip(ref * scale, -1e300, 1e300)
    error = relative_error(-ref, ref)
    assert error == pytest.approx(2.0 if ref.any() else 0.0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("length", [1, 9, 588, 9500])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_a_sum_in_a_row_that_is_rounded_once_is_right(dtype: DType, length: int, offset: float) -> None:
    rng = np.random.default_rng(length)
    a, b = (rng.standard_normal((length, 64)) + offset for _ in range(2))
    a, b = a.astype(dtype.numpy), b.astype(dtype.numpy)
    summed = np.float64 if dtype is DType.FP64 else np.float32
    total = np.zeros(64, summed)
    for left, right in zip(a.astype(summed), b.astype(summed), strict=True):
        total += left * right
    exact = (a.astype(np.longdouble) * b.astype(np.longdouble)).sum(0).astype(np.float64)
    verdict = check(total.astype(dtype.numpy), exact, dtype, length)
    assert verdict.ok, verdict
    assert verdict.limit == limit(dtype, length)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.FP16])
@pytest.mark.parametrize("batch", [256, 4096])
def test_a_batch_summed_in_16_bits_is_wrong(dtype: DType, batch: int) -> None:
    """The weight gradient of a batch, one image after another: in fp32 it is right, in the output's dtype it is not."""
    rng = np.random.default_rng(0)
    dy, x = (rng.standard_normal((batch, n)).astype(dtype.numpy).astype(np.float32) for n in (16, 64))
    terms = dy[:, :, None] * x[:, None, :]
    ref = dy.astype(np.float64).T @ x.astype(np.float64)
    assert check(batch_sum(terms, np.float32).astype(dtype.numpy), ref, dtype, batch).ok
    verdict = check(batch_sum(terms, dtype.numpy), ref, dtype, batch)
    assert not verdict.ok
    assert verdict.error > 3 * verdict.limit


def test_partial_sums_stored_in_16_bits_are_wrong() -> None:
    rng = np.random.default_rng(0)
    terms = rng.standard_normal((64, 100, 32)).astype(np.float32)  # 64 splits of 100 terms
    partial = terms.sum(1).astype(ml_dtypes.bfloat16).astype(np.float32)
    total = batch_sum(partial, ml_dtypes.bfloat16)
    assert not check(total, terms.astype(np.float64).sum((0, 1)), DType.BF16, 6400).ok


def test_a_result_in_a_narrower_type_than_promised_is_wrong() -> None:
    problem = ConvProblem.create("fwd", (4, 8, 12, 12), (16, 8, 3, 3))
    arrays = make_arrays(problem, seed=0)
    ref = problem.reference(arrays)
    assert check(ref.astype(np.float32), ref, DType.FP32, problem.reduction_length).ok
    assert not check(ref.astype(np.float16), ref, DType.FP32, problem.reduction_length).ok
    assert not check(ref.astype(np.float32), ref, DType.FP64, problem.reduction_length).ok
    half = {role: arrays[role].astype(np.float16) for role in problem.inputs}
    assert not check(problem.reference(half).astype(np.float32), ref, DType.FP32, problem.reduction_length).ok


@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
def test_the_usual_size_is_that_of_results_of_random_data(direction: str) -> None:
    problem = ConvProblem.create(
        direction, (16, 12, 14, 13), (20, 3, 3, 4), stride=(3, 2), groups=4, alpha=0.5, beta=2.0, dtype="fp64"
    )
    rng = np.random.default_rng(0)
    arrays = {role: 3.0 * rng.standard_normal(problem.tensor(role).lengths) for role in problem.roles}
    size = np.sqrt(np.square(problem.reference(arrays)).mean())
    assert problem.usual_size(arrays) == pytest.approx(size, rel=0.1)
    plain = dataclasses.replace(problem, alpha=1.0, beta=0.0)
    assert plain.usual_size(arrays) == pytest.approx(np.sqrt(np.square(plain.reference(arrays)).mean()), rel=0.1)


def test_a_single_element_whose_terms_cancel_is_right() -> None:
    """One output in 25 is that small; what fp32 loses in its terms is not an error of the solver."""
    problem = ConvProblem.create("fwd", (1, 3, 3, 3), (1, 3, 3, 3))
    failed = 0
    for seed in range(300):
        arrays = make_arrays(problem, seed)
        ref = problem.reference(arrays)
        terms = (arrays["x"] * arrays["w"]).ravel()
        out = batch_sum(terms, np.float32).reshape(1, 1, 1, 1)
        assert judge(problem, arrays, out, ref).ok
        assert not judge(problem, arrays, out + 1e-4 * problem.usual_size(arrays), ref).ok
        failed += not check(out, ref, DType.FP32, problem.reduction_length).ok
    assert failed > 0


def test_judge_looks_at_dtype_length_and_compute_type_of_the_problem() -> None:
    problem = ConvProblem.create("wrw", (4, 8, 12, 12), (16, 8, 3, 3), compute="tf32")
    arrays = make_arrays(problem, seed=0)
    ref = problem.reference(arrays)
    verdict = judge(problem, arrays, ref.astype(np.float32), ref)
    assert verdict.ok
    assert verdict.limit >= limit(DType.FP32, 4 * 10 * 10, "tf32") > limit(DType.FP32, 4 * 10 * 10)
    some = ref[:2, :1]
    assert judge(problem, arrays, some.astype(np.float32), some).ok


def test_an_empty_result_is_right() -> None:
    problem = ConvProblem.create("fwd", (0, 3, 3, 3), (2, 3, 3, 3))
    arrays = make_arrays(problem, seed=0)
    assert judge(problem, arrays, arrays["y"], problem.reference(arrays)).ok


def test_tf32_products_are_right_only_where_they_are_allowed() -> None:
    def rounded(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """To ten bits of mantissa, ties away from zero."""
        bits = array.view(np.uint32) + np.uint32(1 << 12)
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)

    problem = ConvProblem.create("fwd", (4, 8, 12, 12), (16, 8, 3, 3), compute="tf32")
    arrays = make_arrays(problem, seed=0)
    ref = problem.reference(arrays)
    out = problem.reference({role: rounded(arrays[role]) for role in problem.inputs}).astype(np.float32)
    assert check(out, ref, DType.FP32, problem.reduction_length, problem.compute).ok
    assert not check(out, ref, DType.FP32, problem.reduction_length).ok


def test_one_wrong_element_among_many_fails() -> None:
    """A missing tap at the border of a large image must not drown in the norm."""
    problem = ConvProblem.create("fwd", (1, 3, 224, 224), (8, 3, 3, 3), pad=1)
    arrays = make_arrays(problem, seed=0)
    ref = problem.reference(arrays)
    out = ref.astype(np.float32)
    out[0, 3, 0, 0] = 0.0
    assert not check(out, ref, DType.FP32, problem.reduction_length).ok


def test_integers_are_exact() -> None:
    ref = np.array([100.0, -7.0])
    assert check(np.array([100, -7], np.int32), ref, DType.INT32, 100).ok
    assert not check(np.array([100, -6], np.int32), ref, DType.INT32, 100).ok
    assert limit(DType.INT8, 10**6) == 0.0
