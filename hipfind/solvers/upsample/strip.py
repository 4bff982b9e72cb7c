"""UpsampleBwdStrip: groups of threads go down strips of dy, and read every element once, in 16-byte loads.

A thread keeps the sums of a few neighbouring columns for two pixel rows in registers and reads rows ahead; a complete
pixel row goes through shared memory, where threads sum windows over columns. Small planes go through a group several
at once; where one window has many rows and there are few windows, threads share its rows. GPUs only: Block does the
same for the host. Wins where memory is the limit and windows are not huge; no workspace, no atomics, always one order.

Source: the separable form of the adjoint, as one pass.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import BLOCK, KernelSpec
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.reasons import Applicability, Reason, no
from hipfind.solvers.upsample import rules
from hipfind.solvers.upsample.coordinates import Coordinates, coordinates
from hipfind.solvers.upsample.planes import Planes, has_neighbouring_channels, has_neighbouring_columns, planes_of
from hipfind.solvers.upsample.strip_tiling import ROWS, TILE_W, StripTiling, strip_tiling
from hipfind.target import Target

_LINE_BYTES = 16
_AHEAD = 2
"""Rows that a thread reads ahead: what keeps memory busy."""
_TAPS = (2, 4, 5)
"""Widths of windows that kernels are compiled for; wider ones are shared by threads."""
_WEIGHTS = 16
"""Products of a window that do not fit the usual number of registers beside a line's sums."""
_PACK = 4
"""Neighbouring channels that a thread sums windows of."""
_CHUNK_BYTES = (128, 64, 32, 16)
"""Neighbouring channels that a plane takes, in order of preference: long runs, if a strip is not too narrow then."""
_NARROW = 1.25
"""A strip that reads so much more than there is takes fewer channels instead."""


class UpsampleBwdStrip(Solver[UpsampleProblem]):
    """Rows of pixels or channels that are neighbours in memory; any strides between rows, planes and images."""

    __slots__ = ()

    solver_id = "UpsampleBwdStrip"
    algorithm = "Direct"
    operation = "upsample"

    def IsApplicable(self, target: Target, problem: UpsampleProblem) -> Applicability:
        answer = rules.common(target, problem)
        if not answer:
            return answer
        if target.is_host:
            return no(Reason.SPECIALIZED, "UpsampleBwdBlock does the same on the host")
        if not _inner_sizes(problem):
            return rules.no_neighbours(problem)
        if _layout(target, problem) is None:
            h, w = (coordinates(axis) for axis in problem.axes)
            return no(Reason.TOO_LARGE, f"a window of {h.span(1)}x{w.span(1)} does not fit a group")
        return rules.feasible(target, self.GetSolution(target, problem))

    def GetSolution(self, target: Target, problem: UpsampleProblem, config: None = None) -> Solution:
        layout = _layout(target, problem)
        assert layout is not None
        return self.solution(target, problem, (_strip_step(problem, layout),))


class _Layout(NamedTuple):
    """All that decides what the kernel does."""

    h: Coordinates
    w: Coordinates
    planes: Planes
    line: int
    pack: int
    alignment: int
    tiling: StripTiling


def _layout(target: Target, problem: UpsampleProblem) -> _Layout | None:
    """The layout with the longest runs of neighbours whose strips are not too narrow, None where none fits."""
    h, w = (coordinates(axis) for axis in problem.axes)
    line = _line(problem)
    found: list[_Layout] = []
    for inner in _inner_sizes(problem):
        planes = planes_of(problem, inner)
        pack = rules.pack_of(inner, min(_PACK, line))
        alignment = line // math.gcd(line, inner)
        tiling = strip_tiling(target.compute_units, h, w, planes.total, inner, line, pack, alignment)
        if tiling is not None:
            found.append(_Layout(h, w, planes, line, pack, alignment, tiling))
            if tiling.read <= _NARROW:
                break
    return min(found, key=lambda layout: layout.tiling.read) if found else None


def _line(problem: UpsampleProblem) -> int:
    return _LINE_BYTES // problem.dtype.itemsize


def _inner_sizes(problem: UpsampleProblem) -> list[int]:
    """Channels in a pixel of a plane that are worth trying: 1 where rows of pixels are contiguous."""
    if has_neighbouring_columns(problem):
        return [1]
    if not has_neighbouring_channels(problem):
        return []
    line = _line(problem)
    wanted = [size // problem.dtype.itemsize for size in _CHUNK_BYTES]
    sizes = [inner for inner in wanted if inner >= line and problem.c % inner == 0 and inner <= problem.c]
    if not sizes and problem.c <= BLOCK and planes_of(problem, problem.c).is_flat:
        sizes = [problem.c]
    return sizes


def _strip_step(problem: UpsampleProblem, layout: _Layout) -> KernelStep:
    h, w, planes, line, pack, alignment, tiling = layout
    is_single = planes.inner == 1
    taps = rules.taps_of(w, _TAPS)
    if taps and is_single:  # each thread keeps the weights that it needs, and sums whole windows
        tiling, columns = tiling._replace(parts_w=1), 1
    else:
        taps, columns = (taps if tiling.parts_w == 1 else 0), BLOCK * line // pack
    defines = (
        ("ELEM", problem.dtype.value), ("TAPS", str(taps)), ("SINGLE", str(int(is_single))),
        ("PACK", str(pack)), ("LINE", str(line)), ("ROWS", str(ROWS)), ("COLUMNS", str(columns)),
        ("TILE_W", str(TILE_W)), ("AHEAD", str(_AHEAD)), *((("HF_BLOCKS", "2"),) if pack * taps >= _WEIGHTS else ()),
    )  # fmt: skip
    wide = planes.y._replace(pixel=0) if planes.is_flat else planes.y
    params = (
        *h, *w, *planes.y, *planes.x, planes.per_image, planes.inner, planes.total,
        tiling.tile_h, tiling.tile_w, tiling.lines, tiling.at_once, tiling.parts, tiling.parts_w,
        alignment, int(wide.are_multiples(line)), int(planes.x.are_multiples(pack)),
    )  # fmt: skip
    return KernelStep(
        KernelSpec("upsample_strip.hip", "upsample_strip", defines),
        (Operand("dy"), Operand("dx")),
        params,
        items=tiling.groups * BLOCK,
        flops=4 * problem.y.elements + 8 * problem.x.elements,
        bytes=int(problem.y.nbytes * tiling.read) + problem.x.nbytes,
        efficiency=0.08 if is_single else 0.04,
    )
