"""Launches of the gather kernel: forward, and backward data by v4r1, static or dynamic."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

from hipfind.invokers.steps import WORKSPACE, Operand, Step
from hipfind.kernels.spec import Constants, TritonSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.igemm.base import (
    Launch,
    TritonSolver,
    aligned,
    flag_bytes,
    launched,
    merged_groups,
    precision_of,
    three,
    useful_parts,
)
from hipfind.solvers.igemm.sources import (
    Filters,
    Source,
    channel_first_step,
    filters_of,
    is_last,
    packed_last,
    source_of,
)
from hipfind.solvers.igemm.tiles import Product, TileConfig
from hipfind.solvers.igemm.v4r1 import Axis, axes_of
from hipfind.target import Target

_BAND = 8
_FEW_PHASES = 4
"""So few phases run one after the other, the last, which has most taps, first; more run side by side and share dy."""
_WASTE = 1.25
"""Where blocks of channels hold so much more than there are channels, taps and channels are made one index."""


class Operands(NamedTuple):
    """What the kernel reads: source and filters, prepared."""

    source: Source
    filters: Filters
    filter: tuple[int, int, int]
    pad: tuple[int, int, int]
    merged: int
    """Groups that are made one."""

    out: Source | None = None
    """A channel-last output in the workspace, which is copied to the output's own layout at the end."""

    @property
    def nbytes(self) -> int:
        return aligned(self.source.nbytes) + aligned(self.filters.nbytes) + (self.out.nbytes if self.out else 0)


