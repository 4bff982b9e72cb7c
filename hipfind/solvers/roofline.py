"""Expected times without running: each step takes the longer of its arithmetic and its memory traffic, plus a launch.

Source of the model: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

import math

from hipfind.invokers.steps import ClearStep, GemmStep, KernelStep, Step, flat
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.base import Problem
from hipfind.target import Target

_GEMM_EFFICIENCY = 0.8  # what vendor BLAS reaches of the peak on large, aligned products
_BANDWIDTH_EFFICIENCY = 0.85
_TILE = 128  # output tile of a matrix-core GEMM
_HOST_PACKING = 16  # multiply-adds that a CPU could do while it packs or stores one element of a matrix


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
        rate = target.vector_tflops * 1e12 * step.efficiency
        return launch + max(step.flops / rate, step.bytes / bandwidth)
    return launch + max(_gemm_seconds(target, step.gemm), step.gemm.min_bytes / bandwidth)


def _gemm_seconds(target: Target, gemm: GemmSpec) -> float:
    rate = target.peak(gemm.dtype.value) * _GEMM_EFFICIENCY
    if target.is_host:
        # BLAS packs every element before it multiplies, so products that are thin in any direction are slower.
        packed = gemm.batch * (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
        return (gemm.flops + 2 * _HOST_PACKING * packed) / rate
    # A product with fewer tiles than compute units leaves some of them idle, one tile past a full wave costs a wave.
    tiles = math.ceil(gemm.m / _TILE) * math.ceil(gemm.n / _TILE) * gemm.batch
    waves = math.ceil(tiles / target.compute_units)
    tile_flops = 2 * _TILE * _TILE * gemm.k
    return waves * target.compute_units * tile_flops / rate
