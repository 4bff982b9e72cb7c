"""ConvTritonRunsFwd: forward of few input channels, with neighbouring outputs as rows of the matrix product.

The first layer of a network on images has three channels. Padded to four, with borders around each image, a row of a
window is one run of memory, loaded 16 bytes at a time without tests. Outputs that are neighbours in a row share most of
their runs: a row of the product reads the run of several outputs once and has their channels as columns, with zeros in
the filters where a column is out of an output's window. Programs that meet an infinity or NaN compute again without the
products by those zeros. 2D, one group, up to 4 channels, dilation 1 along rows.

Source: the polyphase form of a convolution (P. P. Vaidyanathan, Multirate Systems and Filter Banks, 1993).
"""

from __future__ import annotations

from typing import NamedTuple

from hipfind.invokers.steps import WORKSPACE, KernelStep, Operand, Step
from hipfind.kernels.spec import Constants, TritonSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.igemm import base, tiles
from hipfind.solvers.igemm.base import VECTOR, Launch, TritonSolver, aligned, flag_bytes, launched, precision_of
from hipfind.solvers.igemm.contract_fwd import ConvTritonContractFwd
from hipfind.solvers.igemm.sources import FEW, Source, has_runs, runs_of
from hipfind.solvers.igemm.tiles import Product, TileConfig
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_COLUMNS = 128
"""Columns of the product that outputs of a row are put together for."""
_MOST_OUTPUTS = 4
_BLOCK = 1024
_BAND = 8


class ConvTritonRunsFwd(TritonSolver):
    """Forward of up to 4 channels; packed tensors, half precision, fp32 where matrix cores take it."""

    __slots__ = ()

    solver_id = "ConvTritonRunsFwd"

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = base.common(target, problem, "fwd") and _few_channels(problem)
        answer = answer and base.left_over(target, problem, ConvTritonContractFwd())
        return answer and rules.feasible(target, self.GetSolution(target, problem))

    def product(self, target: Target, problem: ConvProblem) -> Product:
        form = _form_of(problem)
        m = problem.n * problem.out_spatial[0] * form.grid
        return Product(m, form.outputs * problem.k, form.depth, 1, problem.dtype.itemsize)

    def prepared_bytes(self, target: Target, problem: ConvProblem) -> int:
        form = _form_of(problem)
        return _flags_at(problem, form) + flag_bytes(self.product(target, problem))

    def steps(self, target: Target, problem: ConvProblem, config: TileConfig) -> tuple[Step, ...]:
        form = _form_of(problem)
        filters = Operand(WORKSPACE, aligned(form.x.nbytes))
        columns = -(-form.outputs * problem.k // config.n) * config.n
        image, _, pitch, _ = form.x.strides
        stride_h, stride_w = problem.stride
        shared: Constants = (
            ("K", problem.k), ("STEP", stride_w), ("FEW", FEW), ("RUN", form.run), ("DEPTH", form.depth),
            ("P", form.outputs), ("COLUMNS", columns),
        )  # fmt: skip
        constants: Constants = (
            ("N", problem.n), *shared, ("Y", problem.out_spatial), ("Y_STRIDES", problem.y.strides),
            ("GRID_W", form.grid), ("X_STRIDES", (image, stride_h * pitch, form.outputs * stride_w * FEW)),
            ("COLUMN_TAPS", problem.filter[1]), ("PITCH", problem.dilation[0] * pitch),
            ("BM", config.m), ("BN", config.n), ("BK", config.k), ("GROUP", _BAND),
            ("PRECISION", precision_of(problem)), ("AGAIN", 0),
        )  # fmt: skip
        dtype = problem.dtype.value
        pointers = (("x", dtype), ("w", dtype), ("flags", "i32"), ("y", dtype))
        spec = TritonSpec("runs.py", "runs", pointers, (), constants, config.warps, config.stages)
        flags = Operand(WORKSPACE, _flags_at(problem, form))
        launch = Launch((form.x.operand, filters), 0, flags=flags, again=True)
        main = launched(problem, self.product(target, problem), config, spec, launch)
        return (
            *form.x.steps,
            _expansion(problem, shared, config.n // form.outputs, form.depth, columns, filters),
            *main,
        )


class _Form(NamedTuple):
    """Outputs of a row of the product, rows of the product in a row of outputs, elements of a run and of the sum."""

    outputs: int
    grid: int
    run: int
    depth: int
    x: Source


def _few_channels(problem: ConvProblem) -> Applicability:
    if not has_runs(problem):
        return no(Reason.CHANNELS, f"{problem.c}; taken: 2D, one group, up to {FEW}, no dilation along rows")
    return APPLICABLE


def _form_of(problem: ConvProblem) -> _Form:
    outputs = 1
    while outputs < _MOST_OUTPUTS and outputs * 2 * problem.k <= _COLUMNS:
        outputs *= 2
    grid = -(-problem.out_spatial[1] // outputs)
    columns = problem.filter[1] + (outputs - 1) * problem.stride[1]
    run = -(-columns * FEW // VECTOR) * VECTOR
    # the last run of a row may read columns behind the last output's window
    last = (grid * outputs - 1) * problem.stride[1] + problem.filter[1]
    x = runs_of(problem, 0, max(last, (grid - 1) * outputs * problem.stride[1] + run // FEW))
    return _Form(outputs, grid, run, problem.filter[0] * run, x)


def _flags_at(problem: ConvProblem, form: _Form) -> int:
    """Behind the copy of x and the filters, however wide the tiles are that these are padded to."""
    widest = form.outputs * problem.k + tiles.WIDEST
    return aligned(form.x.nbytes) + aligned(form.depth * widest * problem.dtype.itemsize)


def _expansion(
    problem: ConvProblem, shared: Constants, tile: int, depth: int, columns: int, filters: Operand
) -> KernelStep:
    dtype = problem.dtype.value
    constants: Constants = (
        ("C", problem.c), *shared, ("FILTER", problem.filter), ("W_STRIDES", problem.w.strides), ("TILE", tile),
        ("BLOCK", _BLOCK),
    )  # fmt: skip
    spec = TritonSpec("runs.py", "expand_runs", (("w", dtype), ("out", dtype)), (), constants)
    elements = depth * columns
    nbytes = problem.w.nbytes + elements * problem.dtype.itemsize
    return KernelStep(spec, (Operand("w"), filters), (), items=-(-elements // _BLOCK), flops=0, bytes=nbytes)
