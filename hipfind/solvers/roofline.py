"""Expected times without running: each step takes the longer of its arithmetic and its memory traffic, plus a launch.

Source of the model: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

import math

from hipfind.invokers.steps import ClearStep, GemmStep, KernelStep, Step, flat
from hipfind.kernels.spec import GemmSpec, TritonSpec
from hipfind.problem.base import Problem
from hipfind.target import Target

_GEMM_EFFICIENCY = 0.8  # what vendor BLAS reaches of the peak on large, aligned products
_TRITON_EFFICIENCY = 0.5  # what the Triton kernels reach of the peak
_BANDWIDTH_EFFICIENCY = 0.85
_TILES = ((128, 1.0), (64, 0.7), (32, 0.4), (16, 0.2))
"""Output tiles of a GPU's products, and the share of the rate that each reaches."""
_THIN_EFFICIENCY = 0.25  # share of the vector rate that BLAS reaches without matrix cores
_UNALIGNED_SHARE = 0.3  # what is left of the rate where 16-bit rows are not multiples of 16 bytes (measured: 588 bf16)
_GPU_ITEMS = 1024  # work items that keep a compute unit busy
_SPLIT_DEPTH = 512  # shortest part that BLAS splits a long sum into
_HOST_PACKING = 16  # multiply-adds that a CPU could do while it packs or stores one element of a matrix
_HOST_CALL_SECONDS = 1e-7


def expected_time_ms(target: Target, steps: tuple[Step, ...]) -> float:
    """Sum of the steps' expected times in ms."""
    return sum(count * _step_seconds(target, step) for count, step in flat(steps)) * 1e3


def wti(target: Target, problem: Problem, steps: tuple[Step, ...]) -> float:
    """Fraction of peak that the direct algorithm would need to take as long as these steps.

    1.0 where there is nothing to compute (a batch of 0).
    """
    if not problem.flops:
        return 1.0
    seconds = expected_time_ms(target, steps) * 1e-3
    dtype = problem.tensor(problem.output).dtype.value
    return problem.flops / (target.peak(dtype) * seconds)


def _step_seconds(target: Target, step: KernelStep | GemmStep | ClearStep) -> float:
    launch = target.launch_us * 1e-6
    bandwidth = target.bandwidth_gbs * 1e9 * _BANDWIDTH_EFFICIENCY
    if isinstance(step, ClearStep):
        return launch + step.nbytes / bandwidth
    if isinstance(step, KernelStep):
        if isinstance(step.kernel, TritonSpec):
            dtype = step.kernel.pointers[0][1]
            rate = target.peak(dtype) * _TRITON_EFFICIENCY * min(1.0, step.items / target.compute_units)
        else:
            rate = target.vector_tflops * 1e12 * step.efficiency * _used_share(target, step.items)
        return launch + max(step.flops / rate, step.bytes / bandwidth)
    return launch + max(_gemm_seconds(target, step.gemm), step.gemm.min_bytes / bandwidth)


def _used_share(target: Target, items: int) -> float:
    """Share of the device that a kernel keeps busy: few work items leave units idle."""
    at_once = target.compute_units * (1 if target.is_host else _GPU_ITEMS)
    return min(1.0, max(items, 1) / at_once)


def _gemm_seconds(target: Target, gemm: GemmSpec) -> float:
    rate = target.peak(gemm.dtype.value) * _GEMM_EFFICIENCY
    if target.is_host:
        return _cpu_seconds(gemm, rate)
    if gemm.dtype.is_half and not _has_aligned_rows(gemm):
        rate *= _UNALIGNED_SHARE
    tiled = min(_tiled_seconds(target, gemm, tile, rate * share) for tile, share in _TILES)
    if min(gemm.m, gemm.n) >= _TILES[-1][0]:
        return tiled
    return min(tiled, gemm.flops / (target.vector_tflops * 1e12 * _THIN_EFFICIENCY))  # as a matrix by a few vectors


def _cpu_seconds(gemm: GemmSpec, rate: float) -> float:
    """Time on a CPU, whose BLAS packs all elements before it multiplies: thin products are slower.

    Vectors are not packed; a batch is as many calls.
    """
    elements = gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n if min(gemm.m, gemm.n) > 1 else 0
    return gemm.batch * _HOST_CALL_SECONDS + (gemm.flops + 2 * _HOST_PACKING * gemm.batch * elements) / rate


def _has_aligned_rows(gemm: GemmSpec) -> bool:
    """True when every row starts on 16 bytes, which is what the matrix-core kernels of vendor BLAS load at a time."""
    steps = ((gemm.lda, gemm.dtype), (gemm.ldb, gemm.dtype), (gemm.ldc, gemm.dtype_c))
    return all(step * dtype.itemsize % 16 == 0 for step, dtype in steps)


def _tiled_seconds(target: Target, gemm: GemmSpec, tile: int, rate: float) -> float:
    """Time on a GPU with square tiles of the output, one a compute unit; long sums are split while units are idle."""
    tiles = math.ceil(gemm.m / tile) * math.ceil(gemm.n / tile) * gemm.batch
    waves = math.ceil(tiles / target.compute_units)
    depth = max(min(gemm.k, _SPLIT_DEPTH), gemm.k * min(tiles / target.compute_units, 1.0))
    return waves * target.compute_units * 2 * tile * tile * depth / rate
