"""UpsampleFwdLines: 16 bytes of a row of y, and of the rows below it, a thread; whole rows on the host.

A thread resizes the rows of x that its strip looks at across, each once, and keeps two of them: a row of y is a sum of
these. Sources and weights across are worked out once for a strip. For scales that are powers of two the compiler knows
them; channels that are neighbours are read and written by 16 bytes. Lines are shorter where rows do not divide by them.
On the host a line is as long as a row, up to a limit, and loops are over neighbours.

Source: the separable form of bilinear resizing.
"""

from __future__ import annotations

from typing import NamedTuple

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import KernelStep, Operand
from hipfind.kernels.spec import KernelSpec
from hipfind.problem.upsample import UpsampleProblem
from hipfind.solvers.base import Solver
from hipfind.solvers.reasons import Applicability, Reason, no
from hipfind.solvers.upsample import rules
from hipfind.solvers.upsample.coordinates import coordinates, is_scaled
from hipfind.solvers.upsample.planes import Planes, has_neighbouring_channels, has_neighbouring_columns, planes_of
from hipfind.target import Target

_LINE_BYTES = 16
_HOST_LINE = 1024
_MOST_SINGLES = 4
"""Elements of a line that are read one by one: with more, their places and weights take too many registers."""
_SCALES = (2, 4, 8, 16, 32)
_ROWS = (32, 16, 8, 4)
"""Rows of y of a strip, in order of preference: the more, the fewer rows of x are resized twice."""
_THREADS_PER_UNIT = 2048
_MOST_ELEMENTS = 2**31 - 1
"""Of a row of x, whose places are numbers of 32 bits."""


class UpsampleFwdLines(Solver[UpsampleProblem]):
    """Rows of y without gaps, or channels that are neighbours in x and y; any strides otherwise."""

    __slots__ = ()

    solver_id = "UpsampleFwdLines"
    algorithm = "Direct"
    operation = "upsample"

    def IsApplicable(self, target: Target, problem: UpsampleProblem) -> Applicability:
        answer = rules.common(target, problem, "fwd")
        if not answer:
            return answer
        form = _form(target, problem)
        if form is None:
            strides = f"strides x {problem.x.strides}, y {problem.y.strides}"
            return no(Reason.LAYOUT, f"neither pixels of a row nor channels are neighbours: {strides}")
        row = problem.x.lengths[3] * form.planes.x.pixel
        if row > _MOST_ELEMENTS:
            return no(Reason.TOO_LARGE, f"a row of x of {row} elements")
        return rules.feasible(target, self.GetSolution(target, problem))

    def GetSolution(self, target: Target, problem: UpsampleProblem, config: None = None) -> Solution:
        form = _form(target, problem)
        assert form is not None
        return self.solution(target, problem, (_lines_step(target, problem, form),))


class _Form(NamedTuple):
    """How threads see the tensors; the names of forms and definitions are the kernel's. ``piece``: read at once."""

    name: str
    planes: Planes
    line: int
    piece: int = 1
    scale: int = 0


def _form(target: Target, problem: UpsampleProblem) -> _Form | None:
    """None where neither columns of y nor channels are neighbours."""
    width, most = problem.y.lengths[3], _LINE_BYTES // problem.dtype.itemsize
    if has_neighbouring_columns(problem):
        planes = planes_of(problem)
    elif has_neighbouring_channels(problem):
        planes = planes_of(problem, problem.c)
    else:
        return None
    is_flat = planes.y.pixel == planes.inner
    if target.is_host and is_flat:
        return _Form("ROWS", planes, _HOST_LINE)
    scale = _whole_scale(problem) if planes.inner == planes.x.pixel == 1 and width % most == 0 else 0
    if scale:
        return _Form("WHOLE", planes, most, max(most // scale, 1), scale)
    flat = _power_of_two(width * planes.inner, min(most, _MOST_SINGLES)) if is_flat else 0
    pack = _power_of_two(planes.inner, most)
    return (
        _Form("CHANNELS", planes, pack, pack) if planes.inner > 1 and pack >= flat else _Form("ELEMENTS", planes, flat)
    )


def _whole_scale(problem: UpsampleProblem) -> int:
    """Outputs for each pixel of a row, 0 where there is no such number with a kernel."""
    axis = problem.axes[1]
    scale = axis.out // axis.size
    if axis.align_corners:
        return 2 if axis.out == 2 * axis.size and axis.size > 1 else 0
    return scale if scale in _SCALES and is_scaled(axis, axis.size * scale, axis.size) else 0


def _lines_step(target: Target, problem: UpsampleProblem, form: _Form) -> KernelStep:
    h, w = (coordinates(axis) for axis in problem.axes)
    planes = form.planes
    lines = -(-w.out * planes.inner // form.line)
    rows = _strip(target, h.out, planes.total * lines)
    strips = -(-h.out // rows)
    wide_x, wide_y = planes.x._replace(pixel=0), planes.y._replace(pixel=0)
    if form.name == "CHANNELS":
        wide_x, wide_y = planes.x, planes.y
    defines = (
        ("ELEM", problem.dtype.value), ("FORM", form.name), ("LINE", str(form.line)), ("SCALE", str(form.scale)),
        ("CORNERS", str(int(form.scale > 0 and problem.align_corners))),
    )  # fmt: skip
    params = (
        *h, *w, *planes.x, *planes.y, planes.per_image, planes.inner, planes.total, lines, rows, strips,
        int(wide_x.are_multiples(form.piece)), int(wide_y.are_multiples(form.line)),
    )  # fmt: skip
    return KernelStep(
        KernelSpec("upsample_fwd_lines.hip", "upsample_fwd_lines", defines),
        (Operand("x"), Operand("y")),
        params,
        items=planes.total * lines * strips,
        flops=4 * problem.y.elements + 4 * problem.x.elements,
        bytes=problem.min_bytes,
        efficiency=0.1 if target.is_host else 0.2 if form.line > 1 else 0.1,
    )


def _strip(target: Target, height: int, items: int) -> int:
    """Rows of y of a strip, with which there are threads enough for all of the device."""
    wanted = target.compute_units * (1 if target.is_host else _THREADS_PER_UNIT)
    if target.is_host:
        return -(-height // max(min(-(-wanted // items), height), 1))
    return next((rows for rows in _ROWS if items * -(-height // rows) >= wanted), _ROWS[-1])


def _power_of_two(number: int, most: int) -> int:
    """The largest one up to ``most`` that divides a number greater than 0."""
    return min(number & -number, most)
