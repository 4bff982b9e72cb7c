"""Find on the HIP device: candidates are compiled, checked and timed there; what fails is a candidate's own outcome."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

import hipfind as hf
from hipfind import settings
from hipfind.device.devices import get_device
from hipfind.device.gpu import GpuDevice
from hipfind.find.report import FindReport
from hipfind.problem import ConvProblem
from hipfind.solvers.registry import default_registry
from tests.standin import Control

GEMM, NAIVE, OTHER = "GemmBwdRest", "ConvDirectNaiveConvBwd", "GemmBwdV4R1"
PROBLEM = ConvProblem.create("bwd", x=(2, 4, 9, 9), w=(6, 4, 3, 3), stride=2, pad=1)


@pytest.fixture
def control() -> Iterator[Control]:
    """The stand-in, rightly used. Its memory is not counted: the device keeps workspaces."""
    control = Control()
    control.clear_faults()
    yield control
    control.revive()
    assert control.violations() == []


@pytest.fixture(autouse=True)
def db(control: Control, cache: pathlib.Path) -> Iterator[None]:
    """A perf DB and a kernel cache of the test's own, and a device that spends no time on its clock."""
    device = get_device("hip")
    assert isinstance(device, GpuDevice)
    device.ramp_s = 0.0
    device._functions.clear()  # kernels are compiled again
    with settings.override(user_db_path=str(cache / "hipfind.db"), disable_user_db=False):
        yield


def find() -> FindReport:
    return hf.find(PROBLEM, device="hip", mode="normal")


def outcomes(report: FindReport) -> dict[str, str]:
    """Outcome and reason of each candidate."""
    candidates = [one for one in report.candidates if one.solver_id in (GEMM, NAIVE)]
    return {one.solver_id: f"{one.outcome.value}: {one.reason}" for one in candidates}


def test_every_candidate_is_checked_and_timed() -> None:
    report = find()
    assert {result.solver_id for result in report.results} == {GEMM, NAIVE, OTHER} and report.stored
    assert all(result.time_ms > 0 for result in report.results)
    assert all(one.verified and one.samples > 1 for one in report.candidates if one.solver_id in (GEMM, NAIVE))
    assert [choice.solver_id for choice in hf.immediate(PROBLEM, device="hip")] == [
        result.solver_id for result in report.results
    ]


@pytest.mark.parametrize(
    ("call", "error", "nth", "expected"),
    [
        ("hiprtcCompileProgram", 6, 1, "compile failed: hiprtcCompileProgram could not compile col2im.hip for gfx90a"),
        (
            "hipModuleLaunchKernel",
            1,
            1,
            "run failed: kernel col2im did not start on hip:0: hipModuleLaunchKernel failed",
        ),
        ("hipMalloc", 2, 4, "out of memory: hip:0 cannot allocate 3600 bytes"),
    ],
)
def test_one_candidates_failure_is_its_outcome(
    control: Control, call: str, error: int, nth: int, expected: str
) -> None:
    naive = default_registry().get(NAIVE).GetSolution(get_device("hip").target, PROBLEM)
    get_device("hip").prepare_kernel(naive.kernels[0], (), 0)  # what fails is of the other candidate
    control.fail(call, error, nth)
    with settings.override(disable_solver=(OTHER,)):  # so that it is known whose compilation, launch or memory is which
        report = find()
    assert outcomes(report)[GEMM].startswith(expected)
    assert [result.solver_id for result in report.results] == [NAIVE]


def test_a_kernel_that_fails_while_it_runs_costs_the_device_and_not_the_db(control: Control) -> None:
    winner = find().results[0].solver_id
    control.fail("kernel", 719)
    report = find()
    assert not report.results
    assert all(
        text.startswith("run failed: ") and "hipErrorLaunchFailure" in text for text in outcomes(report).values()
    )
    control.revive()
    assert hf.immediate(PROBLEM, device="hip")[0].solver_id == winner
