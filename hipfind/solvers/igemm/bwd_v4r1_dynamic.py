"""ConvTritonIgemmBwdV4R1Dynamic: backward data by the v4r1 decomposition, dynamic: all sizes are run-time arguments.

The same kernel and steps as ConvTritonIgemmBwdV4R1. Compiled in are the tile, which axis is contiguous, which strides
are multiples of 16, and whether there are dilations, groups and whole blocks of channels: so a new batch or image size
compiles nothing, and all filters and channels together have a few dozen binaries. Channels of both sides in multiples
of 16.

Source: MIOpen's ConvAsmImplicitGemmV4R1DynamicBwd, with its phases in one launch.
"""

from __future__ import annotations

from hipfind.problem.conv import ConvProblem
from hipfind.solvers.gemm import rules
from hipfind.solvers.igemm import base
from hipfind.solvers.igemm.gather import GatherSolver
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_CHANNELS = 16


class ConvTritonIgemmBwdV4R1Dynamic(GatherSolver):
    """Data gradients with channels in multiples of 16 a group; packed; half precision, fp32 as the static solver."""

    __slots__ = ()

    solver_id = "ConvTritonIgemmBwdV4R1Dynamic"
    at_run_time = True

    def IsApplicable(self, target: Target, problem: ConvProblem) -> Applicability:
        answer = base.common(target, problem, "bwd") and _whole_vectors(problem)
        return answer and rules.feasible(target, self.GetSolution(target, problem))


def _whole_vectors(problem: ConvProblem) -> Applicability:
    channels = problem.c // problem.groups, problem.k // problem.groups
    if any(count % _CHANNELS for count in channels):
        return no(Reason.CHANNELS, f"{channels[0]} and {channels[1]} a group, multiples of {_CHANNELS} asked for")
    return APPLICABLE
