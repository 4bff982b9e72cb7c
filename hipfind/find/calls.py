"""What is said of a call: one line a decision through the log, and the equivalent command line where asked for."""

from __future__ import annotations

import logging
import shlex
import sys

from hipfind import settings
from hipfind.errors import ProblemError
from hipfind.find.report import Choice, Source
from hipfind.problem.base import Problem
from hipfind.problem.conv import ConvProblem
from hipfind.problem.driver import to_command

_log = logging.getLogger("hipfind.find")


def log_decision(call: str, problem: Problem, device: str, choice: Choice | None, source: Source | None = None) -> None:
    """One line at INFO: what ``call`` chose for a problem. ``source`` None takes the choice's own."""
    if not _log.isEnabledFor(logging.INFO):
        return
    came_from = source or (choice.source if choice else None)
    _log.info(
        "%s problem=%s device=%s solver=%s time_ms=%s source=%s",
        call,
        problem.key(),
        device,
        choice.solver_id if choice else "none",
        f"{choice.time_ms:.6g}" if choice else "-",
        came_from.value if came_from else "-",
    )


def log_command(call: str, problem: Problem, solution: str = "") -> None:
    """Print the command line that does what ``call`` does, on stderr, when the setting ``log_cmd`` asks for it."""
    if settings.current().log_cmd:
        print_command(call, command_of(problem, solution))


def print_command(call: str, command: str) -> None:
    """One line on stderr in the form of MIOpen's log; lists of problems may be made of such lines."""
    sys.stderr.write(f"hipfind: Command [LogCmd{call}] {command}\n")


def command_of(problem: Problem, solution: str = "") -> str:
    """``hipfind conv ...`` for a problem, with ``-S solution``; by its key where driver flags cannot say it.

    ``solution``: a solver's id, "0" for immediate mode, "" for a Find.
    """
    try:
        if isinstance(problem, ConvProblem):
            words = to_command(problem).split(maxsplit=1)[1]
            return f"hipfind {words}" + (f" -S {solution}" if solution else "")
    except ProblemError:  # strides with gaps, alpha and beta, ...: only a key says those
        pass
    forced = f" --solver {solution}" if solution not in ("", "0") else ""
    command = "immediate" if solution == "0" else "find"
    return f"hipfind {command} --key {shlex.quote(problem.key())}{forced}"
