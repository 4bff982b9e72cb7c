"""Matrix products of the HIP device on the stand-in's hipBLASLt and hipBLAS."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hipfind.device.gpu import GpuDevice
from hipfind.device.gpu_blas import ALIGNMENT, LtBlas, NoAlgorithmError, column_major
from hipfind.device.gpu_products import PreferredBlas
from hipfind.errors import DeviceError
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.dtypes import DType
from tests.standin import Control
from tests.standin.conftest import open_device

FLOATS = (DType.FP64, DType.FP32, DType.FP16, DType.BF16)
TYPES = [(dtype, dtype) for dtype in FLOATS] + [(DType.FP16, DType.FP32), (DType.BF16, DType.FP32)]
NOT_SUPPORTED = 7


@pytest.fixture(params=["hipBLASLt", "hipBLAS"])
def device(request: pytest.FixtureRequest, control: Control) -> GpuDevice:
    """HIP device 0 with both libraries, or without hipBLASLt."""
    made = open_device(0)
    if request.param == "hipBLAS":
        control.fail("hipblasLtCreate", NOT_SUPPORTED)
    assert made.blas.version.startswith(request.param)
    return made


class Case:
    """Operands of a product on the device, its result as numpy computes it in float64."""

    def __init__(self, device: GpuDevice, spec: GemmSpec) -> None:
        self.device, self.spec = device, spec
        rng = np.random.default_rng(spec.m * 100 + spec.n * 10 + spec.k)
        a_shape = (spec.k, spec.m) if spec.trans_a else (spec.m, spec.k)
        b_shape = (spec.n, spec.k) if spec.trans_b else (spec.k, spec.n)
        self.a, a = self._operand(rng, a_shape, spec.lda, spec.stride_a, spec.dtype)
        self.b, b = self._operand(rng, b_shape, spec.ldb, spec.stride_b, spec.dtype)
        self.c, c = self._operand(rng, (spec.m, spec.n), spec.ldc, spec.stride_c, spec.dtype_c)
        a, b = (matrix.swapaxes(1, 2) if trans else matrix for matrix, trans in ((a, spec.trans_a), (b, spec.trans_b)))
        self.expected = spec.alpha * (a @ b) + (spec.beta * c if spec.beta else 0.0)
        if not spec.beta:
            device.set_bytes(self.c.address, self.c.nbytes, 0xFF)

    def _operand(self, rng: Any, shape: tuple[int, int], ld: int, stride: int, dtype: DType) -> tuple[Any, Any]:
        """Memory whose gaps are NaN, and the batch of matrices in it in float64."""
        rows, cols = shape
        flat = np.full((self.spec.batch - 1) * stride + (rows - 1) * ld + cols, np.nan, dtype.numpy)
        strides = [stride * dtype.itemsize, ld * dtype.itemsize, dtype.itemsize]
        view = np.ndarray((self.spec.batch, rows, cols), dtype.numpy, flat, 0, strides)
        view[...] = rng.standard_normal((rows, cols) if not stride else view.shape)
        memory = self.device.allocate(flat.nbytes)
        self.device.copy_in(memory.address, flat)
        self.flat = flat
        return memory, view.astype(np.float64)

    def run(self, stream: int = 0) -> None:
        self.device.prepare_gemm(self.spec)(self.a.address, self.b.address, self.c.address, stream)

    def check(self) -> None:
        spec, dtype = self.spec, self.spec.dtype_c
        flat = self.device.as_numpy(self.c, dtype.numpy, self.flat.shape)
        strides = [spec.stride_c * dtype.itemsize, spec.ldc * dtype.itemsize, dtype.itemsize]
        got = np.ndarray((spec.batch, spec.m, spec.n), dtype.numpy, flat, 0, strides)
        error = np.linalg.norm(got.astype(np.float64) - self.expected) / np.linalg.norm(self.expected)
        assert error < 4 * dtype.epsilon, spec
        got[...] = np.nan
        assert np.isnan(flat.astype(np.float64)).all(), "something between the rows was written"


def spec_of(dtype: DType, dtype_c: DType, trans_a: bool, trans_b: bool, **values: Any) -> GemmSpec:
    m, n, k = values.pop("m", 7), values.pop("n", 5), values.pop("k", 11)
    gap = values.pop("gap", 0)
    lda, ldb, ldc = (m if trans_a else k) + gap, (k if trans_b else n) + gap, n + gap
    strides = {"stride_a": lda * (k if trans_a else m), "stride_b": ldb * (n if trans_b else k), "stride_c": ldc * m}
    return GemmSpec(m, n, k, dtype, dtype_c, lda, ldb, ldc, trans_a, trans_b, **{**strides, **values})


@pytest.mark.parametrize(("trans_a", "trans_b"), list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("types", TYPES, ids=lambda types: "-".join(one.value for one in types))
def test_products(device: GpuDevice, types: tuple[DType, DType], trans_a: bool, trans_b: bool) -> None:
    for values in ({}, {"batch": 3}, {"gap": 3}, {"gap": 2, "batch": 2}, {"m": 1}, {"n": 1}, {"k": 1, "batch": 4}):
        case = Case(device, spec_of(*types, trans_a, trans_b, **values))
        case.run()
        case.check()


@pytest.mark.parametrize("types", TYPES, ids=lambda types: "-".join(one.value for one in types))
def test_beta_and_alpha(device: GpuDevice, types: tuple[DType, DType]) -> None:
    for alpha, beta, batch in ((1.0, 1.0, 1), (0.5, -2.0, 2), (-1.5, 0.0, 1)):
        case = Case(device, spec_of(*types, False, True, alpha=alpha, beta=beta, batch=batch, gap=1))
        case.run()
        case.check()


@pytest.mark.parametrize("shared", ["stride_a", "stride_b"])
def test_one_matrix_for_the_whole_batch(device: GpuDevice, shared: str) -> None:
    case = Case(device, spec_of(DType.FP32, DType.FP32, False, False, batch=4, **{shared: 0}))
    case.run()
    case.check()


def test_long_sums_in_16_bits_are_kept_in_fp32(device: GpuDevice) -> None:
    for dtype in (DType.FP16, DType.BF16):
        case = Case(device, spec_of(dtype, dtype, True, False, m=3, n=4, k=5000))
        case.run()
        case.check()


def test_no_terms_clear_the_result(device: GpuDevice) -> None:
    case = Case(device, spec_of(DType.FP32, DType.FP32, False, False, k=1, gap=2, batch=2))
    empty = spec_of(DType.FP32, DType.FP32, False, False, k=0, gap=2, batch=2)
    device.prepare_gemm(empty)(case.a.address, case.b.address, case.c.address, 0)
    case.expected = np.zeros_like(case.expected)
    flat = device.as_numpy(case.c, np.float32, case.flat.shape)
    rows = np.ndarray((2, 7, 5), np.float32, flat, 0, [7 * 7 * 4, 7 * 4, 4])
    assert (rows == 0).all()
    rows[...] = np.nan
    assert np.isnan(flat).all()


@pytest.mark.parametrize("empty", ["m", "n", "batch"])
def test_empty_results_call_nothing(device: GpuDevice, control: Control, empty: str) -> None:
    before = control.calls("hipblasLtMatmul") + control.calls("hipblasGemmStridedBatchedEx")
    device.prepare_gemm(spec_of(DType.FP32, DType.FP32, False, False, **{empty: 0}))(0, 0, 0, 0)
    assert control.calls("hipblasLtMatmul") + control.calls("hipblasGemmStridedBatchedEx") == before


def test_types_that_no_library_multiplies_are_refused(device: GpuDevice) -> None:
    for types in ((DType.INT8, DType.INT32), (DType.FP32, DType.FP16), (DType.FP16, DType.BF16)):
        with pytest.raises(DeviceError, match="no product of these types"):
            device.prepare_gemm(spec_of(*types, False, False))


def test_products_can_be_captured(device: GpuDevice) -> None:
    case = Case(device, spec_of(DType.FP32, DType.FP32, False, True, m=20, n=30, k=40))
    case.run()  # a library may set itself up at its first call
    device.set_bytes(case.c.address, case.c.nbytes, 0xFF)
    device.synchronize()
    replay = device.capture(case.run)
    assert replay is not None
    replay(0)
    case.check()


def test_what_hipblaslt_cannot_do_goes_to_hipblas(control: Control) -> None:
    device = open_device(0)
    case = Case(device, spec_of(DType.BF16, DType.BF16, False, False))
    control.fail("hipblasLtMatmulAlgoGetHeuristic", NOT_SUPPORTED)
    before = control.calls("hipblasGemmStridedBatchedEx")
    case.run()
    case.check()
    assert control.calls("hipblasGemmStridedBatchedEx") == before + 1


def refuse(control: Control, when: str) -> None:
    """Let both libraries answer that they do not support the next product, hipBLASLt when it is prepared or called."""
    if when == "called":
        control.fail("hipblasLtMatmul", NOT_SUPPORTED)
    control.fail("hipblasLtMatmulAlgoGetHeuristic", NOT_SUPPORTED, 2 if when == "called" else 1)
    control.fail("hipblasGemmStridedBatchedEx", NOT_SUPPORTED)


@pytest.mark.parametrize("when", ["prepared", "called"])
@pytest.mark.parametrize("types", TYPES, ids=lambda types: "-".join(one.value for one in types))
def test_what_no_library_takes_is_right_too(control: Control, types: tuple[DType, DType], when: str) -> None:
    device = open_device(0)
    for values in ({}, {"batch": 3, "gap": 1, "alpha": 1.5}, {"n": 1, "k": 3, "m": 130, "alpha": 0.5, "beta": -2.0}):
        for trans_a, trans_b in itertools.product((False, True), repeat=2):
            case = Case(device, spec_of(*types, trans_a, trans_b, **values))
            before = control.calls("hipModuleLaunchKernel")
            refuse(control, when)
            case.run()
            assert control.calls("hipModuleLaunchKernel") == before + 1
            case.check()


def test_without_hipblaslt_what_hipblas_does_not_take_is_right_too(control: Control) -> None:
    device = open_device(0)
    control.fail("hipblasLtCreate", NOT_SUPPORTED)
    case = Case(device, spec_of(DType.FP16, DType.FP32, False, True, batch=2))
    control.fail("hipblasGemmStridedBatchedEx", NOT_SUPPORTED)
    case.run()
    case.check()


@pytest.mark.parametrize("when", ["prepared", "called"])
def test_what_no_library_takes_can_be_captured(control: Control, when: str) -> None:
    device = open_device(0)
    case = Case(device, spec_of(DType.BF16, DType.BF16, True, False, batch=2))
    refuse(control, when)
    product = device.prepare_gemm(case.spec)
    places = (case.a.address, case.b.address, case.c.address)
    product(*places, 0)
    device.synchronize()
    device.set_bytes(case.c.address, case.c.nbytes, 0xFF)
    unwanted = ("hipMalloc", "hipModuleLoadData", "hipblasLtMatmul", "hipblasGemmStridedBatchedEx")
    before = [control.calls(name) for name in unwanted]
    replay = device.capture(lambda stream: product(*places, stream))
    assert replay is not None
    assert [control.calls(name) for name in unwanted] == before
    replay(0)
    case.check()


def test_a_rank_that_is_not_there_is_not_left_to_the_kernel(control: Control) -> None:
    device = open_device(0)
    control.fail("hipblasLtMatmulAlgoGetHeuristic", NOT_SUPPORTED)
    with pytest.raises(NoAlgorithmError, match="rank 2"):
        device.prepare_gemm(spec_of(DType.FP32, DType.FP32, False, False, rank=2))


def test_without_any_library_products_are_refused_with_both_reasons(control: Control) -> None:
    device = open_device(0)
    control.fail("hipblasLtCreate", 1)
    control.fail("hipblasCreate", 1)
    with pytest.raises(DeviceError, match=r"hipblasLtCreate failed .*NOT_INITIALIZED.*hipblasCreate failed"):
        device.prepare_gemm(spec_of(DType.FP32, DType.FP32, False, False))


def lt_blas(device: GpuDevice) -> LtBlas:
    blas = device.blas
    assert isinstance(blas, PreferredBlas)
    preferred = blas.libraries[0]
    assert isinstance(preferred, LtBlas)
    return preferred


def test_algorithms_keep_to_the_workspace_budget(control: Control) -> None:
    blas = lt_blas(open_device(0))
    spec = spec_of(DType.FP32, DType.FP32, False, False, m=64, n=64, k=64)
    described = blas.describe(column_major(spec))
    sizes = [
        [one.workspace_bytes for one in blas.rank(described, budget, ALIGNMENT, 32)]
        for budget in (1 << 20, 64 * 64 * 4, 0)
    ]
    assert [max(found) for found in sizes] == [3 * 64 * 64 * 4, 64 * 64 * 4, 0]
    assert len(sizes[0]) > len(sizes[1]) > len(sizes[2]) >= 2
    assert len(blas.rank(described, 1 << 20, ALIGNMENT, 1)) == 1
    blas.release(described)


def test_the_rank_chooses_the_algorithm(control: Control) -> None:
    device = open_device(0)
    for rank in range(3):
        case = Case(device, spec_of(DType.FP32, DType.FP32, False, False, m=64, n=64, k=64, rank=rank))
        case.run()
        case.check()
    with pytest.raises(DeviceError, match="rank 99"):
        device.prepare_gemm(spec_of(DType.FP32, DType.FP32, False, False, m=64, n=64, k=64, rank=99))


def test_tf32_without_a_library_that_has_it_is_full_precision(control: Control) -> None:
    device = open_device(0)
    spec = spec_of(DType.FP32, DType.FP32, True, False, tf32=True)
    with pytest.raises(DeviceError, match="no algorithm"):
        lt_blas(device).prepare(spec)
    case = Case(device, spec)
    case.run()
    case.check()


def test_streams_do_not_share_workspace(control: Control) -> None:
    from tests.standin.hip_device import destroy, make_stream

    device, streams = open_device(0), [make_stream(), make_stream()]
    cases = [Case(device, spec_of(DType.FP32, DType.FP32, False, True, m=20 + i, n=30, k=40)) for i in range(2)]
    device.synchronize()
    for case, stream in zip(cases, streams, strict=True):
        case.run(stream)
    for case, stream in zip(cases, streams, strict=True):
        device.synchronize(stream)
        case.check()
    assert len({lt_blas(device).workspace(stream) for stream in streams}) == 2
    for stream in streams:
        destroy(stream)
