from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipfind.invokers.steps import ClearStep, GemmStep, KernelStep, LoopStep, Operand, Step
from hipfind.kernels.spec import GemmSpec, KernelSpec
from hipfind.problem import ConvProblem, DType
from hipfind.solvers import roofline
from hipfind.solvers.registry import default_registry
from hipfind.target import KNOWN_TARGETS, Target, known
from tests.helpers.conv_cases import DIRECTIONS, conv_shapes, row_arguments
from tests.helpers.shared import needs_shared

SOLVERS = default_registry().for_operation("conv")
POINT_SOLVER = {"fwd": "GemmFwdRest", "bwd": "GemmBwdRest", "wrw": "GemmWrwUniversal"}
PADDED_SOLVER = {"fwd": "GemmFwdPointPadded", "bwd": "GemmBwdPointPadded", "wrw": "GemmWrwPointPadded"}
CONTRACT_SOLVER = {direction: f"ConvTritonContract{direction.title()}" for direction in POINT_SOLVER}
"""Products by matrix cores of tensors as they lie, as those of a BLAS."""
NAIVE = {"fwd": "ConvDirectNaiveConvFwd", "bwd": "ConvDirectNaiveConvBwd", "wrw": "ConvDirectNaiveConvWrw"}
HOST, GPU = known("x86_64"), known("gfx942")


def by_wti(target: Target, problem: ConvProblem) -> list[str]:
    """Ids of the solvers that apply, the best expectation first."""
    applicable = [solver for solver in SOLVERS if solver.IsApplicable(target, problem)]
    return [s.SolverDbId() for s in sorted(applicable, key=lambda s: s.GetWti(target, problem), reverse=True)]


def gemm(m: int = 512, n: int = 512, k: int = 512, **more: Any) -> GemmStep:
    spec = GemmSpec(m, n, k, DType.FP32, DType.FP32, lda=k, ldb=n, ldc=n, **more)
    return GemmStep(spec, Operand("x"), Operand("w"), Operand("y"))


def kernel(flops: int = 10**9, nbytes: int = 10**6, efficiency: float = 0.5) -> KernelStep:
    return KernelStep(KernelSpec("cast.hip", "cast_from_fp32"), (), (), 10**9, flops, nbytes, efficiency)


def ms(target: Target, *steps: Step) -> float:
    return roofline.expected_time_ms(target, steps)


@pytest.mark.parametrize("target", KNOWN_TARGETS, ids=lambda target: target.arch)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_point_output_is_ranked_first_and_naive_last(target: Target, direction: str) -> None:
    for (x, w, stride), dtype, layout in itertools.product(
        (
            ((9500, 3, 14, 14), (1280, 3, 14, 14), 14),
            ((2375, 3, 14, 14), (1280, 3, 14, 14), 14),
            ((1024, 3, 2, 14, 14), (1280, 3, 2, 14, 14), (2, 14, 14)),
            ((128, 512, 4, 4), (100, 512, 4, 4), 1),
        ),
        ("fp32", "bf16", "fp16"),
        ("first", "last"),
    ):
        name = {4: {"first": "NCHW", "last": "NHWC"}, 5: {"first": "NCDHW", "last": "NDHWC"}}[len(x)][layout]
        problem = ConvProblem.create(direction, x, w, stride=stride, dtype=dtype, layout=name)
        names = by_wti(target, problem)
        assert names[0] in (POINT_SOLVER[direction], PADDED_SOLVER[direction], CONTRACT_SOLVER[direction]), names
        assert names[-1] == NAIVE[direction] and len(names) >= 2


@needs_shared
@pytest.mark.parametrize("target", KNOWN_TARGETS, ids=lambda target: target.arch)
def test_naive_is_seldom_ranked_first_for_real_shapes(target: Target) -> None:
    """On a CPU products win; on a GPU a loop of launches over images may not pay for depthwise and small problems."""
    first = []
    for row in conv_shapes():
        problem = ConvProblem.create(**row_arguments(row))
        names = by_wti(target, problem)
        if len(names) > 1:
            first.append(names[0])
    naive = sum(name == NAIVE[direction] for name in first for direction in DIRECTIONS)
    assert len(first) >= 100
    assert naive <= (0.05 if target.is_host else 0.15) * len(first)


@pytest.mark.parametrize("target", KNOWN_TARGETS, ids=lambda target: target.arch)
def test_products_without_copies_are_ranked_before_those_with(target: Target) -> None:
    for direction in DIRECTIONS:
        pointwise = ConvProblem.create(direction, (8, 256, 28, 28), (128, 256, 1, 1))
        first = by_wti(target, pointwise)[0]
        assert "1x1" in first or first == CONTRACT_SOLVER[direction]


def test_times_of_steps_add_up_and_loops_multiply() -> None:
    for target in (HOST, GPU):
        steps = (gemm(), kernel(), ClearStep(Operand("x"), 10**6))
        total = sum(ms(target, step) for step in steps)
        assert math.isclose(ms(target, *steps), total)
        assert math.isclose(ms(target, LoopStep(7, steps)), 7 * total)
        assert ms(target) == 0.0


def test_each_step_costs_at_least_its_launch_and_its_traffic() -> None:
    for target in (HOST, GPU):
        tiny, clear = gemm(1, 1, 1), ClearStep(Operand("x"), 10**9)
        assert ms(target, tiny) >= target.launch_us * 1e-3
        assert ms(target, clear) >= target.launch_us * 1e-3 + 1e9 / target.bandwidth_gbs * 1e-6
        assert ms(target, kernel(flops=0, nbytes=10**9)) == pytest.approx(ms(target, clear))


