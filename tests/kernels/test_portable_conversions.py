"""portable.h's conversions between fp32 and the 16-bit types: every value one way, hard cases the other."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hipfind.device.devices import get_device
from hipfind.kernels.spec import KernelSpec

TYPES = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
BRANCHES = [("fp16", ()), ("fp16", (("HF_HALF_BY_BITS", "1"),)), ("bf16", ())]
IDS = ["fp16", "fp16-by-bits", "bf16"]


def convert(name: str, elem: str, defines: tuple[tuple[str, str], ...], values: np.ndarray, to: np.dtype) -> np.ndarray:
    """``values`` through one of convert_rows.hip's kernels, as one row."""
    device = get_device("host")
    if not device.target.kernels:
        pytest.skip("no C++ compiler on this machine")
    spec = KernelSpec("convert_rows.hip", name, (("ELEM", elem), *defines))
    result = np.empty(values.size, to)
    segments = -(-values.size // 1000)
    run = device.prepare_kernel(spec, (values.size, values.size, 1000, segments, 1.0, 0.0), segments)
    run([values.ctypes.data, result.ctypes.data], 0)
    return result


@pytest.mark.parametrize(("elem", "defines"), BRANCHES, ids=IDS)
def test_every_16_bit_value_loads_exactly(elem, defines):
    values = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(TYPES[elem])
    loaded = convert("widen_rows", elem, defines, values, np.dtype(np.float32))
    with np.errstate(invalid="ignore"):
        expected = values.astype(np.float32)
    is_nan = np.isnan(expected)
    assert np.array_equal(np.isnan(loaded), is_nan)
    assert np.array_equal(loaded[~is_nan].view(np.uint32), expected[~is_nan].view(np.uint32)), "signs of zero too"


def hard_floats(elem: str) -> np.ndarray:
    """Every value of the type and its neighbours, every tie between two of them, limits, NaNs, random bit patterns."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(TYPES[elem]).astype(np.float64)
        finite = np.sort(values[np.isfinite(values)])
        ties = (finite[1:] + finite[:-1]) / 2
        limits = [2 * finite[-1] - finite[-2], np.inf, 3.4e38, 1e-45, 0.0]
        near = np.concatenate([finite, ties, limits, np.negative(limits)]).astype(np.float32)
        above, below = (np.nextafter(near, np.float32(towards)) for towards in (np.inf, -np.inf))
    bits = np.random.default_rng(7).integers(0, 1 << 32, 200_000, dtype=np.uint32)
    return np.concatenate([near, above, below, bits.view(np.float32), np.float32([np.nan, -np.nan])])


@pytest.mark.parametrize(("elem", "defines"), BRANCHES, ids=IDS)
def test_floats_are_stored_rounded_to_nearest_even(elem, defines):
    values = hard_floats(elem)
    stored = convert("narrow_rows", elem, defines, values, TYPES[elem])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(TYPES[elem])
    is_nan = np.isnan(values)
    assert np.isnan(stored[is_nan].astype(np.float32)).all(), "NaN stays NaN"
    wrong = stored[~is_nan].view(np.uint16) != expected[~is_nan].view(np.uint16)
    assert not wrong.any(), f"{values[~is_nan][wrong][:5]} became {stored[~is_nan][wrong][:5]}"
