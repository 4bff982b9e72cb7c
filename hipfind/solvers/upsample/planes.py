"""How the kernels see x and y: as planes of rows of pixels, a pixel being one element or neighbouring channels."""

from __future__ import annotations

from typing import NamedTuple

from hipfind.problem.tensor import TensorDescriptor
from hipfind.problem.upsample import UpsampleProblem


class Steps(NamedTuple):
    """Distances in elements, in the order of the kernels' struct Steps. 0 for steps that are never taken."""

    image: int
    plane: int
    row: int
    pixel: int

    def are_multiples(self, of: int) -> bool:
        return all(step % of == 0 for step in self)


class Planes(NamedTuple):
    """``inner`` neighbouring channels make a pixel; ``per_image`` planes an image; ``total`` of them in all."""

    total: int
    per_image: int
    inner: int
    x: Steps
    y: Steps

    @property
    def is_flat(self) -> bool:
        """The pixels of a row of y are neighbours."""
        return self.y.pixel == self.inner


def planes_of(problem: UpsampleProblem, inner: int = 1) -> Planes:
    """Planes with ``inner`` channels in a pixel, which must be neighbours in x and y where there are more than 1."""
    per_image = problem.c // inner
    return Planes(
        problem.n * per_image,
        per_image,
        inner,
        _steps(problem.x, inner),
        _steps(problem.y, inner),
    )


def has_neighbouring_channels(problem: UpsampleProblem) -> bool:
    """Channels are neighbours in x and in y."""
    return problem.c > 1 and problem.y.strides[1] == problem.x.strides[1] == 1


def has_neighbouring_columns(problem: UpsampleProblem) -> bool:
    """Pixels of a row of y are neighbours."""
    return problem.y.lengths[3] == 1 or problem.y.strides[3] == 1


def _steps(tensor: TensorDescriptor, inner: int) -> Steps:
    image, channel, row, pixel = tensor.strides
    n, c, height, width = tensor.lengths
    return Steps(
        image if n > 1 else 0,
        channel * inner if c > inner else 0,
        row if height > 1 else 0,
        pixel if width > 1 else inner,
    )