def test_kernels_run_at_their_share_of_the_vector_rate() -> None:
    slow, fast = ms(GPU, kernel(efficiency=0.1)), ms(GPU, kernel(efficiency=0.5))
    launch = GPU.launch_us * 1e-3
    assert (slow - launch) == pytest.approx(5 * (fast - launch))


def test_many_small_products_cost_more_than_one_large() -> None:
    """As much arithmetic: in a loop, as a batch, at once."""
    for target in (HOST, GPU):
        at_once = ms(target, gemm(64 * 64, 64, 64))
        batch = ms(target, gemm(64, 64, 64, batch=64, stride_a=4096, stride_c=4096))
        loop = ms(target, LoopStep(64, (gemm(64, 64, 64),)))
        assert at_once <= batch < loop


def test_a_gpu_needs_enough_tiles_to_fill_it() -> None:
    """A few tiles past a full wave cost much of another wave; one small product alone leaves most units idle."""
    depth, launch, units = 512, GPU.launch_us * 1e-3, GPU.compute_units
    wave, more = (ms(GPU, gemm(128, 128 * tiles, depth)) - launch for tiles in (units, units + 1))
    assert 1.2 * wave < more <= 2 * wave
    alone = ms(GPU, gemm(128, 128, depth)) - launch
    assert alone > 10 * wave / units


def test_a_kernel_needs_enough_items_to_fill_a_device() -> None:
    for target in (HOST, GPU):
        launch = target.launch_us * 1e-3
        few, many = (ms(target, dataclasses.replace(kernel(), items=items)) - launch for items in (1, 10**9))
        assert few > 1.9 * many
        assert many == pytest.approx(ms(target, dataclasses.replace(kernel(), items=10**8)) - launch)


def test_rows_off_16_bytes_slow_16_bit_products_on_a_gpu_only() -> None:
    def half(row: int, dtype: DType = DType.BF16) -> GemmStep:
        spec = GemmSpec(9500, 1280, row, dtype, dtype, lda=row, ldb=row, ldc=1280, trans_b=True)
        return GemmStep(spec, Operand("x"), Operand("w"), Operand("y"))

    assert ms(GPU, half(588)) > 2 * ms(GPU, half(592))
    assert ms(HOST, half(588)) < ms(HOST, half(592))
    assert ms(GPU, half(588, DType.FP32)) < ms(GPU, half(592, DType.FP32))


def test_a_product_with_a_vector_is_bound_by_memory() -> None:
    vector = gemm(1, 4096, 25088)
    traffic = vector.gemm.min_bytes / GPU.bandwidth_gbs * 1e-6
    assert ms(GPU, vector) < 1.3 * traffic


def test_long_sums_with_few_outputs_are_split_over_a_gpu() -> None:
    """As BLAS does: 128 x 100 outputs of 100,000 products do not take as long as one unit needs for them."""
    launch = GPU.launch_us * 1e-3
    short, long = ms(GPU, gemm(128, 100, 512)) - launch, ms(GPU, gemm(128, 100, 512 * 16)) - launch
    assert short <= long < 4 * short
    full = gemm(128 * 64, 128 * 64, 512), gemm(128 * 64, 128 * 64, 512 * 16)
    assert (ms(GPU, full[1]) - launch) == pytest.approx(16 * (ms(GPU, full[0]) - launch))


@given(
    sizes=st.tuples(*[st.integers(1, 3000)] * 3),
    axis=st.integers(0, 2),
    target=st.sampled_from(KNOWN_TARGETS),
    batch=st.integers(1, 40),
)
def test_more_work_never_takes_less_time(sizes: tuple[int, int, int], axis: int, target: Target, batch: int) -> None:
    larger = tuple(2 * size if i == axis else size for i, size in enumerate(sizes))
    more = {"batch": batch, "stride_a": 1, "stride_b": 1, "stride_c": 1}
    assert 0 < ms(target, gemm(*sizes, **more)) <= ms(target, gemm(*larger, **more)) * (1 + 1e-12)


def test_wti_is_the_share_of_peak_as_if_the_direct_algorithm_ran() -> None:
    problem = ConvProblem.create("fwd", (9500, 3, 14, 14), (1280, 3, 14, 14), stride=14)
    steps = default_registry().get("GemmFwdRest").GetSolution(GPU, problem).steps
    seconds = roofline.expected_time_ms(GPU, steps) * 1e-3
    assert roofline.wti(GPU, problem, steps) == pytest.approx(problem.flops / seconds / GPU.peak("fp32"))
    assert 0 < roofline.wti(GPU, problem, steps) < 1


def test_wti_of_an_empty_problem_is_finite_and_positive() -> None:
    problem = ConvProblem.create("fwd", (0, 3, 14, 14), (8, 3, 14, 14))
    for steps in ((), (ClearStep(Operand("w"), 100),)):
        assert roofline.wti(HOST, problem, steps) == 1.0


def test_a_faster_device_expects_less_time() -> None:
    problem = ConvProblem.create("bwd", (64, 64, 28, 28), (64, 64, 3, 3), pad=1)
    steps = default_registry().get("GemmBwdRest").GetSolution(GPU, problem).steps
    fast = dataclasses.replace(
        GPU, bandwidth_gbs=2 * GPU.bandwidth_gbs, vector_tflops=2 * GPU.vector_tflops, launch_us=GPU.launch_us / 2,
        peak_tflops=tuple((name, 2 * rate) for name, rate in GPU.peak_tflops),
    )  # fmt: skip
    assert roofline.expected_time_ms(fast, steps) == pytest.approx(roofline.expected_time_ms(GPU, steps) / 2)
