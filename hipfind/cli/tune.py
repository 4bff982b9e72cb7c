"""``hipfind tune``: search the perf configs of every problem of a list, or only compile the kernels."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import click

from hipfind import settings
from hipfind.cli import text
from hipfind.cli.exits import FAILED, complain
from hipfind.cli.find import nothing_usable
from hipfind.cli.options import device_option, json_option
from hipfind.cli.output import print_json
from hipfind.cli.progress import TimeLeft, find_progress
from hipfind.cli.table import print_note
from hipfind.cli.tune_compile import compile_list
from hipfind.errors import HipfindError
from hipfind.find.engine import find
from hipfind.find.immediate import immediate
from hipfind.find.report import FindReport
from hipfind.find.session import Session, session_for
from hipfind.find.tuning import is_tuned, share_of_time, tunable
from hipfind.problem.problem_list import Listed, ProblemList, read_list

_SHOWN = 20
_TUNED, _ALREADY, _WOULD, _FAILED = "tuned", "already tuned", "would tune", "failed"


@dataclasses.dataclass(frozen=True)
class _Done:
    """What came of one problem.

    ``default_ms``: time of the winner's default config where its search measured it; ``gain``: that time over the best
    config's in the same search, 1.0 where the default is the best.
    """

    problem: str
    where: str
    state: str
    solver_id: str = ""
    config: str = ""
    time_ms: float | None = None
    default_ms: float | None = None
    gain: float = 1.0
    tried: int = 0
    detail: str = ""
    searches: tuple[dict[str, Any], ...] = ()


@click.command("tune")
@click.argument("files", metavar="FILE...", nargs=-1, required=True,
                type=click.Path(exists=True, dir_okay=False, allow_dash=True))  # fmt: skip
@click.option("--solver", "solvers", multiple=True, metavar="ID", help="Tune only this solver. Repeatable.")
@click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="For all searches of one problem.  [default: HIPFIND_TUNE_TIME_LIMIT_MS for each]")  # fmt: skip
@click.option("--again", is_flag=True, help="Tune also what is tuned already.")
@click.option("--dry-run", is_flag=True, help="Only list what would be tuned.")
@click.option(
    "--compile-only", is_flag=True, help="Run nothing: compile the kernels into the cache, also for null:ARCH."
)
@click.option("--all-configs", is_flag=True, help="With --compile-only: every valid config, not the default alone.")
@device_option
@json_option
def tune(
    files: tuple[str, ...],
    solvers: tuple[str, ...],
    time_limit: float | None,
    again: bool,
    dry_run: bool,
    compile_only: bool,
    all_configs: bool,
    device: str | None,
    as_json: bool,
) -> int:
    """Search the best perf config of every tunable solver for every problem of FILE..., and store it.

    A file holds MIOpenDriver's command lines, keys of hipfind's or of MIOpen's find-db (with or without records behind
    them), a log of MIOpen's (MIOPEN_ENABLE_LOGGING_CMD=1), or YAML; "-" is standard input. What a file is, is told by
    its content. A problem that stands there twice is tuned once.

    A problem whose search was finished here, with today's solvers, is passed over: a list can be interrupted (Ctrl-C)
    and goes on at the next run. What cannot be read is named with its line, and the rest goes on; exit code 1 then.
    """
    if compile_only and (again or dry_run or time_limit is not None):
        raise click.UsageError("--compile-only measures nothing: leave out --again, --dry-run and --time-limit")
    if all_configs and not compile_only:
        raise click.UsageError("--all-configs is for --compile-only: a search tries every config as it is")
    session = session_for(device)
    for name in solvers:
        session.registry.get(name)
    listed = _read(files)
    for error in listed.errors[:_SHOWN]:
        complain(f"{error.where}: {error.error}")
    if len(listed.errors) > _SHOWN:
        complain(f"{len(listed.errors) - _SHOWN} more lines could not be read")
    if not (listed.problems or listed.errors):
        complain(f"there is no problem in {', '.join(files)}; `hipfind tune --help` says what a file holds")
        return FAILED
    with settings.override(**({"find_only_solver": solvers} if solvers else {})):
        if compile_only:
            failed = compile_list(listed, session, all_configs, as_json)
        else:
            failed = _Run(listed, session, time_limit, again, dry_run, as_json).all()
    return FAILED if failed or listed.errors else 0


def _read(files: Sequence[str]) -> ProblemList:
    listed = ProblemList()
    for file in files:
        with click.open_file(file, "rb") as stream:
            content = stream.read().decode("utf-8", "replace")  # a log may hold anything
        listed.add(read_list(content, "standard input" if file == "-" else file))
    return listed


class _Run:
    """One run over a list: each problem's line as it is done, the sums at the end, also at an interrupted one."""

    def __init__(
        self, listed: ProblemList, session: Session, time_limit: float | None, again: bool, dry_run: bool, as_json: bool
    ) -> None:
        self._listed = listed
        self._problems = listed.unique()
        self._session = session
        self._time_limit = time_limit
        self._again = again
        self._dry_run = dry_run
        self._as_json = as_json
        self._done: list[_Done] = []
        self._time_left = TimeLeft(len(self._problems))

    def all(self) -> bool:
        """Tune every problem; True where one failed."""
        if not self._dry_run:
            self._session.device.synchronize()  # a device that never runs is refused before the first problem
        interrupted = True
        try:
            for one in self._problems:
                self._time_left.begin()
                self._done.append(self._one(one))
                self._time_left.end(counts=self._done[-1].state == _TUNED)
                if not self._as_json:
                    self._print(self._done[-1])
            interrupted = False
        finally:
            self._print_sums(interrupted)
        return any(one.state == _FAILED for one in self._done)

    def _one(self, one: Listed) -> _Done:
        key, session = one.problem.key(), self._session
        if not self._again and is_tuned(one.problem, session):
            best = next(iter(immediate(one.problem, session)), None)
            found = () if best is None else (best.solver_id, best.config, best.time_ms)
            return _Done(key, one.where, _ALREADY, *found)
        if self._dry_run:
            names = ", ".join(candidate.solver_id for candidate in tunable(one.problem, session))
            return _Done(key, one.where, _WOULD, detail=names or "no tunable solver, only a Find")
        try:
            return _done(one, self._find(one))
        except HipfindError as error:
            complain(f"{one.where}: {error}")
            return _Done(key, one.where, _FAILED, detail=str(error))

    def _find(self, one: Listed) -> FindReport:
        limit = {}
        if self._time_limit is not None:
            limit["tune_time_limit_ms"] = share_of_time(self._time_limit, one.problem, self._session)
        with settings.override(**limit), find_progress(self._prefix) as on_progress:
            return find(one.problem, self._session, mode="NORMAL", tune=True, on_progress=on_progress)

    def _prefix(self) -> str:
        seconds = self._time_left.seconds
        left = "" if seconds is None else f", {text.duration(seconds)} left"
        return f"[{len(self._done) + 1}/{len(self._problems)}{left}] "

    def _print(self, one: _Done) -> None:
        width = len(str(len(self._problems)))
        click.echo(f"{len(self._done):>{width}}/{len(self._problems)}  {one.problem}  {_what(one)}")
        sys.stdout.flush()  # a list takes hours: whoever reads a pipe sees each line when it is true

    def _print_sums(self, interrupted: bool) -> None:
        states = [one.state for one in self._done]
        twice = len(self._listed.problems) - len(self._problems)
        if self._as_json:
            print_json({
                "device": self._session.device.name, "interrupted": interrupted, "listed_twice": twice,
                "problems": [dataclasses.asdict(one) for one in self._done],
                "unread": [{"where": where, "error": str(error)} for where, error in self._listed.errors],
            })  # fmt: skip
            return
        sums = [f"{states.count(state)} {state}" for state in (_TUNED, _WOULD, _ALREADY, _FAILED) if state in states]
        sums += [f"{len(self._problems) - len(states)} left for the next run"] if interrupted else []
        sums += [f"{twice} listed twice"] if twice else []
        sums += [f"{len(self._listed.errors)} not read"] if self._listed.errors else []
        print_note(
            f"{len(self._problems)} problems on {self._session.device.name}: {', '.join(sums) or 'nothing to do'}"
        )


