"""The numerics check: counts and statistics are right, it warns or raises as asked, names what is wrong, can be off."""

from __future__ import annotations

import logging
import math
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hipfind as hf
from hipfind import settings
from hipfind.errors import NumericsError, NumericsWarning, SettingError
from hipfind.find.numerics import TensorStats
from hipfind.invokers.invoker import Invoker

PROBLEM = hf.ConvProblem.create("fwd", x=(2, 3, 6, 6), w=(4, 3, 3, 3))
GEMM = "GemmFwdRest"


@pytest.fixture(autouse=True)
def own_db(tmp_path: pathlib.Path) -> Iterator[None]:
    with settings.override(user_db_path=str(tmp_path / "hipfind.db"), device="host"):
        yield


def arrays() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal(PROBLEM.x.lengths, np.float32), rng.standard_normal(PROBLEM.w.lengths, np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_statistics(dtype: Any) -> None:
    values = np.array([[0.0, 1.5, -2.0, math.nan], [math.inf, -math.inf, 0.0, 8.0]], dtype)
    for array in (values, values.T, values[:, ::2].repeat(2, axis=1)[:, :2]):
        stats, finite = TensorStats.of(array), array.astype(float)[np.isfinite(array.astype(float))]
        assert (stats.elements, stats.zeros) == (array.size, int((finite == 0).sum()))
        assert stats.nans == np.isnan(array.astype(float)).sum() and stats.infs == np.isinf(array.astype(float)).sum()
        assert (stats.min, stats.max, stats.mean) == (finite.min(), finite.max(), pytest.approx(finite.mean()))
    assert TensorStats.of(values).is_abnormal and not TensorStats.of(values[:, :1][:1]).is_abnormal


def test_a_tensor_without_finite_elements() -> None:
    for array in (np.full(3, np.nan), np.empty((0, 4))):
        stats = TensorStats.of(array)
        assert math.isnan(stats.min) and math.isnan(stats.max) and math.isnan(stats.mean)
        assert stats.nans == array.size


def test_off_is_the_invoker_itself() -> None:
    assert type(hf.plan(PROBLEM)._invoker) is Invoker
    with settings.override(check_numerics="stats"):
        assert type(hf.plan(PROBLEM)._invoker) is Invoker
    with settings.override(check_numerics="info"):
        assert type(hf.plan(PROBLEM)._invoker) is not Invoker


def test_info_logs_every_tensor(caplog: pytest.LogCaptureFixture) -> None:
    x, w = arrays()
    with settings.override(check_numerics="1"):
        plan = hf.plan(PROBLEM, solver=GEMM)
    with caplog.at_level(logging.INFO, logger="hipfind.numerics"):
        y = plan(x, w)
    tail = f"solver={GEMM} problem={PROBLEM.key()} device=host"
    expected = [("input x", x), ("input w", w), ("output y", y)]
    assert caplog.messages == [f"{name} {TensorStats.of(array)} {tail}" for name, array in expected]
    assert f"nans=0 infs=0 min={x.min():.6g} max={x.max():.6g} mean={x.astype(float).mean():.6g}" in caplog.messages[0]


@pytest.mark.parametrize("value", ["4", "raise", "0x16", "warn+raise"])
def test_an_abnormal_input_raises_and_is_named(value: str) -> None:
    x, w = arrays()
    with settings.override(check_numerics=value):
        plan = hf.plan(PROBLEM)
        plan(x, w)
        w[3, 0, 1, 1] = np.inf
        x[0, 0, 0, 0] = np.nan
        with pytest.raises(
            NumericsError, match=r"input x elements=216 .*nans=1 infs=0.*input w .*nans=0 infs=1.*output"
        ):
            plan(x, w)


def test_warn_warns_and_goes_on() -> None:
    x, w = arrays()
    x[1, 2, 5, 5] = np.nan
    with settings.override(check_numerics="warn"):
        plan = hf.plan(PROBLEM)
        with pytest.warns(NumericsWarning, match="input x .*output y elements=128 .*nans=4"):
            y = plan(x, w)
    assert np.isnan(y).sum() == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hf.plan(PROBLEM)(x, w)


def test_a_result_that_overflows_is_found() -> None:
    x, w = (np.full(tensor.lengths, 1e30, np.float32) for tensor in (PROBLEM.x, PROBLEM.w))
    with settings.override(check_numerics="raise"), pytest.raises(NumericsError) as caught:
        hf.plan(PROBLEM)(x, w)
    assert "output y" in str(caught.value) and "input" not in caught.value.what.partition("solver=")[0]


def test_runs_on_addresses_and_one_shot_calls_are_checked() -> None:
    x, w = arrays()
    x[0] = np.nan
    y = np.empty(PROBLEM.y.lengths, np.float32)
    with settings.override(check_numerics="raise"):
        with pytest.raises(NumericsError):
            hf.conv(x, w)
        plan = hf.plan(PROBLEM, solver=GEMM)
    workspace = np.empty(plan.workspace_bytes, np.uint8)
    for room in (0, workspace.ctypes.data):
        with pytest.raises(NumericsError):
            plan.run([x.ctypes.data, w.ctypes.data], y.ctypes.data, room)


def test_transposed_convolutions_name_the_callers_tensors() -> None:
    problem = hf.ConvProblem.create("fwd", x=(2, 6, 5, 4), w=(6, 2, 3, 3), stride=2, groups=2, mode="transpose")
    x, w = np.ones(problem.x.lengths, np.float32), np.ones(problem.w.lengths, np.float32)
    x[0, 0, 0, 0] = np.inf
    with (
        settings.override(check_numerics="raise"),
        pytest.raises(NumericsError, match=r"input x elements=240 .*infs=1"),
    ):
        hf.plan(problem)(x, w)


def test_strided_tensors_are_read_between_the_gaps() -> None:
    both = np.full((2, 3, 6, 12), np.nan, np.float32)
    x = both[..., ::2]
    x[:], w = arrays()
    with settings.override(check_numerics="raise"):
        hf.conv(x, w)
        x[1, 2, 5, 5] = np.nan
        with pytest.raises(NumericsError, match="input x elements=216 zeros=0 nans=1"):
            hf.conv(x, w)


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        ("0", 0),
        ("", 0),
        ("off", 0),
        ("1", 1),
        ("0x12", 18),
        ("22", 22),
        ("warn", 2),
        ("Raise + Stats", 20),
        ("warn+warn", 2),
    ],
)
def test_values_of_the_setting(value: str, bits: int) -> None:
    assert settings.from_environment({"HIPFIND_CHECK_NUMERICS": value}).check_numerics == bits


@pytest.mark.parametrize("value", ["8", "12", "32", "-1", "abort", "warn+", "1.5"])
def test_values_that_are_refused(value: str) -> None:
    with pytest.raises(
        SettingError, match=r"HIPFIND_CHECK_NUMERICS must be a sum of 1 \(info\), 2 \(warn\), 4 \(raise\)"
    ):
        settings.from_environment({"HIPFIND_CHECK_NUMERICS": value})
