"""Building blocks of the GEMM solvers: batches of products, loops over images, sums over images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from hipfind.invokers.steps import WORKSPACE, GemmStep, LoopStep, Operand, PlainStep, Step
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.conv import ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.solvers.kernel_steps import cast_step
from hipfind.target import Target

_HOST_POSITIONS, _GPU_POSITIONS = 2048, 1 << 16
_HOST_ROOM, _GPU_ROOM = 64 << 20, 1 << 30


class Stack(NamedTuple):
    """Equal products side by side: how many, and how far apart their A, B and C lie, in elements."""

    length: int
    a: int
    b: int
    c: int


def batched(gemm: GemmSpec, stack: Stack) -> GemmSpec:
    """The strided-batched product of a stack; a stack of one is the product itself."""
    if stack.length == 1:
        return gemm
    return dataclasses.replace(gemm, batch=stack.length, stride_a=stack.a, stride_b=stack.b, stride_c=stack.c)


def batched_twice(gemm: GemmSpec, a: Operand, b: Operand, c: Operand, one: Stack, other: Stack) -> tuple[Step, ...]:
    """Products that repeat in two ways (images and groups): a loop over the shorter stack, the longer one as batch."""
    short, long = sorted((one, other), key=lambda stack: stack.length)
    size = gemm.dtype.itemsize
    operands = (
        dataclasses.replace(operand, advance=distance * size)
        for operand, distance in zip((a, b, c), short[1:], strict=True)
    )
    return repeated(short.length, GemmStep(batched(gemm, long), *operands))


def repeated(count: int, *body: PlainStep) -> tuple[Step, ...]:
    """The body ``count`` times, as a loop only where it is more than once."""
    if count == 0:
        return ()
    return body if count == 1 else (LoopStep(count, body),)


def images_at_a_time(target: Target, images: int, positions: int, image_bytes: int) -> int:
    """How many images, of so many positions and bytes of workspace each, to multiply at a time; divided evenly.

    As many as make a product with as many rows or columns as the target does well, within a sensible workspace.
    """
    wanted, room = (_HOST_POSITIONS, _HOST_ROOM) if target.is_host else (_GPU_POSITIONS, _GPU_ROOM)
    most = max(1, min(images, -(-wanted // positions), room // image_bytes))
    return -(-images // -(-images // most))


class WeightSum(NamedTuple):
    """Where a weight gradient is summed up over images: the target and type of the products, and the last step."""

    target: Operand
    dtype: DType
    finish: tuple[Step, ...]


def weight_sum_bytes(problem: ConvProblem) -> int:
    """Workspace of ``weight_sum``: fp32 sums where 16-bit weights would be rounded once an image, else none."""
    return DType.FP32.itemsize * problem.w.elements if problem.dtype.is_half and problem.n > 1 else 0


def weight_sum(problem: ConvProblem, offset: int) -> WeightSum:
    """Sum over images in dw itself, or in fp32 at ``offset`` of the workspace and rounded once at the end."""
    if not weight_sum_bytes(problem):
        return WeightSum(Operand("w"), problem.dtype, ())
    sums = Operand(WORKSPACE, offset)
    return WeightSum(sums, DType.FP32, (cast_step(problem.dtype, sums, Operand("w"), problem.w.elements),))


def summed_over_images(n: int, steps_of: Callable[[int, float], tuple[PlainStep, ...]]) -> tuple[Step, ...]:
    """``steps_of(first image, beta)`` for every image: the first overwrites, the others, in a loop, add to it."""
    return (*steps_of(0, 0.0), *repeated(n - 1, *steps_of(1, 1.0)))
