"""Copies around the 1x1 stride-2 products: the pixels of x that are used, and images against channels in y."""

from __future__ import annotations

from typing import NamedTuple

from hipfind.invokers.steps import ClearStep, KernelStep, Operand
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.geometry import sizes_of
from hipfind.solvers.kernel_steps import copy_step
from hipfind.target import Target


class UsedPixels(NamedTuple):
    """The pixels of x that a 1x1 filter touches, as a block of four lengths: strides in x, strides when packed."""

    lengths: tuple[int, ...]
    in_x: tuple[int, ...]
    packed: tuple[int, ...]


def used_bytes(problem: ConvProblem) -> int:
    """Bytes of the pixels of x that are used: as many as y has, with the channels of x."""
    sizes = sizes_of(problem)
    return sizes.n * sizes.c * sizes.output * sizes.itemsize


def used_as_channels(problem: ConvProblem) -> UsedPixels:
    """Of channel-first x, packed [C, N * output positions] (CNHW)."""
    (n, c, _, _), (height, width) = problem.x.lengths, problem.out_spatial
    by_n, by_c, by_h, by_w = problem.x.strides
    down, right = problem.stride
    plane = height * width
    return UsedPixels((c, n, height, width), (by_c, by_n, by_h * down, by_w * right), (n * plane, plane, width, 1))


def used_as_rows(problem: ConvProblem) -> UsedPixels:
    """Of channel-last x, packed [N * output positions, C]."""
    (n, c, _, _), (height, width) = problem.x.lengths, problem.out_spatial
    by_n, by_c, by_h, by_w = problem.x.strides
    down, right = problem.stride
    row = width * c
    return UsedPixels((n, height, width, c), (by_n, by_h * down, by_w * right, by_c), (height * row, row, c, 1))


def clear_unused(problem: ConvProblem) -> tuple[ClearStep, ...]:
    """Zeros for the pixels of dx that get no gradient; nothing where every pixel is used (a 1x1 image)."""
    sizes = sizes_of(problem)
    return (ClearStep(Operand("x"), problem.x.nbytes),) if sizes.image > sizes.output else ()


def y_to_channels(target: Target, problem: ConvProblem, y: Operand, channels: Operand) -> KernelStep:
    """Copy of channel-first y to [K, N * output positions]."""
    lengths, in_y, by_channel = _y_planes(problem)
    return copy_step(target, problem.dtype, lengths, y, in_y, channels, by_channel)


def channels_to_y(target: Target, problem: ConvProblem, channels: Operand, y: Operand) -> KernelStep:
    """Copy of [K, N * output positions] to channel-first y."""
    lengths, in_y, by_channel = _y_planes(problem)
    return copy_step(target, problem.dtype, lengths, channels, by_channel, y, in_y)


def _y_planes(problem: ConvProblem) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    n, k, plane = problem.n, problem.k, sizes_of(problem).output
    return (1, n, k, plane), (0, k * plane, plane, 1), (0, plane, n * plane, 1)
