"""ConvTritonCellsBwd: backward data of few input channels, with cells of pixels as rows of the matrix product.

The data gradient of an image's first layer has three channels: as a product by pixel it has three columns, of which
matrix cores compute sixteen, and each pixel reads all its outputs for itself. Here the pixels of a cell (a few strides
in each direction) with their channels are the columns, and the cell's outputs are read once for all of them; filters
are laid out for it first, with zeros where an output is out of a pixel's reach. Where dy holds an infinity or NaN, the
programs that meet it compute again without the products by those zeros. 2D, one group, dilation 1.

Source: the polyphase form of a transposed convolution (W. Shi et al., arXiv:1609.07009), with several phases a row.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from hipfind.invokers.steps import WORKSPACE, KernelStep, Operand, Step
from hipfind.kernels.spec import Constants, TritonSpec
from hipfind.problem.conv import ConvProblem
from hipfind.problem.tensor import LAYOUTS
from hipfind.solvers.gemm import rules
from hipfind.solvers.igemm import base
from hipfind.solvers.igemm.base import Launch, TritonSolver, aligned, flag_bytes, launched, precision_of
from hipfind.solvers.igemm.contract_bwd import ConvTritonContractBwd
from hipfind.solvers.igemm.sources import Source, source_of
from hipfind.solvers.igemm.tiles import Product, TileConfig
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_MOST_CHANNELS = 8
_LONGEST_CELL = 8
_MOST_COLUMNS = 128
_BLOCK = 1024
_BAND = 8
_SHALLOWEST = 16
"""Smallest tile of the sum."""


class ConvTritonCellsBwd(TritonSolver):
    """Data gradients of up to 8 channels; packed tensors, half precision, fp32 where matrix cores take it."""

    __slots__ = ()

    solver_id = "ConvTritonCellsBwd"
    version = 2

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = base.common(target, problem, "bwd") and _few_channels(problem)
        answer = answer and base.left_over(target, problem, ConvTritonContractBwd())
        return answer and rules.feasible(target, self.GetSolution(target, problem))

    def product(self, target: Target, problem: ConvProblem) -> Product:
        form = _form_of(problem)
        m, k = problem.n * math.prod(form.grid), math.prod(form.outputs) * form.dy.c
        return Product(m, form.columns, k, 1, problem.dtype.itemsize, deepest=form.dy.c, widest=form.columns)

    def prepared_bytes(self, target: Target, problem: ConvProblem) -> int:
        return _flags_at(problem, _form_of(problem)) + flag_bytes(self.product(target, problem))

    def steps(self, target: Target, problem: ConvProblem, config: TileConfig) -> tuple[Step, ...]:
        form = _form_of(problem)
        filters = Operand(WORKSPACE, aligned(form.dy.nbytes))
        constants: Constants = (
            ("N", problem.n), ("C", problem.c), ("GRID", form.grid), *form.shared, ("DX", problem.in_spatial),
            ("DX_STRIDES", problem.x.strides), ("DY", problem.out_spatial),
            ("DY_STRIDES", (form.dy.strides[0], *form.dy.strides[2:])),
            ("BM", config.m), ("BN", config.n), ("BK", config.k), ("GROUP", _BAND),
            ("PRECISION", precision_of(problem)), ("AGAIN", 0),
        )  # fmt: skip
        dtype = problem.dtype.value
        pointers = (("dy", dtype), ("w", dtype), ("flags", "i32"), ("dx", dtype))
        spec = TritonSpec("cells.py", "cells", pointers, (), constants, config.warps, config.stages)
        flags = Operand(WORKSPACE, _flags_at(problem, form))
        launch = Launch((form.dy.operand, filters), 0, flags=flags, again=True)
        main = launched(problem, self.product(target, problem), config, spec, launch)
        return (*form.dy.steps, _expansion(problem, form, filters), *main)


class _Form(NamedTuple):
    """Cells: rows and columns, how many there are in an image, outputs that one reads, columns of the product."""

    cell: tuple[int, int]
    grid: tuple[int, int]
    outputs: tuple[int, int]
    columns: int
    dy: Source
    shared: Constants
    """Constants of both kernels."""

    @property
    def filter_elements(self) -> int:
        return math.prod(self.outputs) * self.dy.c * self.columns


def _few_channels(problem: ConvProblem) -> Applicability:
    answer = rules.two_dimensional(problem)
    if not answer:
        return answer
    if problem.groups > 1:
        return no(Reason.GROUPS, f"{problem.groups}")
    if problem.c > _MOST_CHANNELS:
        return no(Reason.CHANNELS, f"{problem.c}, at most {_MOST_CHANNELS}")
    if any(step > 1 and taps > 1 for step, taps in zip(problem.dilation, problem.filter, strict=True)):
        return no(Reason.DILATION, "x".join(map(str, problem.dilation)))
    if not _cells(problem):
        return no(Reason.STRIDE, "x".join(map(str, problem.stride)))
    return APPLICABLE


def _cells(problem: ConvProblem) -> list[tuple[int, int]]:
    """Rows and columns of cells that are worth a thought."""
    rows, columns = (range(step, _LONGEST_CELL + 1, step) for step in problem.stride)
    return [cell for cell in itertools.product(rows, columns) if math.prod(cell) * problem.c <= _MOST_COLUMNS]


def _outputs(problem: ConvProblem, axis: int, extent: int) -> tuple[int, int]:
    """First output of a cell at the image's start, and how many it reads, along an axis."""
    pad, taps, step = problem.pad[axis], problem.filter[axis], problem.stride[axis]
    first = -((taps - 1 - pad) // step)
    return first, (extent - 1 + pad) // step - first + 1


def _form_of(problem: ConvProblem) -> _Form:
    dy = source_of(problem, "y", 0, multiple=_SHALLOWEST)
    cell = min(_cells(problem), key=lambda one: _cost(problem, one))
    (first_h, outputs_h), (first_w, outputs_w) = (_outputs(problem, axis, cell[axis]) for axis in (0, 1))
    height, width = problem.in_spatial
    columns = max(16, 1 << (math.prod(cell) * problem.c - 1).bit_length())
    geometry = (*problem.filter, *problem.stride, *problem.pad, first_h, first_w)
    shared: Constants = (
        ("CELL", cell), ("LAST", int(problem.x.is_packed_as(LAYOUTS[2][1]))), ("GEOMETRY", geometry),
        ("OUTPUTS", (outputs_h, outputs_w)), ("SUMMED", dy.c), ("COLUMNS", columns),
    )  # fmt: skip
    grid = -(-height // cell[0]), -(-width // cell[1])
    return _Form(cell, grid, (outputs_h, outputs_w), columns, dy, shared)


def _cost(problem: ConvProblem, cell: tuple[int, int]) -> float:
    """Relative time of a pixel: multiplications, and bytes of dy that are read."""
    outputs = math.prod(_outputs(problem, axis, cell[axis])[1] for axis in (0, 1))
    columns = max(16, 1 << (math.prod(cell) * problem.c - 1).bit_length())
    return outputs * (columns + 64) / math.prod(cell)


def _flags_at(problem: ConvProblem, form: _Form) -> int:
    return aligned(form.dy.nbytes) + aligned(form.filter_elements * problem.dtype.itemsize)


def _expansion(problem: ConvProblem, form: _Form, filters: Operand) -> KernelStep:
    dtype = problem.dtype.value
    constants: Constants = (
        ("K", problem.k), ("C", problem.c), ("W_STRIDES", problem.w.strides), *form.shared, ("BLOCK", _BLOCK),
    )  # fmt: skip
    spec = TritonSpec("cells.py", "expand_cells", (("w", dtype), ("out", dtype)), (), constants)
    elements = form.filter_elements
    nbytes = problem.w.nbytes + elements * problem.dtype.itemsize
    return KernelStep(spec, (Operand("w"), filters), (), items=-(-elements // _BLOCK), flops=0, bytes=nbytes)
