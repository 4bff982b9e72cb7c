"""A batch of 0: empty data results, zero weight gradients, by the one solver whose task it is, or by the naive one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hipfind.device.base import Device
from hipfind.invokers.steps import ClearStep
from hipfind.problem import ConvProblem
from hipfind.solvers.direct.empty_batch import ConvEmptyBatch
from hipfind.solvers.reasons import Reason
from hipfind.solvers.registry import default_registry
from hipfind.target import known
from tests.helpers.solving import check_all

SOLVERS = default_registry().for_operation("conv")
SOLVER = ConvEmptyBatch()
TARGET = known("gfx942")


def empty(direction: str, **more: Any) -> ConvProblem:
    return ConvProblem.create(direction, (0, 4, 6, 6), (6, 2, 3, 3), groups=2, pad=1, **more)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp64"])
@pytest.mark.parametrize("direction", ["fwd", "bwd", "wrw"])
def test_it_is_the_only_one_that_applies(direction: str, dtype: str, device: Device) -> None:
    assert check_all(device, SOLVERS, empty(direction, dtype=dtype)) == ["ConvEmptyBatch"]


def test_data_takes_no_step_and_weights_one_clear() -> None:
    assert (
        SOLVER.GetSolution(TARGET, empty("fwd")).steps == SOLVER.GetSolution(TARGET, empty("bwd", beta=2.0)).steps == ()
    )
    (step,) = SOLVER.GetSolution(TARGET, empty("wrw", alpha=3.0, layout="NHWC")).steps
    assert isinstance(step, ClearStep) and step.nbytes == 6 * 2 * 9 * 4


@pytest.mark.parametrize(
    ("more", "reason"),
    [({"beta": 0.5}, Reason.SCALING), ({"w_strides": (40, 20, 4, 1)}, Reason.NOT_PACKED)],
)
def test_weights_that_cannot_be_cleared_in_one_piece_are_the_naive_solvers(
    more: dict[str, Any], reason: Reason, device: Device
) -> None:
    problem = empty("wrw", **more)
    assert SOLVER.IsApplicable(TARGET, problem).reason is reason
    assert check_all(device, SOLVERS, problem) == ["ConvDirectNaiveConvWrw"]


def test_a_batch_is_not_empty() -> None:
    problem = ConvProblem.create("fwd", (1, 4, 6, 6), (6, 4, 3, 3))
    assert SOLVER.IsApplicable(TARGET, problem).reason is Reason.NOT_EMPTY


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    direction=st.sampled_from(("fwd", "bwd", "wrw")),
    beta=st.sampled_from((0.0, 1.0, -0.5)),
    strides=st.sampled_from((None, (40, 20, 4, 1), (18, 9, 3, 1), (1, 6, 36, 12))),
)
def test_any_empty_problem_has_exactly_one_solver(
    direction: str, beta: float, strides: tuple[int, ...] | None, device: Device
) -> None:
    problem = empty(direction, beta=beta, w_strides=strides)
    assert len(check_all(device, SOLVERS, problem)) == 1


def test_the_expected_time_is_finite() -> None:
    for direction in ("fwd", "bwd", "wrw"):
        assert np.isfinite(SOLVER.GetExpectedTime(TARGET, empty(direction)))
        assert SOLVER.GetWti(TARGET, empty(direction)) == 1.0
