"""Plans: the best known solution of a problem, built, to be called with arrays as often as one likes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from hipfind import settings
from hipfind.device.arrays import ArraySlot, array_ref, current_stream
from hipfind.device.gpu_arrays import is_outside_streams, stream_handle
from hipfind.errors import (
    ArrayError,
    CompileError,
    DeviceError,
    NoSolutionError,
    NotApplicableError,
    WorkspaceError,
)
from hipfind.find.calls import log_decision
from hipfind.find.configs import solution_or_default
from hipfind.find.engine import find
from hipfind.find.immediate import answer
from hipfind.find.numerics import watched
from hipfind.find.report import Choice, Source
from hipfind.find.session import Session
from hipfind.invokers.invoker import Invoker, build
from hipfind.problem.base import Problem

_log = logging.getLogger("hipfind.find")


class Plan:
    """A built solution for one problem on one device. Reusable and thread-safe.

    Call it with the problem's inputs in order: fwd ``plan(x, w)``, bwd ``plan(dy, w)``, wrw ``plan(dy, x)``. ``out`` is
    the array to write (made when None, of the inputs' kind); with beta not 0 it must be given. ``workspace`` is a
    byte buffer of at least ``workspace_bytes`` (from a pool when None). ``stream`` is a stream's handle, or a stream of
    torch or cupy; None: the one that the first input's library works on now.
    """

    def __init__(self, problem: Problem, session: Session, choice: Choice, invoker: Invoker) -> None:
        self.problem = problem
        self.choice = choice
        self._device = session.device
        self._invoker = invoker
        self._pool = session.workspaces
        roles, mapping = problem.roles, problem.canonical_roles()
        places = {role: problem.canonical().roles.index(mapping[role]) for role in roles}
        self._inputs = [
            (places[role], ArraySlot(problem.tensor(role), session.device.name, role)) for role in problem.inputs
        ]
        self._has_streams = not session.device.target.is_host
        self._output_place = places[problem.output]
        self._output = ArraySlot(problem.tensor(problem.output), session.device.name, problem.output)
        self._is_fresh_output = not problem.reads_output
        self._no_addresses = [0] * len(roles)

    @property
    def solver_id(self) -> str:
        return self.choice.solver_id

    @property
    def workspace_bytes(self) -> int:
        """Bytes that ``workspace`` must have at least."""
        return self._invoker.workspace_bytes

    def __repr__(self) -> str:
        return f"<Plan {self.solver_id} ({self.choice.source.value}) for {self.problem.key()} on {self._device.name}>"

    def __call__(self, *inputs: Any, out: Any = None, workspace: Any = None, stream: Any = None) -> Any:
        """Run; returns the output array. Raises ArrayError for an array that does not fit, WorkspaceError."""
        if len(inputs) != len(self._inputs):
            names = ", ".join(slot.role for _, slot in self._inputs)
            raise ArrayError(
                f"a {self.problem.direction} plan takes {len(self._inputs)} arrays: {names}", got=f"{len(inputs)}"
            )
        if stream is None:
            stream = current_stream(inputs[0]) if self._has_streams else 0
        elif type(stream) is not int or stream < 0:
            stream = stream_handle(stream)
        addresses = self._no_addresses.copy()
        for (place, slot), array in zip(self._inputs, inputs, strict=True):
            addresses[place] = slot.address(array, stream)
        if out is None:
            if not self._is_fresh_output:
                raise ArrayError("with beta not 0 the output must be given", got="out=None", remedy="pass out=")
            out, addresses[self._output_place] = self._output.new(inputs[0], stream)
        else:
            addresses[self._output_place] = self._output.output_address(out, stream)
            self._refuse_overlap(addresses)
        self._run(addresses, workspace, stream)
        if self._has_streams and is_outside_streams(out):
            self._device.synchronize(stream)
        return out

    def run(self, inputs: Sequence[int], output: int, workspace: int = 0, stream: int = 0) -> None:
        """Run on addresses that the caller vouches for: inputs in order, output, ``workspace_bytes`` of workspace.

        Nothing is checked. Without a workspace address one comes from the pool where it is needed.
        """
        addresses = self._no_addresses.copy()
        for (place, _), address in zip(self._inputs, inputs, strict=True):
            addresses[place] = address
        addresses[self._output_place] = output
        if workspace:
            addresses.append(workspace)
            self._invoker.run(addresses, stream)
        else:
            self._run(addresses, None, stream)

    def _refuse_overlap(self, addresses: list[int]) -> None:
        """Raise ArrayError where the output has an element of an input, which may be read after it was written."""
        output, at = self._output, addresses[self._output_place]
        for place, slot in self._inputs:
            other = addresses[place]
            if other < at + output.nbytes and at < other + slot.nbytes and slot.shares_elements(other, output, at):
                what = f"{output.role} must not share elements with {slot.role}, which is read meanwhile"
                raise ArrayError(what, got="arrays that overlap", remedy="give an output of its own")

    def _run(self, addresses: list[int], workspace: Any, stream: int) -> None:
        needed = self._invoker.workspace_bytes
        if not needed:
            addresses.append(0)
            self._invoker.run(addresses, stream)
        elif workspace is not None:
            addresses.append(_workspace_address(workspace, needed, self._device.name))
            self._invoker.run(addresses, stream)
        else:
            with self._pool.borrow(needed, stream) as memory:
                addresses.append(memory.address)
                self._invoker.run(addresses, stream)


def _workspace_address(workspace: Any, needed: int, device: str) -> int:
    ref = array_ref(workspace, None, device, "workspace")
    if ref.nbytes < needed:
        raise WorkspaceError(f"this plan needs a workspace of {needed} bytes", got=f"{ref.nbytes}")
    return ref.address


def make_plan(
    problem: Problem,
    session: Session,
    *,
    mode: str | None = None,
    solver: str | None = None,
    workspace_limit: int | None = None,
) -> Plan:
    """Plan with the best known solution: immediate mode's first choice that builds, or a Find's winner with ``mode``.

    ``solver`` forces one by id. Built plans are kept by session; a new answer for the problem makes a new plan. Raises
    NoSolutionError, NotApplicableError, UnknownSolverError.
    """
    failures: list[str] = []
    current = settings.current()
    for choice in _choices(problem, session, mode, solver, workspace_limit):
        key = (problem, choice, current.log_cmd, current.check_numerics)
        plan: Plan | None = session.plans.get(key)
        if plan is None:
            try:
                plan = _build(problem, session, choice)
            except (CompileError, DeviceError) as error:
                _log.warning("%s does not build and is passed over: %s", choice.solver_id, error)
                failures.append(f"{choice.solver_id}: {error}")
                continue
            session.plans.put(key, plan)
        return plan
    reason = "; ".join(failures) or "no solver applies (hipfind explain shows each one's reason)"
    raise NoSolutionError(f"no solution for this problem on {session.device.name}: {reason}", got=problem.key())


def _choices(
    problem: Problem, session: Session, mode: str | None, solver: str | None, workspace_limit: int | None
) -> Sequence[Choice]:
    if solver is None:
        if mode is not None:
            return find(problem, session, mode=mode, workspace_limit=workspace_limit).results
        return answer(problem, session, workspace_limit).choices
    canonical, target = problem.canonical(), session.device.target
    forced = session.registry.get(solver)
    applicability = forced.IsApplicable(target, canonical)
    if not applicability:
        raise NotApplicableError(f"{solver} cannot solve this problem: {applicability}", got=canonical.key())
    known = [one for one in answer(problem, session).choices if one.solver_id == solver]
    if known:
        return known
    workspace = forced.GetWorkspaceSize(target, canonical)
    return [Choice(solver, forced.GetExpectedTime(target, canonical), workspace, Source.WTI)]


def _build(problem: Problem, session: Session, choice: Choice) -> Plan:
    invoker = build_choice(problem, session, choice)
    log_decision("plan", problem, session.device.name, choice)
    return Plan(problem, session, choice, watched(invoker, problem, session.device))


def build_choice(problem: Problem, session: Session, choice: Choice) -> Invoker:
    """The invoker of a choice for the canonical problem: with the choice's config, else with the solver's default.

    Raises CompileError, DeviceError.
    """
    canonical = problem.canonical()
    solver, target = session.registry.get(choice.solver_id), session.device.target
    solution = solution_or_default(session, canonical, choice.solver_id, choice.config)
    try:
        return build(solution, session.device, canonical.roles)
    except DeviceError as error:
        default = solver.GetSolution(target, canonical)
        if solution == default:
            raise
        _log.warning("%s with %s is not possible, its default is used: %s", solver.SolverDbId(), solution.config, error)
        return build(default, session.device, canonical.roles)
