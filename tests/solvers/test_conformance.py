"""What every registered solver must hold, whoever wrote it: the contract of hipfind.solvers.base."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import math
import pathlib
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from hipfind.device.base import Device
from hipfind.invokers.solution import Solution
from hipfind.invokers.steps import ClearStep, GemmStep, KernelStep, LoopStep, flat
from hipfind.problem import ConvProblem, DType, Problem, UpsampleProblem, tolerance
from hipfind.solvers.base import Solver, TunableSolver
from hipfind.solvers.reasons import Reason
from hipfind.solvers.registry import AnySolver, default_registry
from hipfind.target import Target, known
from tests.helpers.arrays import make_arrays
from tests.helpers.bounds import assert_inside
from tests.helpers.solving import run
from tests.helpers.strategies import conv_problems
from tests.solvers import catalogue
from tests.solvers.catalogue import PROBLEMS

SOLVERS = default_registry().solvers
CONV_SOLVERS = default_registry().for_operation("conv")
TARGETS = catalogue.targets()
THREE = (known("x86_64"), known("gfx942"), known("sm_90"))

IDS = pathlib.Path(__file__).with_name("solver_ids.txt")
"""Every id ever released with the version it has reached. Perf DBs hold them: an id stays, a version never falls."""


def by_id(solver: AnySolver) -> str:
    return solver.SolverDbId()


def applicable(solver: AnySolver, target: Target) -> list[Problem]:
    return [problem for problem in PROBLEMS[solver.operation] if solver.IsApplicable(target, problem)]


def test_no_id_disappears_and_no_version_falls() -> None:
    released = dict(line.split() for line in IDS.read_text().splitlines())
    assert {solver.SolverDbId(): str(solver.version) for solver in SOLVERS} == released


@pytest.mark.parametrize("solver", SOLVERS, ids=by_id)
def test_solvers_hold_no_state(solver: AnySolver) -> None:
    assert type(solver).__basicsize__ == object.__basicsize__
    assert not hasattr(solver, "__dict__")
    with pytest.raises(AttributeError):
        solver.memory = 1
    module = sys.modules[type(solver).__module__]
    places = [vars(module), *(vars(cls) for cls in type(solver).__mro__ if cls.__module__.startswith("hipfind."))]
    for name, value in itertools.chain.from_iterable(place.items() for place in places):
        is_own = not name.startswith("__")
        assert not (is_own and isinstance(value, (list, dict, set))) or name.lstrip("_").isupper(), f"variable {name}"


@pytest.mark.parametrize("solver", SOLVERS, ids=by_id)
def test_solvers_say_who_they_are(solver: AnySolver) -> None:
    cls = type(solver)
    assert solver.SolverDbId() == solver.solver_id == cls().SolverDbId()
    assert not inspect.isabstract(cls)
    assert solver.version >= 1
    assert solver.algorithm in ("GEMM", "Direct", "ImplicitGEMM", "Winograd", "FFT")
    assert solver.IsTunable() == isinstance(solver, TunableSolver)
    assert inspect.getdoc(cls) not in (None, inspect.getdoc(Solver)), "a solver says what it solves"
    assert (sys.modules[cls.__module__].__doc__ or "").strip()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.arch}-{target.name}")
def test_applicability_matrix(target: Target) -> None:
    pairs = [(solver, problem) for solver in SOLVERS for problem in PROBLEMS[solver.operation]]
    for solver, problem in pairs:
        answer = solver.IsApplicable(target, problem)
        assert bool(answer) == (answer.reason is None)
        if not answer:
            assert isinstance(answer.reason, Reason)
            assert answer.reason.value in str(answer)
        if solver.operation == "conv" and problem.is_empty != (solver.SolverDbId() == "ConvEmptyBatch"):
            assert not answer


@given(problem=conv_problems(scaling=True, attributes=True))
@settings(max_examples=150, deadline=None)
def test_is_applicable_never_raises_and_somebody_applies(problem: ConvProblem) -> None:
    canonical = problem.canonical()
    for target in (known("x86_64"), known("gfx942"), TARGETS[-1]):
        answers = [solver.IsApplicable(target, canonical) for solver in CONV_SOLVERS]
        if target is not TARGETS[-1]:
            assert any(answers), "no solver for a legal problem"


@pytest.mark.parametrize("solver", SOLVERS, ids=by_id)
def test_what_an_applicable_solver_hands_out(solver: AnySolver) -> None:
    chosen = [(target, problem) for target in THREE for problem in applicable(solver, target)]
    assert chosen, "the catalogue has no problem for this solver"
    for target, problem in chosen:
        solution = solver.GetSolution(target, problem)
        assert solution.solver_id == solver.SolverDbId()
        assert solution.solver_version == solver.version
        assert solution.problem_key == problem.key()
        assert solution == solver.GetSolution(target, problem), "a pure function of target and problem"
        assert Solution.from_dict(json.loads(json.dumps(solution.to_dict()))) == solution
        assert_inside(problem, solution)
        wti, expected = solver.GetWti(target, problem), solver.GetExpectedTime(target, problem)
        assert wti > 0 and math.isfinite(wti)
        assert expected >= 0 and math.isfinite(expected)
        _check_configs(solver, target, problem)
        _check_steps(problem, solution)


def _check_configs(solver: AnySolver, target: Target, problem: Problem) -> None:
    workspace = solver.GetWorkspaceSize(target, problem)
    assert type(workspace) is int
    configs: list[Any] = [None]
    if isinstance(solver, TunableSolver):
        default = solver.GetDefaultPerformanceConfig(target, problem)
        configs += [default, *itertools.islice(solver.Search(target, problem), 50)]
        assert solver.GetSolution(target, problem) == solver.GetSolution(target, problem, default)
    for config in configs:
        assert solver.GetSolution(target, problem, config).workspace_bytes == workspace >= 0
        if isinstance(solver, TunableSolver) and config is not None:
            assert solver.IsValidPerformanceConfig(target, problem, config)
            assert solver.parse_config(str(config)) == config


def _check_steps(problem: Problem, solution: Solution) -> None:
    for step in solution.steps:
        assert not isinstance(step, LoopStep) or (step.count > 1 and step.body)
    for _, step in flat(solution.steps):
        if isinstance(step, KernelStep):
            assert step.items > 0 and step.bytes > 0 and step.flops >= 0 and 0 < step.efficiency <= 1
            assert all(type(value) in (int, float) for value in step.params)
            assert all(-(2**63) <= value < 2**63 for value in step.params)
            written = {operand.buffer for operand in step.operands[-1:]}
        elif isinstance(step, GemmStep):
            assert min(step.gemm.m, step.gemm.n, step.gemm.k, step.gemm.batch) > 0
            assert step.gemm.batch == 1 or step.gemm.stride_c > 0, "products of a batch write one matrix"
            written = {step.c.buffer}
        else:
            assert step.nbytes > 0
            written = {step.target.buffer}
        assert not written & set(problem.inputs), "a solver writes to an input"


@pytest.mark.parametrize("solver", SOLVERS, ids=by_id)
def test_dynamic_solvers_compile_nothing_for_a_size(solver: AnySolver) -> None:
    """However many sizes: a few binaries an entry point for each dtype, one where rows of any length are alike.

    Resizing has three, for windows of up to 2 and 5 columns and of any width, each for single elements and for packs.
    By strips it has four, each for single elements, for packs of channels and for channels one by one. For whole
    scales it has one for each scale, and one more where the width is odd.
    Data gradients by matrix cores have one by which axis of w is contiguous, copies one by which strides divide by 16;
    tests/solvers/igemm/test_bwd_v4r1_dynamic.py has more sizes.
    """
    target = known("gfx942")
    binaries: dict[tuple[str, str, str], set[object]] = {}
    for problem in applicable(solver, target):
        if solver.IsDynamic(problem):
            for spec in solver.GetSolution(target, problem).kernels:
                binaries.setdefault((problem.tensor(problem.output).dtype.value, spec.source, spec.entry), set()).add(
                    spec
                )
    most = (
        12
        if solver.SolverDbId() in ("UpsampleFwdLines", "UpsampleBwdStrip", "UpsampleBwdWhole")
        else {"conv": 3, "upsample": 6}[solver.operation]
    )
    assert all(len(specs) <= most for specs in binaries.values()), binaries


@pytest.mark.parametrize("mode_problem", ["fwd", "bwd", "wrw"])
def test_a_transposed_convolution_has_the_solvers_of_its_mirror(mode_problem: str) -> None:
    mirror = {"fwd": "bwd", "bwd": "fwd", "wrw": "wrw"}[mode_problem]
    for dtype, groups in itertools.product(("fp32", "bf16"), (1, 2)):
        transposed = ConvProblem.create(
            mode_problem, (1, 64, 32, 32), (64, 32 // groups, 3, 3), mode="transpose", stride=2, pad=1,
            output_padding=1, groups=groups, dtype=dtype,
        )  # fmt: skip
        plain = ConvProblem.create(
            mirror, (1, 32, 64, 64), (64, 32 // groups, 3, 3), stride=2, pad=1, groups=groups, dtype=dtype
        )
        assert transposed.canonical() == plain
        for solver, target in itertools.product(CONV_SOLVERS, TARGETS):
            assert solver.IsApplicable(target, transposed.canonical()) == solver.IsApplicable(target, plain)


@pytest.mark.parametrize("solver", SOLVERS, ids=by_id)
def test_nothing_is_cleared_that_is_overwritten_anyway(solver: AnySolver, device: Device) -> None:
    """Without its clear steps a solution must be wrong, or they were needless."""
    for problem in applicable(solver, device.target):
        solution = solver.GetSolution(device.target, problem)
        kept = tuple(step for step in solution.steps if not isinstance(step, ClearStep))
        if kept == solution.steps:
            continue
        arrays = make_arrays(problem, seed=1)
        out = run(device, dataclasses.replace(solution, steps=kept), problem, arrays)
        assert not tolerance.judge(problem, arrays, out, problem.reference(arrays)).ok, (
            f"needless clear for {problem.key()}"
        )


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30], ids=str)
@pytest.mark.parametrize("solver", SOLVERS, ids=by_id)
def test_results_do_not_depend_on_what_the_buffers_held(solver: AnySolver, poison: float, device: Device) -> None:
    """And they are the same bits every time, unless the solver refuses deterministic problems."""
    for problem in applicable(solver, device.target):
        if problem.tensor(problem.output).dtype is DType.FP32 and not problem.reads_output:
            arrays = make_arrays(problem, seed=2)
            solution = solver.GetSolution(device.target, problem)
            out = run(device, solution, problem, arrays, poison)
            assert isinstance(problem, (ConvProblem, UpsampleProblem))
            if solver.IsApplicable(device.target, dataclasses.replace(problem, deterministic=True)):
                assert np.array_equal(out, run(device, solution, problem, arrays, poison=0.0)), problem.key()
            else:
                assert tolerance.judge(problem, arrays, out, problem.reference(arrays)).ok, problem.key()


@pytest.mark.parametrize("solver", SOLVERS, ids=by_id)
def test_operands_may_lie_at_odd_addresses(solver: AnySolver, device: Device) -> None:
    """One element beyond the alignment that devices promise, as a slice of a user's array does."""
    for problem in applicable(solver, device.target)[::3]:
        arrays = make_arrays(problem, seed=4)
        solution, size = solver.GetSolution(device.target, problem), problem.tensor(problem.output).dtype.itemsize
        shift = max(size, *(problem.tensor(role).dtype.itemsize for role in problem.inputs))
        out = run(device, solution, problem, arrays, shift=shift)
        assert tolerance.judge(problem, arrays, out, problem.reference(arrays)).ok, problem.key()
