"""ConvTritonIgemmWrw: weight gradient as an implicit matrix product over a channel-last x, by matrix cores.

dw[k, (tap, channel)] = sum over output pixels of dy[pixel, k] x[pixel + tap, channel]. The sum is cut into parts
(split-K), which are added in fixed order: deterministic, in fp32. dy is read as it lies in either layout; a channel-
first x is copied to channel-last first, and up to four channels (an image) become one run with the columns of a
window. Padding, dilation, stride, groups, 2D and 3D. Sizes are compiled in.

Source: implicit GEMM as in cuDNN (arXiv:1410.0759); split-K with parts of equal length.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hipfind.invokers.steps import Step
from hipfind.kernels.spec import Constants, TritonSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.geometry import lies_channel_last
from hipfind.solvers.igemm import base
from hipfind.solvers.igemm.base import Launch, TritonSolver, launched, precision_of, three, useful_parts
from hipfind.solvers.igemm.contract import collapsed, flat
from hipfind.solvers.igemm.contract_wrw import ConvTritonContractWrw
from hipfind.solvers.igemm.sources import FEW, Source, as_it_lies, has_runs, runs_of, source_of
from hipfind.solvers.igemm.tiles import Product, TileConfig
from hipfind.solvers.reasons import Applicability
from hipfind.target import Target

_BAND = 8
_MOST_WASTE = 1.34
"""Lines of pixels are lengthened to a power of two where they are not much longer then."""


class ConvTritonIgemmWrw(TritonSolver):
    """Any weight gradient of packed tensors; half precision, fp32 where matrix cores take it."""

    __slots__ = ()

    solver_id = "ConvTritonIgemmWrw"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = base.common(target, problem, "wrw") and base.left_over(target, problem, ConvTritonContractWrw())
        return answer and rules.feasible(target, self.GetSolution(target, problem))

    def product(self, target: Target, problem: ConvProblem) -> Product:
        operands = _operands_of(problem)
        merged = base.merged_groups(problem)
        m = problem.k // problem.groups * merged
        n = operands.x.c * merged // problem.groups * math.prod(operands.taps)
        k = problem.n * math.prod(problem.out_spatial[:-1]) * operands.line
        batch = problem.groups // merged
        parts = useful_parts(target, m, n, k, batch, problem.w.elements)
        return Product(m, n, k, batch, problem.dtype.itemsize, parts)

    def prepared_bytes(self, target: Target, problem: ConvProblem) -> int:
        return _operands_of(problem).nbytes

    def steps(self, target: Target, problem: ConvProblem, config: TileConfig) -> tuple[Step, ...]:
        operands = _operands_of(problem)
        dtype = problem.dtype.value
        constants: Constants = (
            *_geometry(problem, operands, config.split > 1), ("PART", problem.w.elements), ("BM", config.m),
            ("BN", config.n),
            ("BK", config.k), ("SPLIT", config.split), ("GROUP", _BAND), ("PRECISION", precision_of(problem)),
        )  # fmt: skip
        pointers = (("dy", dtype), ("x", dtype), ("dw", dtype))
        spec = TritonSpec("weights.py", "weights", pointers, (), constants, config.warps, config.stages)
        launch = Launch(
            (operands.dy.operand, operands.x.operand), operands.nbytes, sum_axes=_from_channel_last(problem)
        )
        steps = launched(problem, self.product(target, problem), config, spec, launch)
        return (*operands.x.steps, *operands.dy.steps, *steps)


class _Operands(NamedTuple):
    """x and dy as the kernel reads them; taps that are told apart; places of a line of pixels."""

    x: Source
    dy: Source
    taps: tuple[int, int, int]
    pad: tuple[int, int, int]
    line: int

    @property
    def nbytes(self) -> int:
        return base.aligned(self.x.nbytes) + self.dy.nbytes


def _operands_of(problem: ConvProblem) -> _Operands:
    taps, pad = three(problem.filter, 1), three(problem.pad, 0)
    if has_runs(problem):
        columns = _run_columns(problem)
        # a run of the last window may end in a column behind the image
        x = runs_of(problem, 0, problem.in_spatial[1] + problem.pad[1] + problem.pad_end[1] + columns - taps[2])
        x, taps, pad = x._replace(c=FEW * columns), (1, taps[1], 1), (0, 0, 0)
    else:
        x = source_of(problem, "x", 0)
    width = problem.out_spatial[-1]
    if not lies_channel_last(problem) and width % base.VECTOR == 0:  # lines are whole vectors: read along them
        return _Operands(x, as_it_lies(problem, "y"), taps, pad, width)
    dy = source_of(problem, "y", base.aligned(x.nbytes))
    line = 1 << (width - 1).bit_length()
    return _Operands(x, dy, taps, pad, line if line <= _MOST_WASTE * width else width)


def _run_columns(problem: ConvProblem) -> int:
    """Columns of a run: those of the window, and one more where that makes whole vectors."""
    return -(-problem.filter[1] * FEW // base.VECTOR) * base.VECTOR // FEW


def _channel_last(problem: ConvProblem) -> tuple[int, ...]:
    """Strides of a channel-last dw. Parts are written like that, since neighbours in a tile are channels."""
    c = problem.c // problem.groups
    taps = [c * math.prod(problem.filter[axis + 1 :]) for axis in range(problem.ndim)]
    return (c * math.prod(problem.filter), 1, *taps)


def _from_channel_last(problem: ConvProblem) -> tuple[int, ...]:
    """Where the elements of a channel-last dw go in dw."""
    dw = problem.w.strides
    taps = zip(reversed(problem.filter), reversed(dw[2:]), strict=True)
    return flat(collapsed([(problem.c // problem.groups, dw[1]), *taps, (problem.k, dw[0])]))


def _beyond(problem: ConvProblem, operands: _Operands) -> tuple[int, ...]:
    """For each axis 1 where a window reaches beyond x, as its copy has it."""
    axes = zip(
        operands.x.spatial, three(problem.out_spatial, 1), operands.taps, three(problem.stride, 1),
        three(problem.dilation, 1), operands.pad, strict=True,
    )  # fmt: skip
    return tuple(
        int(pad > 0 or (outputs - 1) * step + (taps - 1) * apart >= pixels)
        for pixels, outputs, taps, step, apart, pad in axes
    )


def _geometry(problem: ConvProblem, operands: _Operands, in_parts: bool) -> Constants:
    dw, x, taps = _channel_last(problem) if in_parts else problem.w.strides, operands.x, operands.taps
    c, k, merged = problem.c // problem.groups, problem.k // problem.groups, base.merged_groups(problem)
    padded, filter, real = c if problem.groups > 1 else x.c, problem.filter, 0
    if has_runs(problem):
        padded, filter, real = FEW, (problem.filter[0], _run_columns(problem)), FEW * problem.filter[1]
    columns = [(padded, dw[1]), (merged, 0), *zip(reversed(filter), reversed(dw[2:]), strict=True)]
    return (
        ("N", problem.n), ("C", x.c // problem.groups * merged), ("K", k * merged), ("X", x.spatial),
        ("Y", three(problem.out_spatial, 1)), ("FILTER", taps), ("STRIDE", three(problem.stride, 1)),
        ("PAD", operands.pad), ("DILATION", three(problem.dilation, 1)), ("BEYOND", _beyond(problem, operands)),
        ("X_STRIDES", x.strides),
        ("DY_STRIDES", (*operands.dy.strides, operands.dy.of_c)), ("LINE", operands.line), ("DW_ROWS", dw[0]),
        ("DW_COLUMNS", flat(collapsed(columns))), ("PADDED", padded), ("KEPT", c), ("REAL", real),
        ("MERGED_K", k),
        ("DW_GROUP", k * merged * dw[0]),
    )  # fmt: skip