def _done(one: Listed, report: FindReport) -> _Done:
    key, best = one.problem.key(), report.best
    searches = tuple(dataclasses.asdict(search) for search in report.searches)
    tried = sum(search.tried for search in report.searches)
    if best is None:
        complain(f"{one.where}: {nothing_usable(report)}")
        return _Done(key, one.where, _FAILED, tried=tried, detail="no solver has a usable result", searches=searches)
    done = _Done(key, one.where, _TUNED, best.solver_id, best.config, best.time_ms, tried=tried, searches=searches)
    for search in report.searches:
        if search.solver_id == best.solver_id and search.default_ms and search.time_ms:
            return dataclasses.replace(done, default_ms=search.default_ms, gain=search.default_ms / search.time_ms)
    return done


def _what(one: _Done) -> str:
    if one.time_ms is None:
        return f"{one.state}: {one.detail}" if one.detail else one.state
    winner = f"{one.solver_id} {one.config}".strip() + f", {text.ms(one.time_ms)} ms"
    if one.state == _ALREADY:
        return f"{_ALREADY}: {winner}"
    if one.gain > 1.0:
        winner += f" (default config {text.ms(one.default_ms)} ms)"
    return f"{winner}; {one.tried} config{'' if one.tried == 1 else 's'} tried"
