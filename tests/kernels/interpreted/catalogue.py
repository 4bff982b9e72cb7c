"""Right results from every Triton solver with its default config for the problems that all solvers are asked about."""

from __future__ import annotations

import itertools

import pytest

from hipfind.problem import ConvProblem, tolerance
from tests.helpers.arrays import make_arrays
from tests.helpers.interpreter import SOLVERS, InterpreterDevice
from tests.helpers.solving import run
from tests.solvers.catalogue import PROBLEMS

DEVICES = {arch: InterpreterDevice(arch) for arch in ("sm_90", "gfx942", "gfx1100")}


@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
def test_default_configs(direction: str) -> None:
    """Targets in turn. A few pixels, channels and filters: less than any tile."""
    turns, taken, wrong = itertools.cycle(DEVICES.values()), set(), []
    for problem in PROBLEMS["conv"]:
        assert isinstance(problem, ConvProblem)
        if problem.direction != direction:
            continue
        device = next(turns)
        takers = [solver for solver in SOLVERS if solver.IsApplicable(device.target, problem)]
        arrays = make_arrays(problem, 1)
        expected = problem.reference(arrays)
        for solver in takers:
            taken.add(solver.solver_id)
            out = run(device, solver.GetSolution(device.target, problem), problem, arrays)
            verdict = tolerance.judge(problem, arrays, out, expected)
            if not verdict.ok:
                wrong.append(f"{solver.solver_id} for {device.target.arch}: {verdict} for {problem.key()}")
    assert not wrong, "\n".join(wrong)
    assert len(taken) >= 2