def operands_of(problem: ConvProblem, dynamic: bool = False) -> Operands:
    """Source and filters of a forward or backward-data problem."""
    taps, pad = three(problem.filter, 1), three(problem.pad, 0)
    source = source_of(problem, "x" if problem.direction == "fwd" else "y", 0, dynamic)
    merged = 1 if dynamic else merged_groups(problem)
    filters = filters_of(problem, source.c // problem.groups, aligned(source.nbytes), merged, dynamic)
    operands = Operands(source, filters, taps, pad, merged)
    if problem.direction == "bwd" and problem.stride[-1] > 1 and not is_last(problem.x):
        # the pixels of a phase are not neighbours in a channel-first row: single elements would be stored
        return operands._replace(out=packed_last(problem, "x", operands.nbytes))
    return operands


class GatherSolver(TritonSolver):
    """A convolution by the gather kernel, forward or backward data."""

    __slots__ = ()

    at_run_time: ClassVar[bool] = False
    """Whether sizes are run-time arguments: dynamic."""

    def IsDynamic(self, problem: ConvProblem) -> bool:
        return self.at_run_time

    def product(self, target: Target, problem: ConvProblem) -> Product:
        """Sizes of the largest phase's product, and how many phases and groups there are."""
        operands = operands_of(problem, self.at_run_time)
        axes = axes_of(problem) if problem.direction == "bwd" else ()
        phases = math.prod(problem.stride) if axes else 1
        out = problem.in_spatial if axes else problem.out_spatial
        steps = problem.stride if axes else (1,) * problem.ndim
        m = problem.n * math.prod(-(-extent // step) for extent, step in zip(out, steps, strict=True))
        merged = operands.merged
        n = (problem.c if axes else problem.k) // problem.groups * merged
        taps = [-(-axis.filter // axis.tap_step) for axis in axes] if axes else operands.filter
        k = operands.source.c // problem.groups * merged * math.prod(taps)
        batch = problem.groups // merged * phases
        parts = useful_parts(target, m, n, k, batch, problem.tensor(problem.output).elements)
        return Product(m, n, k, batch, problem.dtype.itemsize, parts)

    def prepared_bytes(self, target: Target, problem: ConvProblem) -> int:
        return _prepared_bytes(operands_of(problem, self.at_run_time), self.product(target, problem))

    def steps(self, target: Target, problem: ConvProblem, config: TileConfig) -> tuple[Step, ...]:
        """Copies where they are needed, the launch, the sum of its parts."""
        dynamic, product = self.at_run_time, self.product(target, problem)
        operands = operands_of(problem, dynamic)
        numbers = _numbers(problem, operands)
        c, merged = numbers["c"], operands.merged
        is_flat = -(-c // config.k) * config.k > _WASTE * c
        fixed = {
            name: numbers.pop(name)
            for name in tuple(numbers)
            if not dynamic or (name in _ALWAYS and numbers[name] <= 1)
        }
        integers = tuple((name, 16 if name in _ALIGNABLE and value % 16 == 0 else 1) for name, value in numbers.items())
        constants: Constants = (
            *fixed.items(), ("BACKWARD", int(problem.direction == "bwd")), ("FLAT", int(is_flat)),
            ("EVEN", int(c % config.k == 0)), ("DYNAMIC", int(dynamic)), ("PLAIN", int(set(problem.dilation) == {1})),
            ("ONE", int(config.split * problem.groups // merged == 1)), ("DEEP", problem.ndim - 2),
            ("LAST_FIRST", int(math.prod(problem.stride) <= _FEW_PHASES)),
            ("SPLIT", config.split), ("BM", config.m), ("BN", config.n), ("BK", config.k),
            ("GROUP", _BAND), ("MERGED", merged), ("PRECISION", precision_of(problem)),
            ("AGAIN", 0),
        )  # fmt: skip
        dtype = problem.dtype.value
        pointers = (("source", dtype), ("w", dtype), ("flags", "i32"), ("out", dtype))
        spec = TritonSpec("gather.py", "gather", pointers, integers, constants, config.warps, config.stages)
        launch = Launch(
            (operands.source.operand, operands.filters.operand), _prepared_bytes(operands, product),
            tuple(numbers.values()), Operand(WORKSPACE, aligned(operands.nbytes) if merged > 1 else 0),
            operands.out.operand if operands.out else None, merged > 1,
        )  # fmt: skip
        main = launched(problem, product, config, spec, launch)
        last = (channel_first_step(problem, operands.out, dynamic),) if operands.out else ()
        return (*operands.source.steps, *operands.filters.steps, *main, *last)


def _prepared_bytes(operands: Operands, product: Product) -> int:
    return aligned(operands.nbytes) + (flag_bytes(product) if operands.merged > 1 else 0)


_ALWAYS = frozenset({"w_out_stride", "w_sum_stride", "out_w_stride", "out_c_stride"})
"""Numbers that decide along which axis elements are neighbours: compiled in also where the rest is not.

If they are 1.
"""
_ALIGNABLE = frozenset({
    "c", "k", "source_n_stride", "source_h_stride", "source_w_stride", "out_n_stride", "out_h_stride", "out_w_stride",
    "w_out_stride", "w_sum_stride", "w_h_stride", "w_w_stride", "w_d_stride", "w_group_stride", "source_d_stride",
    "out_d_stride", "part_stride",
})  # fmt: skip


def _numbers(problem: ConvProblem, operands: Operands) -> dict[str, int]:
    """The kernel's geometry by its arguments' names, in their order."""
    source, filters = operands.source, operands.filters
    output = problem.tensor(problem.output)
    backward = problem.direction == "bwd"
    merged = operands.merged
    axes = (*(Axis(1, 1, 1, 1, 1, 0),) * (3 - problem.ndim), *axes_of(problem))
    out_strides = (output.strides[0], *three(output.strides[2:], 0), output.strides[1])
    if operands.out:
        out_strides = (*operands.out.strides, 1)
    stride, dilation = three(problem.stride, 1), three(problem.dilation, 1)
    steps = stride if backward else (1, 1, 1)
    magics = [_magic(-(-extent // step)) for extent, step in zip(three(output.lengths[2:], 1), steps, strict=True)]
    values = {
        "n": (problem.n,),
        "c": (source.c // problem.groups * merged,),
        "k": (output.lengths[1] // problem.groups * merged,),
        "source_{}": source.spatial,
        "source_{}_stride": source.strides,
        "out_{}": three(output.lengths[2:], 1),
        "out_{}_stride": out_strides,
        "filter_{}": operands.filter,
        "w_{}_stride": (filters.out, filters.summed, *filters.taps, filters.group),
        "stride_{}": stride,
        "pad_{}": operands.pad,
        "dilation_{}": dilation,
        "common_{}": tuple(axis.unit for axis in axes) if backward else (1, 1, 1),
        "inverse_{}": tuple(axis.inverse for axis in axes) if backward else (1, 1, 1),
        "part_stride": (output.elements,),
        "magic_{}": tuple(magic for magic, _ in magics),
        "magic_shift_{}": tuple(shift for _, shift in magics),
    }
    letters = {4: ("n", "d", "h", "w"), 5: ("n", "d", "h", "w", "c"), 6: ("out", "sum", "d", "h", "w", "group")}
    return {
        name.format(letter): number
        for name, group in values.items()
        for letter, number in zip(letters.get(len(group), ("d", "h", "w")), group, strict=False)
    }


def _magic(divisor: int) -> tuple[int, int]:
    """Multiplier (as a signed 32-bit number) and shift of the kernel's ``divided``."""
    shift = (divisor - 1).bit_length()
    multiplier = (((1 << shift) - divisor) << 32) // divisor + 1
    return multiplier - (1 << 32 if multiplier >= 1 << 31 else 0), shift
