"""Row-major products through a column-major library: the mapping, edge cases, algorithms, workspaces."""

from __future__ import annotations

import dataclasses
import gc
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipfind.device.gpu import GpuDevice
from hipfind.device.gpu_blas import (
    ALIGNMENT,
    WORKSPACE_BYTES,
    NoAlgorithmError,
    column_major,
)
from hipfind.errors import DeviceError
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.dtypes import DType
from tests.helpers.fake_blas import FakeLt
from tests.helpers.fake_driver import FakeDriver
from tests.helpers.products import spec_of


@pytest.fixture
def driver():
    FakeDriver.make_current(-1)
    return FakeDriver()


@pytest.fixture
def blas(driver):
    return GpuDevice(driver, lambda device: FakeLt(device, driver)).blas


extent = st.integers(1, 6)
gap = st.integers(0, 3)


@given(
    m=extent, n=extent, k=extent, trans_a=st.booleans(), trans_b=st.booleans(), gaps=st.tuples(gap, gap, gap),
    batch=st.integers(1, 3), shared=st.booleans(),
    alpha=st.sampled_from([1.0, -0.5]), beta=st.sampled_from([0.0, 1.0, 2.0]),
)  # fmt: skip
def test_products_equal_numpys(m, n, k, trans_a, trans_b, gaps, batch, shared, alpha, beta):
    driver = FakeDriver()
    device = GpuDevice(driver, lambda device: FakeLt(device, driver))
    a_shape, b_shape = ((k, m) if trans_a else (m, k)), ((n, k) if trans_b else (k, n))
    lda, ldb, ldc = a_shape[1] + gaps[0], b_shape[1] + gaps[1], n + gaps[2]
    rng = np.random.default_rng(1)
    a = rng.standard_normal((1 if shared else batch, a_shape[0], lda))
    b = rng.standard_normal((batch, b_shape[0], ldb))
    c = rng.standard_normal((batch, m, ldc)) if beta else np.full((batch, m, ldc), np.nan)
    spec = GemmSpec(
        m, n, k, DType.FP64, DType.FP64, lda, ldb, ldc, trans_a, trans_b, batch,
        0 if shared else a[0].size, b[0].size, c[0].size, alpha, beta,
    )  # fmt: skip
    expected = c.copy()
    for entry in range(batch):
        left, right = a[0 if shared else entry, :, : a_shape[1]], b[entry, :, : b_shape[1]]
        total = alpha * ((left.T if trans_a else left) @ (right.T if trans_b else right))
        expected[entry, :, :n] = total if beta == 0 else total + beta * c[entry, :, :n]
    run = device.prepare_gemm(spec)
    run(a.ctypes.data, b.ctypes.data, c.ctypes.data, 0)
    np.testing.assert_allclose(c, expected, rtol=1e-12)  # gaps between rows included


def test_the_mapping_swaps_operands_and_reads_transposes():
    product = column_major(spec_of(2, 3, 4, lda=10, ldb=20, ldc=30))
    assert (product.m, product.n, product.k) == (3, 2, 4)
    assert (product.a.rows, product.a.cols, product.a.ld) == (3, 4, 20)
    assert (product.b.rows, product.b.cols, product.b.ld) == (4, 2, 10)
    assert (product.c.rows, product.c.cols, product.c.ld) == (3, 2, 30)
    assert not product.trans_a and not product.trans_b


@pytest.mark.parametrize("empty", [{"m": 0}, {"n": 0}, {"batch": 0}])
def test_products_without_elements_do_nothing(blas, empty):
    blas.prepare(dataclasses.replace(spec_of(2, 3, 4), **empty))(0, 0, 0, 0)
    assert blas.rankings == [] and blas.multiplied == []


def test_a_sum_over_no_terms_clears_rows_but_not_the_gaps(blas):
    c = np.full((2, 3, 5), 7.0)
    spec = spec_of(3, 4, 0, lda=1, ldb=4, ldc=5, batch=2, stride_c=15)
    blas.prepare(spec)(0, 0, c.ctypes.data, 0)
    assert (c[..., :4] == 0).all() and (c[..., 4] == 7).all()
    blas.prepare(dataclasses.replace(spec, beta=1.0))(0, 0, c.ctypes.data, 0)
    assert (c[..., :4] == 0).all() and (c[..., 4] == 7).all()
    with pytest.raises(DeviceError, match="beta of 0 or 1"):
        blas.prepare(dataclasses.replace(spec, beta=0.5))


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("dtype_c", DType)
def test_legal_types_are_equal_ones_and_16_bits_to_fp32(blas, dtype, dtype_c):
    legal = dtype.is_float and (dtype_c is dtype or (dtype.is_half and dtype_c is DType.FP32))
    spec = spec_of(2, 2, 2, dtype, dtype_c)
    if legal:
        blas.prepare(spec)
    else:
        with pytest.raises(DeviceError, match="no product of these types"):
            blas.prepare(spec)


