"""The race between candidates, on simulated clocks: drift, ramps, noise, cold starts, budgets, ties."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from hipfind.errors import KernelLaunchError
from hipfind.find import timing
from hipfind.find.timing import Runner, is_tie, race


class Clock:
    """A clock moved by the runs, and a Timer on it."""

    def __init__(self) -> None:
        self.ms = 0.0

    def runner(self, name: str, duration: Callable[[float], float]) -> Runner:
        def run() -> None:
            self.ms += duration(self.ms)

        return Runner(name, run)

    def measure_ms(self, run: Callable[[], None]) -> float:
        before = self.ms
        run()
        return self.ms - before

    def now_ms(self) -> float:
        return self.ms


def test_drift_and_order_do_not_decide() -> None:
    """B84: every call is 0.1 % faster than the one before; two equal candidates stay within 2 % whoever is first."""
    for seed in range(20):
        clock, calls = Clock(), [0]

        def drifting(_: float, calls: list[int] = calls) -> float:
            calls[0] += 1
            return 10.0 * 0.999 ** calls[0]

        first, second = clock.runner("first", drifting), clock.runner("second", drifting)
        race([first, second], clock, seed=seed)
        assert first.median_ms == pytest.approx(second.median_ms, rel=0.02)


def test_a_clock_ramp_neither_drops_nor_promotes() -> None:
    """B82: the clock doubles its speed after 400 ms: equal candidates tie, a three times slower one never wins."""
    for seed in range(20):
        clock = Clock()

        def ramp(base: float) -> Callable[[float], float]:
            return lambda now: base if now < 400.0 else base / 2

        runners = [clock.runner("a", ramp(40.0)), clock.runner("b", ramp(40.0)), clock.runner("slow", ramp(120.0))]
        race(runners, clock, seed=seed)
        a, b, slow = runners
        assert a.is_racing and b.is_racing
        assert slow.median_ms > 1.5 * max(a.median_ms, b.median_ms)


def test_noise_smaller_than_the_difference_does_not_hide_the_winner() -> None:
    """B90: fifteen candidates at 1.00 +- 0.05 and one at 0.90."""
    wins = 0
    for trial in range(100):
        rng, clock = random.Random(trial), Clock()

        def noisy(mean: float, rng: random.Random = rng) -> Callable[[float], float]:
            return lambda now: max(0.5, rng.gauss(mean, 0.05))

        runners = [clock.runner(str(index), noisy(1.0)) for index in range(15)] + [clock.runner("best", noisy(0.9))]
        race(runners, clock, seed=trial)
        fastest = min(runners, key=lambda runner: runner.median_ms)
        wins += fastest.solver_id == "best"
    assert wins >= 99


def test_equal_candidates_tie_and_different_ones_do_not() -> None:
    clock = Clock()
    same = [clock.runner("a", lambda now: 1.0), clock.runner("b", lambda now: 1.0), clock.runner("c", lambda now: 1.2)]
    race(same, clock)
    assert is_tie(same[0], same[1]) and not is_tie(same[0], same[2])


def test_far_behind_stops_after_the_probe_rounds() -> None:
    clock = Clock()
    fast, slow = clock.runner("fast", lambda now: 1.0), clock.runner("slow", lambda now: 50.0)
    race([fast, slow], clock)
    assert slow.stopped == "50.0 times the best candidate's time"
    assert len(slow.samples) == timing.MIN_ROUNDS - 1 and len(fast.samples) == timing.MAX_ROUNDS


def test_long_runs_need_few_rounds() -> None:
    clock = Clock()
    runner = clock.runner("long", lambda now: 200.0)
    race([runner], clock)
    assert len(runner.samples) == timing.MIN_ROUNDS


def test_a_time_limit_stops_the_race_but_everyone_ran() -> None:
    """B75: twenty candidates of 300 ms under a limit of 1 s end soon after it, with no statistics of nothing."""
    clock = Clock()
    runners = [clock.runner(str(index), lambda now: 300.0) for index in range(20)]
    race(runners, clock, limit_ms=1000.0)
    assert all(len(runner.samples) == 1 and runner.spread_ms == 0.0 for runner in runners)
    assert clock.ms == 20 * 300.0


def test_an_error_ends_only_its_runner() -> None:
    clock = Clock()

    def fail() -> None:
        raise KernelLaunchError("lost")

    bad, good = Runner("bad", fail), clock.runner("good", lambda now: 1.0)
    race([bad, good], clock)
    assert bad.error is not None and not bad.samples
    assert len(good.samples) == timing.MAX_ROUNDS


def test_prepare_runs_before_each_sample_and_is_not_timed() -> None:
    clock, prepared = Clock(), [0]

    def prepare() -> None:
        prepared[0] += 1
        clock.ms += 1000.0

    runner = clock.runner("a", lambda now: 1.0)
    runner.prepare = prepare
    race([runner], clock)
    assert prepared[0] == len(runner.samples) and runner.median_ms == 1.0


@pytest.mark.parametrize(("samples", "median", "spread"), [([2.0], 2.0, 0.0), ([1.0, 1.0, 9.0], 1.0, 0.0)])
def test_statistics_are_robust(samples: list[float], median: float, spread: float) -> None:
    runner = Runner("a", lambda: None, samples=samples)
    assert (runner.median_ms, runner.spread_ms) == (median, spread)
