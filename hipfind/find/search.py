"""Search: the best perf config of one solver for one problem, measured under a budget.

Configs come in random order within bands of equal promise, the default first. Each runs once on poisoned buffers and
then once timed (the probe); only one whose probe is near the best goes on to repeats, and only one that is about to
become the best has its output checked. The search ends with its configs, its time, or its patience, and what was
found until then counts, also when the user interrupts it.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import logging
import random
from collections.abc import Sequence
from typing import Any

from hipfind import settings
from hipfind.errors import CompileError, DeviceError
from hipfind.find.bench import Bench
from hipfind.find.candidates import Standing
from hipfind.find.report import OnProgress, Progress, Searched
from hipfind.find.timing import Runner, is_tie
from hipfind.invokers.invoker import build
from hipfind.perfdb.records import PerfRecord
from hipfind.solvers.base import TunableSolver

_log = logging.getLogger("hipfind.find")

REPEATS = 5
"""Timed runs of a config that is near the best."""
_BAND = 16
"""Configs of about equal promise: solvers list theirs with the most promising first.

So a short budget still meets those.
"""
_AHEAD = 32
"""Configs whose kernels are compiled at once, by all cores, before they are measured."""
_NEAR = 1.25
"""A config whose probe takes more than this many times the best median is not repeated."""


@dataclasses.dataclass(frozen=True)
class Budget:
    """Limits of one solver's search: time in ms, configs in all, configs in a row without a better one; 0: none."""

    time_ms: float = 0.0
    configs: int = 0
    patience: int = 0

    @classmethod
    def from_settings(cls) -> Budget:
        current = settings.current()
        return cls(float(current.tune_time_limit_ms), current.tune_configs, current.tune_patience)


def search_all(bench: Bench, standings: Sequence[Standing], say: OnProgress) -> dict[str, Searched]:
    """Search a config for each of these (tunable) solvers; stores what it found and returns it by solver id.

    An interrupt leaves, too, but what was found until then is stored first.
    """
    searches: dict[str, Search] = {}
    session = bench.session
    try:
        for standing in standings:
            search = searches[standing.solver_id] = Search(standing, bench, Budget.from_settings(), say)
            search.run()
    finally:
        found = [one.best for one in searches.values() if one.best is not None]
        if found:
            session.db.store_perf(bench.problem, session.device.target, session.environment, found)
            session.forget()
    return {name: search.searched for name, search in searches.items()}


@dataclasses.dataclass
class Search:
    """A search for one solver: ``run`` fills ``best``, so that it is there when ``run`` is interrupted."""

    standing: Standing
    bench: Bench
    budget: Budget
    say: OnProgress
    best: PerfRecord | None = None
    default_ms: float | None = None
    tried: int = 0
    failures: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    _best_runner: Runner | None = None

    def run(self) -> None:
        """Try configs until they or the budget are at their end."""
        solver, target = self.standing.solver, self.bench.session.device.target
        assert isinstance(solver, TunableSolver)
        problem, timer = self.bench.problem, self.bench.session.timer
        default = solver.GetDefaultPerformanceConfig(target, problem)
        others = [config for config in solver.Search(target, problem) if config != default]
        configs = [default, *_shuffled_in_bands(others)][: self.budget.configs or None]
        start, since_best = timer.now_ms(), 0
        for index, config in enumerate(configs):
            late = self.budget.time_ms and timer.now_ms() - start > self.budget.time_ms
            if self.tried and (late or (self.budget.patience and since_best >= self.budget.patience)):
                break
            if index % _AHEAD == 0:
                self._compile_ahead(solver, configs[index : index + _AHEAD])
            self.say(Progress("tune", f"{self.standing.solver_id} {config}", self.tried, len(configs)))
            since_best = 0 if self._try(solver, config) else since_best + 1
            if self.tried == 0 and self.best is not None:
                self.default_ms = self.best.time_ms
            self.tried += 1
        _log.info(
            "tuned solver=%s problem=%s configs=%d config=%s time_ms=%s failures=%s", self.standing.solver_id,
            problem.key(), self.tried, self.best.config if self.best else "none",
            f"{self.best.time_ms:.6g}" if self.best else "-", dict(self.failures),
        )  # fmt: skip

    def _compile_ahead(self, solver: TunableSolver[Any, Any], configs: Sequence[Any]) -> None:
        session, problem = self.bench.session, self.bench.problem
        self.say(
            Progress(
                "compile", f"{self.standing.solver_id}, {len(configs)} configs", self.tried, self.tried + len(configs)
            )
        )
        kernels = [solver.GetSolution(session.device.target, problem, config).kernels for config in configs]
        session.device.compile_ahead(list(itertools.chain.from_iterable(kernels)))

    @property
    def searched(self) -> Searched:
        """What was done, for the report."""
        best = self.best
        return Searched(
            self.standing.solver_id,
            best.config if best else "",
            best.time_ms if best else None,
            self.default_ms,
            self.tried,
            self.failures.total(),
        )

    def _try(self, solver: TunableSolver[Any, Any], config: Any) -> bool:
        """Measure one config; True when it is the best so far."""
        bench, name = self.bench, f"{self.standing.solver_id} {config}"
        try:
            solution = solver.GetSolution(bench.session.device.target, bench.problem, config)
            invoker = build(solution, bench.session.device, bench.problem.roles)
            bench.run_poisoned(invoker)
            runner = bench.runner(name, invoker)
            self._sample(runner)
            if not self._is_better(runner):
                return False
            if settings.current().verify != "off":
                bench.run_poisoned(invoker)
                bench.check(name)
        except (CompileError, DeviceError) as error:
            self.failures[type(error).__name__] += 1
            _log.debug("%s: %s", name, error)
            return False
        wrong = bench.refused(name)
        if wrong is not None:
            self.failures["wrong result"] += 1
            _log.warning("%s gives a wrong result and is left out: %s", name, wrong)
            return False
        self._best_runner = runner
        self.best = PerfRecord(
            self.standing.solver_id, solver.version, str(config), solution.source_hash, runner.median_ms,
            runner.spread_ms, len(runner.samples), solution.workspace_bytes,
        )  # fmt: skip
        return True

    def _sample(self, runner: Runner) -> None:
        """The probe, and repeats where it is near the best. Raises DeviceError."""
        best = self._best_runner
        while len(runner.samples) < REPEATS:
            runner.sample(self.bench.session.timer)
            if best is not None and min(runner.samples) > _NEAR * best.median_ms:
                return

    def _is_better(self, runner: Runner) -> bool:
        best = self._best_runner
        return best is None or (
            len(runner.samples) == REPEATS and runner.median_ms < best.median_ms and not is_tie(runner, best)
        )


def _shuffled_in_bands(configs: Sequence[Any]) -> list[Any]:
    shuffler = random.Random(0)
    bands = [list(configs[start : start + _BAND]) for start in range(0, len(configs), _BAND)]
    for band in bands:
        shuffler.shuffle(band)
    return list(itertools.chain.from_iterable(bands))
