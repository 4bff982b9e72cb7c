"""Short forms for the GEMM solvers' tests: problems by a few numbers, solutions as words."""

from __future__ import annotations

from typing import Any

from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import ClearStep, GemmStep, KernelStep, LoopStep, Step, flat
from hipfind.kernels.spec import GemmSpec
from hipfind.problem.conv import ConvProblem
from hipfind.solvers.registry import AnySolver
from hipfind.target import known

HOST = known("x86_64")
GPU = known("gfx942")


def conv(
    direction: str, n: int, c: int, image: tuple[int, ...], k: int, taps: tuple[int, ...], **more: Any
) -> ConvProblem:
    """A convolution of c channels to k; ``more`` goes to ConvProblem.create."""
    groups = more.get("groups", 1)
    return ConvProblem.create(direction, (n, c, *image), (k, c // groups, *taps), **more)


def words(solution: Solution) -> list[str]:
    """The steps in words, e.g. ``["clear", "gemm", "3 x (im2col, gemm+)"]``; "+" marks a product that accumulates."""
    return [_word(step) for step in solution.steps]


def _word(step: Step) -> str:
    if isinstance(step, LoopStep):
        return f"{step.count} x ({', '.join(_word(inner) for inner in step.body)})"
    if isinstance(step, ClearStep):
        return "clear"
    if isinstance(step, KernelStep):
        return step.kernel.entry
    return "gemm+" if step.gemm.beta else "gemm"


def gemms(solution: Solution) -> list[GemmSpec]:
    return [step.gemm for _, step in flat(solution.steps) if isinstance(step, GemmStep)]


def shape(gemm: GemmSpec) -> tuple[int, int, int, int]:
    """m, n, k, batch."""
    return gemm.m, gemm.n, gemm.k, gemm.batch


def solution_of(solver: AnySolver, problem: ConvProblem) -> Solution:
    """The solver's solution on the host, which must apply."""
    answer = solver.IsApplicable(HOST, problem)
    assert answer, f"{solver.SolverDbId()} refuses {problem}: {answer}"
    return solver.GetSolution(HOST, problem)


def refusal(solver: AnySolver, problem: ConvProblem) -> str:
    """Name of the reason for which the solver refuses the problem on the host."""
    answer = solver.IsApplicable(HOST, problem)
    assert answer.reason is not None, f"{solver.SolverDbId()} accepts {problem}"
    return answer.reason.name
