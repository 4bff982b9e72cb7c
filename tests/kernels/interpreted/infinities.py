"""NaN and infinities reach the outputs that have a product with them, and no others, whatever a kernel multiplies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hipfind.problem import ConvProblem
from hipfind.solvers.registry import default_registry
from tests.helpers.arrays import make_arrays
from tests.helpers.interpreter import InterpreterDevice
from tests.helpers.solving import run

DEVICE = InterpreterDevice("sm_90")
STEM = {"x": (2, 3, 8, 9), "w": (20, 3, 5, 3), "pad": ((2, 1), (1, 1)), "stride": (1, 2)}
MERGED = {"x": (2, 16, 5, 4), "w": (32, 4, 3, 3), "pad": 1, "groups": 4}
STRIDED = {"x": (2, 32, 5, 6), "w": (32, 8, 3, 2), "pad": 1, "stride": 2, "groups": 4}
KINDS: dict[str, tuple[dict[str, Any], ...]] = {
    "ConvTritonRunsFwd": (STEM, {"x": (2, 4, 6, 7), "w": (130, 4, 2, 2), "dilation": (2, 1), "pad": 1}),
    "ConvTritonCellsBwd": (STEM, {"x": (2, 5, 5, 6), "w": (20, 5, 3, 3), "pad": 1, "stride": 2}),
    "ConvTritonIgemmFwd": (MERGED, STRIDED),
    "ConvTritonIgemmBwdV4R1": (MERGED, STRIDED),
}
"""Solvers that multiply by zeros of their own making, and compute again where these met what is not finite."""
DTYPES = ("fp16", "bf16")


def bad_element(problem: ConvProblem, value: float, place: tuple[int, ...]) -> dict[str, Any]:
    arrays = make_arrays(problem, 1)
    arrays[problem.inputs[0]][place] = value
    return arrays


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("solver_id", KINDS)
def test_what_is_not_finite_stays_where_it_belongs(solver_id: str, layout: str) -> None:
    """One bad element of x or dy in a corner, at an edge, within; what it reaches is as bad as in float64."""
    solver = default_registry().get(solver_id)
    direction = "fwd" if "Fwd" in solver_id else "bwd"
    for number, kind in enumerate(KINDS[solver_id]):
        problem = ConvProblem.create(direction, layout=layout, dtype=DTYPES[number], **kind)
        assert solver.IsApplicable(DEVICE.target, problem)
        solution = solver.GetSolution(DEVICE.target, problem)
        assert any(("AGAIN", 1) in spec.constants for spec in solution.kernels)
        last = tuple(length - 1 for length in problem.tensor(problem.inputs[0]).lengths)
        for value, place in ((np.nan, (0, 0, 0, 0)), (np.inf, last), (-np.inf, (1, 2, last[2], 1))):
            arrays = bad_element(problem, value, place)
            expected = problem.reference(arrays)
            out = run(DEVICE, solution, problem, arrays).astype(np.float64)
            is_bad = ~np.isfinite(expected)
            assert is_bad.any() and not is_bad.all()
            assert np.array_equal(out[is_bad], expected[is_bad], equal_nan=True)
            assert np.allclose(out[~is_bad], expected[~is_bad], rtol=0.02, atol=0.05), "wrong beside it"


def test_without_the_second_launch_others_are_reached() -> None:
    """So the second launch is needed, and the test above can fail."""
    problem = ConvProblem.create("fwd", layout="NHWC", dtype="fp16", **MERGED)
    solution = default_registry().get("ConvTritonIgemmFwd").GetSolution(DEVICE.target, problem)
    steps = tuple(step for step in solution.steps if ("AGAIN", 1) not in step.kernel.constants)
    assert len(steps) < len(solution.steps)
    arrays = bad_element(problem, np.inf, (0, 1, 2, 2))
    out = run(DEVICE, type(solution)(**{**vars(solution), "steps": steps}), problem, arrays)
    assert (np.isfinite(out) < np.isfinite(problem.reference(arrays))).any()
