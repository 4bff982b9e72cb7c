"""Measures the candidates of a Find: tunes, builds, verifies and times them, and gives each its outcome.

Only errors with a name end a candidate; anything else is a bug and leaves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from hipfind import settings
from hipfind.errors import CompileError, DeviceError, OutOfMemoryError
from hipfind.find.bench import Bench
from hipfind.find.candidates import Standing
from hipfind.find.configs import solution_of, tuned_configs
from hipfind.find.modes import Tuning
from hipfind.find.report import OnProgress, Outcome, Progress, Searched
from hipfind.find.search import search_all
from hipfind.find.session import Session
from hipfind.find.timing import Runner, is_tie, race
from hipfind.find.trust import Known
from hipfind.invokers.invoker import Invoker, build
from hipfind.problem.base import Problem

_HOPELESS = 10.0
"""A candidate expected to take this many times the best expected time, and longer than _LONG_MS, is not run at all."""
_LONG_MS = 1000.0


@dataclasses.dataclass
class Entry:
    """A candidate on its way through one Find."""

    standing: Standing
    config: str = ""
    invoker: Invoker | None = None
    runner: Runner | None = None
    outcome: Outcome | None = None
    reason: str = ""
    verified: bool = False
    searched: Searched | None = None

    def end(self, outcome: Outcome, reason: str) -> None:
        self.outcome, self.reason = outcome, reason

    @property
    def is_in(self) -> bool:
        return self.outcome is None

    @property
    def median_ms(self) -> float | None:
        """Its time, None when it was not timed or gave no right result."""
        is_usable = self.outcome in (Outcome.WON, Outcome.LOST) and self.runner is not None
        return self.runner.median_ms if is_usable and self.runner is not None else None


def measure(
    problem: Problem,
    session: Session,
    entries: Sequence[Entry],
    known: Mapping[str, Known],
    tune: Tuning,
    on_progress: OnProgress | None,
) -> None:
    """Measure the entries that have no outcome yet; ``known``: records that say what was verified before."""
    say = on_progress or (lambda progress: None)
    drop_hopeless(entries)
    racing = [entry for entry in entries if entry.is_in]
    if not racing:
        return
    bench = Bench(problem, session)
    refused = bench.make_workspace(entry.standing.workspace_bytes for entry in racing)
    for entry in racing:
        if entry.standing.workspace_bytes in refused:
            entry.end(Outcome.OUT_OF_MEMORY, refused[entry.standing.workspace_bytes])
    _set_configs(bench, [entry for entry in racing if entry.is_in], tune, say)
    _build(problem, session, [entry for entry in racing if entry.is_in], say)
    _warm_up(bench, [entry for entry in racing if entry.is_in], known, say)
    racing = [entry for entry in racing if entry.is_in]
    for entry in racing:
        assert entry.invoker is not None
        entry.runner = bench.runner(entry.standing.solver_id, entry.invoker)
    race(
        [entry.runner for entry in racing if entry.runner is not None],
        session.timer,
        limit_ms=float(settings.current().find_time_limit_ms),
        on_round=lambda done, rounds: say(Progress("time", f"{len(racing)} candidates", done, rounds)),
    )
    _judge(racing)


def _set_configs(bench: Bench, entries: Sequence[Entry], tune: Tuning, say: OnProgress) -> None:
    """Give each tunable candidate without a config the one that the DB has, or that a search finds now and stores."""
    configs = tuned_configs(bench.problem, bench.session, {one.standing.solver_id: one.standing for one in entries})
    if tune is not Tuning.NOTHING:
        tunable = [one.standing for one in entries if one.standing.solver.IsTunable() and not one.config]
        wanted = [one for one in tunable if tune is Tuning.ALL or one.solver_id not in configs]
        searches = search_all(bench, wanted, say)
        configs |= {name: one.config for name, one in searches.items() if one.config}
        for entry in entries:
            entry.searched = searches.get(entry.standing.solver_id)
    for entry in entries:
        entry.config = entry.config or configs.get(entry.standing.solver_id, "")


def drop_hopeless(entries: Sequence[Entry]) -> None:
    """End the candidates that are expected to take far longer than the best one."""
    expected = [entry.standing.expected_ms for entry in entries if entry.is_in]
    best = min(expected, default=0.0)
    for entry in entries:
        time_ms = entry.standing.expected_ms
        if entry.is_in and time_ms > _LONG_MS and time_ms > _HOPELESS * best:
            entry.end(Outcome.SKIPPED_SLOW, f"expected {time_ms:.0f} ms, the best candidate {best:.3g} ms")


def _build(problem: Problem, session: Session, entries: Sequence[Entry], say: OnProgress) -> None:
    target = session.device.target
    solutions = [solution_of(entry.standing.solver, target, problem, entry.config) for entry in entries]
    session.device.compile_ahead([spec for solution in solutions for spec in solution.kernels])
    for index, (entry, solution) in enumerate(zip(entries, solutions, strict=True)):
        say(Progress("compile", entry.standing.solver_id, index, len(entries)))
        entry.config = solution.config
        try:
            entry.invoker = build(solution, session.device, problem.roles)
        except CompileError as error:
            entry.end(Outcome.COMPILE_FAILED, str(error))
        except DeviceError as error:
            entry.end(Outcome.RUN_FAILED, str(error))


def _warm_up(bench: Bench, entries: Sequence[Entry], known: Mapping[str, Known], say: OnProgress) -> None:
    """Run each candidate once on poisoned buffers, outside of any timing, and check its output where asked."""
    when = settings.current().verify
    for index, entry in enumerate(entries):
        name = entry.standing.solver_id
        say(Progress("verify", name, index, len(entries)))
        before = known.get(name)
        is_verified = before is not None and before.verified and before.config == entry.config
        must_check = when == "always" or (when == "first" and not is_verified)
        entry.verified = not must_check and is_verified
        assert entry.invoker is not None
        try:
            bench.run_poisoned(entry.invoker)
            if must_check:
                bench.check(name)
                entry.verified = True
        except OutOfMemoryError as error:
            entry.end(Outcome.OUT_OF_MEMORY, str(error))
        except DeviceError as error:
            entry.end(Outcome.RUN_FAILED, str(error))
    for entry in entries:
        wrong = bench.refused(entry.standing.solver_id)
        if wrong is not None:
            entry.end(Outcome.WRONG_RESULT, wrong)


def _judge(entries: Sequence[Entry]) -> None:
    """Give every measured candidate its outcome; ties within the noise go to less workspace, then registry order."""
    timed: list[tuple[Entry, Runner]] = []
    for entry in entries:
        runner = entry.runner
        assert runner is not None
        if runner.error is not None:
            entry.end(Outcome.RUN_FAILED, str(runner.error))
        elif runner.stopped:
            entry.end(Outcome.SKIPPED_SLOW, runner.stopped)
        else:
            timed.append((entry, runner))
    if not timed:
        return
    _, fastest = min(timed, key=lambda pair: pair[1].median_ms)
    tied = [entry for entry, runner in timed if is_tie(runner, fastest)]
    winner = min(tied, key=lambda entry: (entry.standing.workspace_bytes, entry.standing.order))
    for entry, _ in timed:
        entry.end(Outcome.WON if entry is winner else Outcome.LOST, "")
