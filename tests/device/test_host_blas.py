"""Products on the host against float64: every way that a matrix can lie, with poison in all gaps."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hipfind.device import host_blas
from hipfind.device.host import HostDevice
from hipfind.device.host_blas import ScratchPool, prepare_gemm
from hipfind.errors import DeviceError
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.dtypes import DType
from tests.helpers.products import FLOATS, Operands, check_product, product_specs, spec_of


def check(spec: GemmSpec, device: HostDevice, use_kernels: bool, seed: int = 0) -> None:
    check_product(spec, prepare_gemm(spec, device.prepare_kernel if use_kernels else None, ScratchPool()), seed)


made_up = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@made_up
@given(spec=product_specs(), use_kernels=st.booleans(), seed=st.integers(0, 99))
@example(spec=spec_of(5, 4, 3, DType.BF16, batch=2, stride_a=0, stride_b=12, stride_c=20), use_kernels=True, seed=0)
def test_any_product(spec: GemmSpec, use_kernels: bool, seed: int, host: HostDevice) -> None:
    check(spec, host, use_kernels, seed)


@settings(made_up, max_examples=100)
@given(spec=product_specs(), use_kernels=st.booleans())
def test_any_product_in_small_blocks(spec: GemmSpec, use_kernels: bool, host: HostDevice) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_blas, "_TEMPORARY_BYTES", 256)
        patch.setattr(host_blas, "_FEWEST_ROWS", 3)
        patch.setattr(host_blas, "_SEGMENT", 2)
        check(spec, host, use_kernels)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(200, 130, 70), (1, 300, 200), (300, 1, 200), (300, 200, 1), (1, 1, 5000)])
def test_sizes_at_which_blas_takes_other_ways(shape: tuple[int, int, int], dtype: DType, host: HostDevice) -> None:
    for is_ta in (False, True):
        for is_tb in (False, True):
            check(spec_of(*shape, dtype, trans_a=is_ta, trans_b=is_tb), host, True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_empty_sum_is_zero_and_keeps_beta(dtype: DType, host: HostDevice) -> None:
    for beta in (0.0, 0.5):
        check(spec_of(3, 4, 0, dtype, lda=1, ldb=4, beta=beta), host, True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_empty_results_touch_nothing(dtype: DType, host: HostDevice) -> None:
    for m, n, batch in ((0, 3, 1), (3, 0, 1), (3, 3, 0)):
        host.prepare_gemm(spec_of(m, n, 2, dtype, batch=batch, lda=2, ldb=3, ldc=3))(0, 0, 0, 0)


@pytest.mark.parametrize("use_kernels", [False, True])
@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16])
def test_16_bit_sums_are_kept_in_fp32_and_rounded_once(dtype: DType, use_kernels: bool, host: HostDevice) -> None:
    a = np.ones((1, 5000), dtype.numpy)  # counting in the type itself would stop at 256 or 2048
    b, c = np.ones((5000, 1), dtype.numpy), np.zeros((1, 1), dtype.numpy)
    spec = spec_of(1, 1, 5000, dtype)
    prepare_gemm(spec, host.prepare_kernel if use_kernels else None, ScratchPool())(*(x.ctypes.data for x in (a, b, c)))
    assert c[0, 0] == dtype.numpy.type(5000)


@pytest.mark.parametrize("use_kernels", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_infinity_and_nan_go_through(dtype: DType, use_kernels: bool, host: HostDevice) -> None:
    a = np.array([[np.inf, 1.0], [np.nan, 1.0], [1.0, 1.0]], dtype.numpy)
    b, c = np.ones((2, 1), dtype.numpy), np.zeros((3, 1), dtype.numpy)
    prepare = host.prepare_kernel if use_kernels else None
    prepare_gemm(spec_of(3, 1, 2, dtype), prepare, ScratchPool())(*(x.ctypes.data for x in (a, b, c)))
    values = c.astype(np.float64)[:, 0]
    assert np.isposinf(values[0]) and np.isnan(values[1]) and values[2] == 2.0


def test_too_large_results_become_infinite_without_a_warning(host: HostDevice) -> None:
    a = np.full((1, 1), 60000.0, np.float16)
    for prepare in (host.prepare_kernel, None):
        c = np.zeros((1, 1), np.float16)
        prepare_gemm(spec_of(1, 1, 1, DType.FP16), prepare, ScratchPool())(a.ctypes.data, a.ctypes.data, c.ctypes.data)
        assert np.isposinf(c[0, 0])


def test_a_batch_with_one_b_in_a_sequence_is_one_product() -> None:
    spec = spec_of(8, 4, 6, batch=5, stride_a=48, stride_b=0, stride_c=32)
    assert host_blas._one_product(spec) == dataclasses.replace(spec, m=40, batch=1)
    for change in ({"stride_a": 0}, {"stride_b": 24}, {"stride_c": 33}, {"trans_a": True, "lda": 8}):
        other = dataclasses.replace(spec, **change)
        assert host_blas._one_product(other) == other


def test_other_dtypes_are_refused_by_name() -> None:
    for dtype, dtype_c in ((DType.INT8, DType.INT32), (DType.FP32, DType.FP64), (DType.FP16, DType.BF16)):
        with pytest.raises(DeviceError, match=f"{dtype.value} into {dtype_c.value}"):
            HostDevice().prepare_gemm(spec_of(1, 1, 1, dtype, dtype_c))


@pytest.mark.parametrize("dtype", [DType.FP32, DType.BF16])
def test_one_prepared_product_runs_from_many_threads(dtype: DType, host: HostDevice) -> None:
    spec = spec_of(60, 50, 40, dtype)
    run = host.prepare_gemm(spec)
    failures: list[int] = []

    def work(seed: int) -> None:
        operands = Operands(spec, seed)
        run(*operands.addresses, 0)
        expected = operands.c.copy()
        for _ in range(20):
            operands.c[...] = np.nan
            run(*operands.addresses, 0)
            if not np.array_equal(operands.c, expected):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_scratch_is_reused_and_bounded() -> None:
    pool = ScratchPool()
    with pool.borrow(1000) as first, pool.borrow(10) as second, pool.borrow(500) as third:
        assert len({id(first), id(second), id(third)}) == 3
    with pool.borrow(400) as again:
        assert again is third, "the smallest that is large enough"
    assert [buffer.size for buffer in pool._idle] == [500, 1000]


def test_views_of_one_product_are_bounded() -> None:
    run = prepare_gemm(spec_of(1, 1, 1, DType.FP32), None, ScratchPool())
    values = np.ones(3 * host_blas._MOST_VIEWS, np.float32)
    for i in range(values.size):
        address = values.ctypes.data + 4 * i
        run(address, address, address)
    assert len(run._views) <= host_blas._MOST_VIEWS