def test_the_algorithm_fits_the_operands_alignment(blas):
    run = blas.prepare(spec_of(2, 2, 2))
    assert blas.rankings == [(WORKSPACE_BYTES, ALIGNMENT, 1)]
    buffer = np.zeros(4096, np.uint8)
    base = -(-buffer.ctypes.data // 256) * 256
    for offset, _ in ((0, 256), (16, 16), (8, 8), (16, 16), (0, 256)):
        run(base + 256, base + offset, base + 512, 0)
    assert [alignment for _, alignment, _ in blas.rankings] == [256, 16, 8]  # each asked for once
    blas.supported.discard(8)
    other = blas.prepare(spec_of(2, 2, 3))
    with pytest.raises(DeviceError, match=r"no algorithm of rank 0 for this product.*aligned to 8 bytes"):
        other(base + 8, base, base + 512, 0)


def test_an_algorithm_that_is_ranked_and_then_refused_is_passed_over(blas):
    blas.refused = {0, 1}
    a, b, c = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32), np.full((2, 3), np.nan, np.float32)
    run = blas.prepare(spec_of(2, 3, 4, DType.FP32))
    for _ in range(2):
        run(a.ctypes.data, b.ctypes.data, c.ctypes.data, 0)
        assert (c == 4).all()
    assert [algorithm.handle for algorithm, _, _ in blas.multiplied] == [2, 2]
    blas.refused = {0, 1, 2}
    with pytest.raises(DeviceError, match="no algorithm of rank 0 for this product"):
        run(a.ctypes.data, b.ctypes.data, c.ctypes.data, 0)


def test_what_the_library_cannot_do_is_said_when_preparing(blas):
    blas.supported.clear()
    with pytest.raises(DeviceError, match="no algorithm of rank 0 for this product"):
        blas.prepare(spec_of(2, 2, 2))


def test_the_rank_chooses_the_algorithm(blas):
    a = np.zeros((2, 2))
    addresses = (a.ctypes.data,) * 3
    for rank in (2, 0, 1):
        blas.prepare(spec_of(2, 2, 2, rank=rank))(*addresses, 0)
    assert [algorithm.handle for algorithm, _, _ in blas.multiplied] == [2, 0, 1]
    blas.refused = {1}
    blas.prepare(spec_of(2, 2, 2, rank=1))(*addresses, 0)
    assert blas.multiplied[-1][0].handle == 2


def test_a_rank_that_the_ranking_does_not_have_is_refused_when_preparing(blas):
    with pytest.raises(NoAlgorithmError, match=r"no algorithm of rank 3 for this product"):
        blas.prepare(spec_of(2, 2, 2, rank=3))


def test_badly_aligned_operands_with_a_short_ranking_take_its_last(blas):
    run = blas.prepare(spec_of(2, 2, 2, rank=2))
    blas.ranked[8] = 2
    buffer = np.zeros(1024, np.uint8)
    base = -(-buffer.ctypes.data // 256) * 256
    run(base, base + 8, base + 256, 0)
    assert blas.multiplied[-1][0].handle == 1


def test_a_product_is_described_once(blas):
    assert blas.prepare(spec_of(2, 2, 2)) is blas.prepare(spec_of(2, 2, 2))
    assert len(blas.rankings) == 1


def test_descriptors_are_released_with_their_product(blas):
    blas.supported.clear()
    with pytest.raises(DeviceError):
        blas.prepare(spec_of(2, 2, 2))
    gc.collect()
    assert len(blas.released) == 1
    blas.supported.add(256)
    blas.prepare(spec_of(2, 2, 2))
    gc.collect()
    assert len(blas.released) == 1


def test_a_library_that_is_given_up_releases_its_products(driver):
    blas = GpuDevice(driver, lambda device: FakeLt(device, driver)).blas
    released = blas.released
    blas.prepare(spec_of(2, 2, 2))
    del blas
    gc.collect()
    assert len(released) == 1


def test_workspaces_belong_to_streams_and_are_taken_only_when_needed(blas, driver):
    a = np.zeros(64)
    addresses = (a.ctypes.data,) * 3
    blas.prepare(spec_of(1, 1, 1))(*addresses, 0)
    assert blas.multiplied[-1][1] == 0 and driver.used == 0
    blas.workspace_bytes = 100
    run = blas.prepare(spec_of(2, 2, 2))
    for stream in (0, 5, 0, 5):
        run(*addresses, stream)
    first, second, third, fourth = (workspace for _, workspace, _ in blas.multiplied[-4:])
    assert first == third != second == fourth and 0 not in (first, second)
    assert driver.used == 2 * WORKSPACE_BYTES


def test_the_stream_that_each_thread_has_of_its_own_has_a_workspace_in_each(blas):
    mine = blas.workspace(2)
    theirs = []
    thread = threading.Thread(target=lambda: theirs.append(blas.workspace(2)))
    thread.start()
    thread.join()
    assert theirs != [mine] and blas.workspace(2) == mine
