"""How candidates are timed against each other. The timer is injected, so that the engine runs on a fake clock.

Every candidate is warmed up first (the caller does that, outside of any decision). Then come rounds: in each, the
candidates still in the race run once, in shuffled order, with the cache flushed before each run, so that clock ramps
and drift hit all alike. After the probe rounds those far behind the best stop. The median of the rounds decides.
"""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from hipfind.device.base import Device
from hipfind.errors import DeviceError

MIN_ROUNDS = 3
MAX_ROUNDS = 15
ENOUGH_MS = 300.0
"""Rounds go on until each candidate ran MIN_ROUNDS and the best one this long in total, or MAX_ROUNDS."""
FAR_BEHIND = 3.0
"""A candidate whose best run is this many times slower than the best candidate's stops after MIN_ROUNDS - 1 rounds.

Above 2, so that a clock that doubles its speed between two runs cannot drop an equal candidate.
"""


class Timer(Protocol):
    """Measures single runs and tells the time for budgets."""

    def measure_ms(self, run: Callable[[], None]) -> float:
        """Device time of one run in ms, from a cold cache."""
        ...

    def now_ms(self) -> float:
        """A monotonic clock in ms."""
        ...


class DeviceTimer:
    """The real timer: device events around all of a run's steps, last-level cache flushed before."""

    def __init__(self, device: Device, stream: int = 0) -> None:
        self._device = device
        self._stream = stream

    def measure_ms(self, run: Callable[[], None]) -> float:
        self._device.flush_cache(self._stream)
        return self._device.time_ms(run, self._stream)

    def now_ms(self) -> float:
        return time.monotonic() * 1e3


@dataclasses.dataclass
class Runner:
    """A candidate in the race: ``prepare`` restores operands (not timed), ``run`` is timed."""

    solver_id: str
    run: Callable[[], None]
    prepare: Callable[[], None] | None = None
    samples: list[float] = dataclasses.field(default_factory=list)
    error: DeviceError | None = None
    stopped: str = ""

    @property
    def is_racing(self) -> bool:
        return self.error is None and not self.stopped

    def sample(self, timer: Timer) -> None:
        """Run once, timed. Raises DeviceError."""
        if self.prepare is not None:
            self.prepare()
        self.samples.append(timer.measure_ms(self.run))

    @property
    def median_ms(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread_ms(self) -> float:
        """Robust standard deviation of the samples (1.4826 times the median absolute deviation); 0 for one sample."""
        if len(self.samples) < 2:
            return 0.0
        centre = self.median_ms
        return 1.4826 * statistics.median(abs(sample - centre) for sample in self.samples)


def race(
    runners: Sequence[Runner],
    timer: Timer,
    *,
    limit_ms: float = 0.0,
    seed: int = 0,
    on_round: Callable[[int, int], None] | None = None,
) -> None:
    """Fill every runner's samples. ``limit_ms`` bounds the whole race (0: unbounded); each runs at least once."""
    shuffler = random.Random(seed)
    start = timer.now_ms()
    for round_index in range(MAX_ROUNDS):
        order = [runner for runner in runners if runner.is_racing]
        if not order or (round_index >= MIN_ROUNDS and _is_decided(order)):
            return
        shuffler.shuffle(order)
        for runner in order:
            if runner.samples and limit_ms and timer.now_ms() - start > limit_ms:
                return
            try:
                runner.sample(timer)
            except DeviceError as error:
                runner.error = error
        if round_index == MIN_ROUNDS - 2:
            _stop_far_behind(runners)
        if on_round is not None:
            on_round(round_index + 1, MAX_ROUNDS)


def _is_decided(order: Sequence[Runner]) -> bool:
    best = min(order, key=lambda runner: runner.median_ms)
    return sum(best.samples) >= ENOUGH_MS


def _stop_far_behind(runners: Sequence[Runner]) -> None:
    timed = [runner for runner in runners if runner.error is None and runner.samples]
    if not timed:
        return
    best = min(min(runner.samples) for runner in timed)
    for runner in timed:
        if min(runner.samples) > FAR_BEHIND * best:
            runner.stopped = f"{min(runner.samples) / best:.1f} times the best candidate's time"


def is_tie(first: Runner, second: Runner) -> bool:
    """True when two medians differ by no more than two standard errors of the noisier one."""

    def error(runner: Runner) -> float:
        return 2.0 * runner.spread_ms / math.sqrt(len(runner.samples))

    return abs(first.median_ms - second.median_ms) <= max(error(first), error(second))
