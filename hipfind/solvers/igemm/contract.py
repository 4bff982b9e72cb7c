"""Axes of the three tensors of a convolution, and the launch that multiplies along them.

Without padding, element (sample, channel, tap) of the source lies at the sum of an offset that depends on the output
pixel and one that depends on the place in a filter's row. So each direction is one product of matrices whose rows and
columns are nested axes of tensors that stay as they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hipfind.invokers.steps import Operand, Step
from hipfind.kernels.spec import Constants, TritonSpec
from hipfind.problem.conv import ConvProblem
from hipfind.problem.tensor import LAYOUTS
from hipfind.solvers.geometry import sizes_of
from hipfind.solvers.igemm.base import Launch, TritonSolver, launched, precision_of, useful_parts
from hipfind.solvers.igemm.tiles import Product, TileConfig
from hipfind.target import Target

Axis = tuple[int, int]
"""Extent and stride in elements."""
_AXES = 4
_BAND = 8
"""Rows of tiles that are worked on together."""


class Index(NamedTuple):
    """A matrix index of ``length`` with its axes in the two tensors that have it, innermost first."""

    length: int
    in_first: tuple[Axis, ...]
    in_second: tuple[Axis, ...]


def pixels_of(problem: ConvProblem) -> Index:
    """Output pixels of all images: axes in x (its first tap) and in y."""
    in_x = [
        (out, step * stride)
        for out, step, stride in zip(problem.out_spatial, problem.stride, problem.x.strides[2:], strict=True)
    ]
    in_y = list(zip(problem.out_spatial, problem.y.strides[2:], strict=True))
    length = problem.n * sizes_of(problem).output
    return Index(
        length,
        collapsed([*reversed(in_x), (problem.n, problem.x.strides[0])]),
        collapsed([*reversed(in_y), (problem.n, problem.y.strides[0])]),
    )


def row_of(problem: ConvProblem) -> Index:
    """Places in a filter's row in the order of w's memory: axes in x and in w."""
    c_group = problem.c // problem.groups
    in_x = [(c_group, problem.x.strides[1])] + [
        (taps, step * stride)
        for taps, step, stride in zip(problem.filter, problem.dilation, problem.x.strides[2:], strict=True)
    ]
    if not problem.w.is_packed_as(LAYOUTS[problem.ndim][0]):
        in_x = [*in_x[1:], in_x[0]]  # channels innermost
    length = sizes_of(problem).row
    return Index(length, collapsed(list(reversed(in_x))), ((length, 1),))


def filters_of(problem: ConvProblem) -> Index:
    """Output channels of a group: axes in w and in y."""
    k_group = problem.k // problem.groups
    return Index(k_group, ((k_group, problem.w.strides[0]),), ((k_group, problem.y.strides[1]),))


def collapsed(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Nested axes, innermost first, with those that continue each other made one."""
    result: list[Axis] = []
    for extent, stride in axes:
        if extent == 1:
            continue
        if result and stride == result[-1][0] * result[-1][1]:
            result[-1] = (result[-1][0] * extent, result[-1][1])
        else:
            result.append((extent, stride))
    return tuple(result) or ((1, 0),)


def flat(axes: tuple[Axis, ...]) -> tuple[int, ...]:
    """As the kernel takes them: four pairs, the outermost axis with extent 0, which means the rest."""
    open_ended = [*axes[:-1], (0, axes[-1][1])]
    if len(open_ended) == _AXES:
        open_ended[-1] = axes[-1]
    return tuple(number for pair in (open_ended + [(0, 0)] * _AXES)[:_AXES] for number in pair)


class Operation(NamedTuple):
    """C[i, j] = sum over k of A[i, k] B[k, j]: buffers, index lengths, axes of each operand, distance of groups."""

    a: str
    b: str
    c: str
    i: int
    j: int
    k: int
    axes: dict[str, tuple[Axis, ...]]
    batch: tuple[int, int, int]


def operation_of(problem: ConvProblem) -> Operation:
    """The product of a problem's direction."""
    m, j, k = pixels_of(problem), row_of(problem), filters_of(problem)
    x = problem.c // problem.groups * problem.x.strides[1]
    w = k.length * problem.w.strides[0]
    y = k.length * problem.y.strides[1]
    if problem.direction == "fwd":
        axes = {"A_I": m.in_first, "A_K": j.in_first, "B_K": j.in_second, "B_J": k.in_first,
                "C_I": m.in_second, "C_J": k.in_second}  # fmt: skip
        return Operation("x", "w", "y", m.length, k.length, j.length, axes, (x, w, y))
    if problem.direction == "bwd":
        axes = {"A_I": m.in_second, "A_K": k.in_second, "B_K": k.in_first, "B_J": j.in_second,
                "C_I": m.in_first, "C_J": j.in_first}  # fmt: skip
        return Operation("y", "w", "x", m.length, j.length, k.length, axes, (y, w, x))
    axes = {"A_I": k.in_second, "A_K": m.in_second, "B_K": m.in_first, "B_J": j.in_first,
            "C_I": k.in_first, "C_J": j.in_second}  # fmt: skip
    return Operation("y", "x", "w", k.length, j.length, m.length, axes, (y, x, w))


class ContractSolver(TritonSolver):
    """A convolution as one product on tensors as they lie; its solvers say where that is right."""

    __slots__ = ()

    def product(self, target: Target, problem: ConvProblem) -> Product:
        operation = operation_of(problem)
        i, j, k = operation.i, operation.j, operation.k
        parts = useful_parts(target, i, j, k, problem.groups, problem.tensor(problem.output).elements)
        return Product(i, j, k, problem.groups, problem.dtype.itemsize, parts)

    def prepared_bytes(self, target: Target, problem: ConvProblem) -> int:
        return 0

    def steps(self, target: Target, problem: ConvProblem, config: TileConfig) -> tuple[Step, ...]:
        operation = operation_of(problem)
        types = [(name, problem.dtype.value) for name in ("a", "b", "c")]
        a, b, c = operation.batch if problem.groups > 1 else (0, 0, 0)  # no unknown distance in addresses
        constants: Constants = (
            ("I", operation.i), ("J", operation.j), ("K", operation.k),
            *((name, flat(axes)) for name, axes in operation.axes.items()),
            ("BATCH_A", a), ("BATCH_B", b), ("BATCH_C", c), ("PART", problem.tensor(problem.output).elements),
            ("BM", config.m), ("BN", config.n), ("BK", config.k), ("SPLIT", config.split), ("GROUP", _BAND),
            ("PRECISION", precision_of(problem)),
        )  # fmt: skip
        spec = TritonSpec("contract.py", "contract", tuple(types), (), constants, config.warps, config.stages)
        launch = Launch((Operand(operation.a), Operand(operation.b)), prepared_bytes=0)
        return launched(problem, self.product(target, problem), config, spec, launch)
