"""What the channel-last solvers with columns share: their rule, the columns, and blocks of images.

The columns of B images are a matrix [B * output positions, groups * taps * C/groups], whose rows list a window as a row
of channel-last w does. So w is used as it lies, and y holds the other matrix [B * output positions, K].
"""

from __future__ import annotations

from typing import NamedTuple

from hipfind.invokers.steps import KernelStep, Operand
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.gemm.products import images_at_a_time
from hipfind.solvers.geometry import sizes_of
from hipfind.solvers.kernel_steps import im2col_last_step
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target

_ROW_BYTES = 16  # multiples that matrix cores load


class Blocks(NamedTuple):
    """Images are multiplied ``images`` at a time, ``whole`` times, then the ``rest``.

    Rows of the columns lie ``pitch`` elements apart; ``columns_bytes`` hold those of ``images`` images.
    """

    images: int
    whole: int
    rest: int
    pitch: int
    columns_bytes: int


def applies(target: Target, problem: ConvProblem, direction: str) -> Applicability:
    """What the rules of all GEMM solvers ask for, and channel-last tensors that are not channel-first as well."""
    return rules.common(target, problem, direction) and rules.channel_last(problem)


def blocks_of(target: Target, problem: ConvProblem) -> Blocks:
    """Columns of a GPU begin their rows at multiples of 16 bytes."""
    sizes = sizes_of(problem)
    unit = 1 if target.is_host else _ROW_BYTES // sizes.itemsize
    pitch = -(-sizes.c * sizes.taps // unit) * unit
    image_bytes = sizes.output * pitch * sizes.itemsize
    images = images_at_a_time(target, sizes.n, sizes.output, image_bytes)
    return Blocks(images, *divmod(sizes.n, images), pitch, images * image_bytes)


def columns_of(
    target: Target, problem: ConvProblem, blocks: Blocks, first: int, images: int, columns: Operand
) -> KernelStep:
    """Columns of ``images`` images from image ``first`` on; a loop around this step moves on by a block's images."""
    sizes = sizes_of(problem)
    x_bytes = sizes.x_image * sizes.itemsize
    source = Operand("x", first * x_bytes, blocks.images * x_bytes)
    return im2col_last_step(target, problem, images, blocks.pitch, source, columns)
