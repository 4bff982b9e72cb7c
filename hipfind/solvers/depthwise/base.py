"""What the depthwise solvers share: their rule, their perf configs, and the definitions of their kernels."""

from __future__ import annotations

import abc
from collections.abc import Iterator

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import Step
from hipfind.problem.conv import ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.solvers.base import TunableSolver
from hipfind.solvers.depthwise import space
from hipfind.solvers.depthwise.config import DepthwiseConfig, parse
from hipfind.solvers.depthwise.shape import Grid, Shape, grid_of, shape_of
from hipfind.solvers.gemm import rules
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_DTYPES = (DType.FP32, DType.FP16, DType.BF16, DType.FP64)
_MOST_TAPS = 81
_MOST_ELEMENTS = 2**31 - 1
"""Of a row with all its channels, and of an extent: what the kernels count with 32 bits."""


class DepthwiseSolver(TunableSolver[ConvProblem, DepthwiseConfig]):
    """2D, one input and one output channel a group, both images packed alike."""

    __slots__ = ()

    algorithm = "Direct"
    direction: str

    @abc.abstractmethod
    def steps(self, target: Target, problem: ConvProblem, config: DepthwiseConfig) -> tuple[Step, ...]:
        """The steps with a valid config."""

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = _applicability(target, problem, self.direction)
        if not answer:
            return answer
        if space.default(target, shape_of(problem)) is None:
            return no(Reason.FILTER, "the filter and a row of the source do not fit in registers")
        return rules.feasible(target, self.GetSolution(target, problem))

    def IsDynamic(self, problem: ConvProblem) -> bool:
        return False

    def GetSolution(self, target: Target, problem: ConvProblem, config: DepthwiseConfig | None = None) -> Solution:
        chosen = self.checked_config(target, problem, config)
        return self.solution(target, problem, self.steps(target, problem, chosen), str(chosen))

    def GetDefaultPerformanceConfig(self, target: Target, problem: ConvProblem) -> DepthwiseConfig:
        config = space.default(target, shape_of(problem))
        assert config is not None
        return config

    def IsValidPerformanceConfig(self, target: Target, problem: ConvProblem, config: DepthwiseConfig) -> Applicability:
        return space.check(target, shape_of(problem), config)

    def Search(self, target: Target, problem: ConvProblem) -> Iterator[DepthwiseConfig]:
        return space.search(target, shape_of(problem))

    def parse_config(self, text: str) -> DepthwiseConfig:
        return parse(self.solver_id, text)


def definitions(target: Target, problem: ConvProblem, config: DepthwiseConfig) -> tuple[tuple[str, str], ...]:
    """What depthwise.h asks for."""
    shape = shape_of(problem)
    grid = grid_of(target, shape, config)
    numbers = {
        "TAPS_H": shape.h.taps, "TAPS_W": shape.w.taps, "STRIDE_H": shape.h.stride, "STRIDE_W": shape.w.stride,
        "DILATION_H": shape.h.dilation, "DILATION_W": shape.w.dilation, "PAD_H": shape.h.pad, "PAD_W": shape.w.pad,
        "TILE_H": config.rows, "TILE_W": config.columns, "CHANNELS": config.channels,
        "CHANNEL_LAST": int(shape.is_last), "PIXEL": shape.channels if shape.is_last else 1,
        "LANES": grid.lanes, "PACK": grid.pack, "PACK_OUT": grid.pack_out, "HF_BLOCKS": config.blocks,
        "HF_GROUP": grid.members,
    }  # fmt: skip
    return (("ELEM", problem.dtype.value), *((name, str(number)) for name, number in numbers.items()))


def geometry(target: Target, problem: ConvProblem, config: DepthwiseConfig) -> tuple[Shape, Grid, tuple[int, ...]]:
    """Shape, grid, and the parameters that all kernels begin with: channels, extents of the source and the results."""
    shape = shape_of(problem)
    extents = (shape.channels, shape.h.source, shape.w.source, shape.h.results, shape.w.results)
    return shape, grid_of(target, shape, config), extents


def rate(target: Target, problem: ConvProblem) -> float:
    """Share of the plain rate that these kernels reach."""
    share = 0.15 if target.is_host else 0.5
    return share / 2 if problem.dtype is DType.FP64 else share


def _applicability(target: Target, problem: ConvProblem, direction: str) -> Applicability:
    if problem.operation != "conv":
        return no(Reason.OPERATION, problem.operation)
    if problem.direction != direction:
        return no(Reason.DIRECTION, problem.direction)
    if problem.is_empty:
        return no(Reason.EMPTY)
    if problem.dtype not in _DTYPES:
        return no(Reason.DTYPE, problem.dtype.value)
    if problem.ndim != 2:
        return no(Reason.NDIM, f"{problem.ndim}D")
    if not problem.groups == problem.c == problem.k:
        return no(Reason.GROUPS, f"{problem.groups} groups of {problem.c} and {problem.k} channels")
    if not problem.has_default_scaling:
        return no(Reason.SCALING, f"alpha={problem.alpha:g} beta={problem.beta:g}")
    if not (problem.is_channel_first or problem.is_channel_last):
        return no(Reason.LAYOUT, f"layouts {problem.layouts}")
    if problem.filter[0] * problem.filter[1] > _MOST_TAPS:
        return no(Reason.FILTER, f"{problem.filter}")
    if (
        max(tensor.lengths[1] * tensor.lengths[2] * tensor.lengths[3] for tensor in (problem.x, problem.y))
        > _MOST_ELEMENTS
    ):
        return no(Reason.TOO_LARGE, "an image")
    return APPLICABLE if target.kernels else no(Reason.NO_COMPILER)
