"""The Python find API: find, immediate, plan, explain, devices."""

from __future__ import annotations

from collections.abc import Mapping

from hipfind.device.base import Device
from hipfind.device.devices import DeviceInfo, list_devices
from hipfind.find import engine, reference
from hipfind.find import immediate as immediate_mode
from hipfind.find.calls import log_command, log_decision
from hipfind.find.plan import Plan, make_plan
from hipfind.find.report import Choice, Explanation, FindReport, OnProgress
from hipfind.find.session import session_for
from hipfind.perfdb.references import Reference
from hipfind.problem.base import Problem

DeviceLike = str | Device | None


def find(
    problem: Problem,
    mode: str | None = None,
    workspace_limit: int | None = None,
    device: DeviceLike = None,
    verify: str | None = None,
    tune: bool = False,
    on_progress: OnProgress | None = None,
    configs: Mapping[str, str] | None = None,
) -> FindReport:
    """Find the fastest solver: measures what the perf DB does not know yet, and stores it.

    ``mode``: "normal", "fast", "hybrid", "dynamic_hybrid" or MIOpen's number; None takes the setting.
    ``workspace_limit`` in bytes; a result under a limit that excluded somebody is not stored. ``verify``: "first",
    "always", "off". ``tune``: search the best perf config of every tunable solver first; the configs are stored as they
    are found, also when Ctrl-C ends the search, and used by every later Find and plan of this problem.
    ``on_progress`` is called with a Progress for each step. ``configs``: perf configs as text by solver id, to be
    measured in place of the known ones; all is measured as mode "normal" does, and nothing is stored. One that its
    solver refuses is reported with the rule that it breaks, and the solver runs with its default.
    """
    log_command("Find", problem)
    return engine.find(
        problem,
        session_for(device),
        mode=mode,
        workspace_limit=workspace_limit,
        verify=verify,
        tune=tune,
        on_progress=on_progress,
        configs=configs,
    )


def immediate(problem: Problem, workspace_limit: int | None = None, device: DeviceLike = None) -> list[Choice]:
    """Ranked solutions without running anything: from the perf DB, else by expected time."""
    log_command("Immediate", problem, "0")
    session = session_for(device)
    choices = list(immediate_mode.immediate(problem, session, workspace_limit))
    log_decision("immediate", problem, session.device.name, choices[0] if choices else None)
    return choices


def plan(
    problem: Problem,
    mode: str | None = None,
    solver: str | None = None,
    workspace_limit: int | None = None,
    device: DeviceLike = None,
) -> Plan:
    """The best known solution, built and ready to call with arrays.

    Without ``mode`` immediate mode chooses and nothing is measured; with one, a Find of that mode chooses. ``solver``
    forces a solver by id.
    """
    plan = make_plan(problem, session_for(device), mode=mode, solver=solver, workspace_limit=workspace_limit)
    log_command("Plan", problem, plan.solver_id)
    return plan


def explain(problem: Problem, device: DeviceLike = None) -> list[Explanation]:
    """Every solver: whether it applies or why not, WTI, expected time, workspace, and its DB record."""
    return list(immediate_mode.explain(problem, session_for(device)))


def references(problem: Problem, device: DeviceLike = None) -> list[Reference]:
    """MIOpen's own records of the problem that were imported, of any device; the nearest to this device first."""
    return list(reference.references(problem, session_for(device)))


def devices() -> tuple[DeviceInfo, ...]:
    """What can run here, and why the others cannot."""
    return list_devices()
