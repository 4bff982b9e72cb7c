"""Products by whichever library takes them, and by the portable kernel where none does."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hipfind.device.gpu import GpuDevice
from hipfind.device.gpu_blas import NoAlgorithmError, column_major
from hipfind.device.gpu_products import PreferredBlas, make_blas, product_launch
from hipfind.device.host import HostDevice
from hipfind.errors import CompileError, DeviceError
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.dtypes import DType
from hipfind.settings import override
from tests.helpers.fake_blas import NOT_SUPPORTED, FakeLt, FakePlain
from tests.helpers.fake_driver import FakeDriver
from tests.helpers.products import check_product, product_specs, spec_of

ODD = GemmSpec(
    130, 1, 3, DType.FP16, DType.FP32, lda=4, ldb=2, ldc=2, batch=3, stride_a=520, stride_b=6, stride_c=260, alpha=1.5
)
"""A product that no library of NVIDIA's takes where operands lie at odd multiples of 2 bytes."""


def missing(device, driver):
    raise DeviceError("it is not here")


@pytest.fixture(autouse=True)
def cache(tmp_path):
    with override(cache_dir=str(tmp_path)):
        yield tmp_path


@pytest.fixture
def driver():
    FakeDriver.make_current(-1)
    return FakeDriver()


def blas_of(driver, lt=FakeLt, plain=FakePlain):
    return GpuDevice(driver, lambda device: make_blas(device, lt, plain)).blas


@pytest.fixture
def both(driver):
    return blas_of(driver)


