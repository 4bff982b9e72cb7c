"""BLAS libraries in Python for tests of what all GPUs share, on the fake driver's host memory."""

from __future__ import annotations

import ctypes

import numpy as np

from hipfind.device.gpu_blas import Algorithm, AlgorithmRefused, LtBlas, NoAlgorithmError
from hipfind.device.gpu_products import PlainBlas
from hipfind.problem.dtypes import DType
from tests.helpers.fake_driver import FakeDriver


class FakeLt(LtBlas):
    """Computes column-major products with numpy on host memory, as strictly as a BLAS library."""

    version = "fake"

    def __init__(self, device, driver):
        super().__init__(device, driver)
        self.rankings = []
        self.multiplied = []
        self.released = []
        self.supported = {256, 128, 64, 32, 16, 8}
        self.workspace_bytes = 0
        self.ranked = {}  # how many algorithms, where not 3, by alignment
        self.refused = set()  # algorithms that are ranked, but that multiply does not take

    def describe(self, product):
        for matrix in (product.a, product.b, product.c):
            assert matrix.ld >= max(matrix.rows, 1)
        assert (product.a.rows, product.a.cols)[:: -1 if product.trans_a else 1] == (product.m, product.k)
        assert (product.b.rows, product.b.cols)[:: -1 if product.trans_b else 1] == (product.k, product.n)
        assert (product.c.rows, product.c.cols) == (product.m, product.n)
        return (product, self.released)

    @staticmethod
    def release(descriptors):
        product, released = descriptors
        released.append(product)

    def rank(self, descriptors, budget, alignment, count):
        self.rankings.append((budget, alignment, count))
        if alignment not in self.supported:
            return []
        return [Algorithm(index, self.workspace_bytes) for index in range(min(count, self.ranked.get(alignment, 3)))]

    def multiply(self, descriptors, scalars, operands, algorithm, workspace, stream):
        assert FakeDriver.current() == self.driver.ordinal
        product, _ = descriptors
        if algorithm.handle in self.refused:
            raise AlgorithmRefused("not supported", got=algorithm.handle)
        self.multiplied.append((algorithm, workspace, stream))
        kind = ctypes.c_double if product.a.dtype is DType.FP64 else ctypes.c_float
        alpha, beta = (kind.from_address(place).value for place in (scalars.alpha, scalars.beta))
        for entry in range(product.batch):
            a, b, c = (
                stored(matrix, address, entry)
                for matrix, address in zip((product.a, product.b, product.c), operands, strict=True)
            )
            result = alpha * ((a.T if product.trans_a else a) @ (b.T if product.trans_b else b))
            c[...] = result if beta == 0 else result + beta * c


def stored(matrix, address, entry):
    size = matrix.dtype.itemsize
    span = (matrix.rows + (matrix.cols - 1) * matrix.ld) * size
    raw = (ctypes.c_char * span).from_address(address + entry * matrix.stride * size)
    strides = (size, matrix.ld * size)
    return np.ndarray((matrix.rows, matrix.cols), matrix.dtype.numpy, buffer=raw, strides=strides)


class FakePlain(PlainBlas):
    """Writes down what it is asked for, or does not support it."""

    version = "plain"

    def __init__(self, device, driver):
        super().__init__(device, driver)
        self.multiplied = []
        self.error = None  # what a product raises, where not None

    def multiply(self, product, scalars, operands, stream):
        assert FakeDriver.current() == self.driver.ordinal
        if self.error is not None:
            raise self.error
        self.multiplied.append((product, operands, stream))


NOT_SUPPORTED = NoAlgorithmError("multiply failed", got="NOT_SUPPORTED")