@pytest.fixture
def base():
    """A well aligned address of host memory."""
    buffer = np.zeros(1024, np.uint8)
    yield -(-buffer.ctypes.data // 256) * 256
    del buffer


# ---- libraries -------------------------------------------------------------------------------------------------------


def test_what_the_first_library_cannot_do_goes_to_the_other(both):
    lt, plain = both.libraries
    lt.supported.clear()
    spec = spec_of(2, 3, 4)
    both.prepare(spec)(0x300, 0x200, 0x100, 5)
    assert plain.multiplied == [(column_major(spec), (0x200, 0x300, 0x100), 5)]


def test_operands_that_the_first_library_does_not_take_go_to_the_other(both, base):
    lt, plain = both.libraries
    lt.supported = {256}
    for rank in (0, 1):
        run = both.prepare(spec_of(1, 1, 1, rank=rank))
        for offset in (0, 8, 0, 8):
            run(base, base + offset, base, 0)
    assert len(lt.multiplied) == 4
    assert [operands for _, operands, _ in plain.multiplied] == [(base + 8, base, base)] * 4
    assert [alignment for _, alignment, _ in lt.rankings].count(8) == 2, "asked for once a product"


def test_a_vendors_libraries_are_used_as_far_as_they_are_there(driver):
    def kinds(lt, plain):
        blas = blas_of(driver, lt, plain)
        assert isinstance(blas, PreferredBlas)
        return [type(library) for library in blas.libraries], blas.version

    assert kinds(FakeLt, FakePlain) == ([FakeLt, FakePlain], "fake, plain")
    assert kinds(missing, FakePlain) == ([FakePlain], "plain")
    assert kinds(FakeLt, missing) == ([FakeLt], "fake")
    with pytest.raises(DeviceError, match=r"no BLAS library that can be used .*not here; .*not here"):
        blas_of(driver, missing, missing)


# ---- the portable kernel ---------------------------------------------------------------------------------------------


def values_of(launch):
    """Items, addresses, whole numbers and the two scalars of a launch of the portable kernel."""
    items, *addresses = launch.words[:4]
    *numbers, alpha, beta = struct.unpack("11q2d", struct.pack("13Q", *launch.words[4:]))
    return items, addresses, numbers, alpha, beta


@pytest.mark.parametrize("libraries", [(FakeLt, FakePlain), (missing, FakePlain), (FakeLt, missing)])
def test_operands_that_no_library_takes_go_to_the_kernel(driver, base, libraries):
    blas = blas_of(driver, *libraries)
    for library in blas.libraries:
        library.supported, library.error = {256}, NOT_SUPPORTED
    run = blas.prepare(ODD)
    assert not driver.compiled, "a kernel that may never be needed"
    for _ in range(3):
        run(base, base + 2, base + 256, 7)
    assert [spec.defines for spec in driver.compiled] == [(("ELEM", "fp16"), ("ELEM_C", "fp32"))]
    assert [launch.stream for launch in driver.launches] == [7] * 3
    assert [values_of(launch) for launch in driver.launches] == [
        (390, [base, base + 2, base + 256], [130, 1, 3, 520, 4, 1, 6, 2, 1, 260, 2], 1.5, 0.0)
    ] * 3


def test_at_other_alignments_libraries_are_asked_as_before(both, driver, base):
    lt, plain = both.libraries
    lt.supported, plain.error = {256}, NOT_SUPPORTED
    run = both.prepare(spec_of(1, 1, 1))
    run(base, base + 8, base, 0)
    run(base, base, base + 256, 0)
    plain.error = None
    run(base, base + 16, base, 0)
    assert (len(lt.multiplied), len(plain.multiplied), len(driver.launches)) == (1, 1, 1)


def test_transposes_are_steps():
    plain = product_launch(spec_of(2, 3, 4, lda=10, ldb=20, ldc=30))
    turned = product_launch(spec_of(2, 3, 4, lda=10, ldb=20, ldc=30, trans_a=True, trans_b=True))
    assert plain[1][:11] == (2, 3, 4, 0, 10, 1, 0, 20, 1, 0, 30)
    assert turned[1][:11] == (2, 3, 4, 0, 1, 10, 0, 1, 20, 0, 30)


def test_without_an_algorithm_the_only_library_leaves_the_product_to_the_kernel(driver, base):
    blas = blas_of(driver, FakeLt, missing)
    blas.libraries[0].supported.clear()
    blas.prepare(spec_of(2, 3, 4))(base, base, base, 0)
    assert len(driver.launches) == 1


@pytest.mark.parametrize("libraries", [(FakeLt, FakePlain), (missing, FakePlain), (FakeLt, missing)])
@pytest.mark.parametrize("rank", [1, 3])
def test_a_rank_that_no_library_has_is_refused_and_not_left_to_the_kernel(driver, libraries, rank):
    blas = blas_of(driver, *libraries)
    for library in blas.libraries:
        library.supported = set()
    with pytest.raises(NoAlgorithmError, match=f"rank {rank}"):
        blas.prepare(spec_of(2, 3, 4, rank=rank))
    assert not driver.compiled


def test_other_failures_of_a_library_are_the_callers_to_hear(both, driver, base):
    lt, plain = both.libraries
    lt.supported, plain.error = {256}, DeviceError("multiply failed", got="EXECUTION_FAILED")
    run = both.prepare(spec_of(1, 1, 1))
    with pytest.raises(DeviceError, match="EXECUTION_FAILED"):
        run(base, base + 8, base, 0)
    assert not driver.launches


def test_a_library_that_fails_to_prepare_is_not_covered_up_by_the_kernel(driver, monkeypatch):
    def fail(self, product):
        raise DeviceError("describing failed")

    monkeypatch.setattr(FakeLt, "describe", fail)
    with pytest.raises(DeviceError, match="describing failed"):
        blas_of(driver, FakeLt, missing).prepare(spec_of(2, 3, 4))
    assert not driver.compiled


def test_a_device_without_a_compiler_says_what_its_libraries_say(base):
    driver = FakeDriver(compiler="")
    blas = blas_of(driver)
    lt, plain = blas.libraries
    lt.supported, plain.error = {256}, NOT_SUPPORTED
    with pytest.raises(NoAlgorithmError, match="NOT_SUPPORTED"):
        blas.prepare(spec_of(1, 1, 1))(base, base + 8, base, 0)
    lt.supported.clear()
    with pytest.raises(NoAlgorithmError, match="no algorithm of rank 0"):
        blas_of(driver, lambda *_: lt, missing).prepare(spec_of(2, 2, 2))


def test_a_kernel_that_does_not_compile_is_an_error_of_the_product(both, driver, base, monkeypatch):
    def fail(spec):
        raise CompileError("it does not compile", log="line 1")

    monkeypatch.setattr(driver, "compile", fail)
    lt, plain = both.libraries
    lt.supported, plain.error = {256}, NOT_SUPPORTED
    with pytest.raises(DeviceError, match=r"no BLAS library of fake:0 takes this product.*m=130.*it does not compile"):
        both.prepare(ODD)(base, base + 2, base, 0)


def test_a_captured_product_allocates_and_loads_nothing(driver, base):
    device = GpuDevice(driver, lambda device: make_blas(device, FakeLt, FakePlain))
    lt, plain = device.blas.libraries
    lt.supported, plain.error = {256}, NOT_SUPPORTED
    run = device.prepare_gemm(ODD)
    run(base, base + 2, base + 256, 0)
    start = len(driver.log)
    replay = device.capture(lambda stream: run(base, base + 2, base + 256, stream))
    assert replay is not None
    assert driver.log[start:] == ["create_stream", "begin_capture", "launch", "end_capture"]


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spec=product_specs(), seed=st.integers(0, 99))
@example(spec=ODD, seed=0)
@example(spec=spec_of(3, 2, 5000, DType.BF16, trans_a=True), seed=1)
@example(spec=spec_of(1, 1, 5000, DType.FP16, trans_b=True, beta=1.0), seed=2)
def test_the_kernel_is_right(spec: GemmSpec, seed: int, host: HostDevice) -> None:
    launch = host.prepare_kernel(*product_launch(spec))
    check_product(spec, lambda a, b, c, stream: launch((a, b, c), stream), seed)
