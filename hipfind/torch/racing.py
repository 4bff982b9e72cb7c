"""Times one recorded call, direction by direction: hipfind's best solver against torch's own operator, interleaved."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from hipfind.errors import HipfindError
from hipfind.find.engine import find
from hipfind.find.immediate import immediate
from hipfind.find.modes import FindMode
from hipfind.find.session import Session
from hipfind.find.tuning import compile_defaults
from hipfind.problem.base import Problem
from hipfind.torch import conv_operators, upsample_operators
from hipfind.torch.calls import choose, session_on
from hipfind.torch.recording import AnyCall, ConvCall, UpsampleCall
from hipfind.torch.window import decode

_MIN_ROUNDS, _MAX_ROUNDS = 3, 25
_FLUSH_FACTOR = 4
Run = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Timing:
    """One direction of a call. ``hipfind_ms`` is None where hipfind cannot, as ``problem`` says."""

    direction: str
    torch_ms: float
    hipfind_ms: float | None
    solver_id: str
    problem: str = ""

    @property
    def gain(self) -> float:
        """How many times faster hipfind is; 0 where it cannot."""
        return self.torch_ms / self.hipfind_ms if self.hipfind_ms else 0.0


class Racer:
    """Measures calls; ``seconds`` bounds each direction's race, not the Find before it."""

    def __init__(self, seconds: float, find_mode: str, tune: bool) -> None:
        self._seconds = seconds
        self._find_mode = find_mode
        self._tune = tune
        self._known: dict[AnyCall, tuple[Timing, ...]] = {}
        self._flush: torch.Tensor | None = None

    def compile_ahead(self, calls: Iterable[AnyCall]) -> None:
        """Compile what the Finds of these calls are going to measure."""
        mode = FindMode.parse(self._find_mode)
        if mode.is_fast or mode.dynamic_only:
            return
        by_session: dict[Session, list[Problem]] = {}
        for call in dict.fromkeys(calls):
            session = session_on(call.x.device)
            makers = [(call.maker(direction), call.layout) for direction in call.directions]
            with contextlib.suppress(HipfindError):  # which the call's own Find will say
                by_session.setdefault(session, []).extend(choose(*one, session)[0] for one in makers)
        for session, problems in by_session.items():
            compile_defaults(problems, session)

    def time(self, call: AnyCall) -> tuple[Timing, ...]:
        """A timing of each direction that the call runs. Equal calls are measured once."""
        known = self._known.get(call)
        if known is None:
            known = self._known[call] = tuple(self._direction(call, direction) for direction in call.directions)
        return known

    def _direction(self, call: AnyCall, direction: str) -> Timing:
        session = session_on(call.x.device)
        runs, problem, solver = {"torch": torch_run(call, direction)}, "", ""
        try:
            solver = self._find(call, direction, session)
            ours = hipfind_run(call, direction)
            ours()
            runs["hipfind"] = ours
        except HipfindError as error:
            problem = str(error)
        times = self.race(runs, call.x.device, session.device.target.l2_bytes)
        return Timing(direction, times["torch"], times.get("hipfind"), solver, problem)

    def _find(self, call: AnyCall, direction: str, session: Session) -> str:
        """Measure what the call's plan is going to be chosen from; the id of the solver that it will be.

        Once one form of the problem (inputs as they lie, or packed first) is measured the other may look better.
        """
        measured: list[Problem] = []
        while True:
            problem, _ = choose(call.maker(direction), call.layout, session)
            if problem in measured:
                break
            find(problem, session, mode=self._find_mode, tune=self._tune)
            measured.append(problem)
        choices = immediate(problem, session)
        return choices[0].solver_id if choices else ""

    def race(self, runs: dict[str, Run], device: torch.device, cache_bytes: int) -> dict[str, float]:
        """Time of each in ms, with empty caches; see ``interleaved``."""
        for run in runs.values():
            run()
        samplers = {name: functools.partial(self._once, run, device, cache_bytes) for name, run in runs.items()}
        return interleaved(samplers, self._seconds)

    def _once(self, run: Run, device: torch.device, cache_bytes: int) -> float:
        if device.type == "cpu":
            start = time.perf_counter()
            run()
            return (time.perf_counter() - start) * 1e3
        with torch.cuda.device(device):
            if self._flush is None or self._flush.device != device:
                self._flush = torch.zeros(_FLUSH_FACTOR * cache_bytes // 4, device=device)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            # Read, not written, so that nothing is left to be written back; long enough to hide what queueing costs.
            self._flush.sum()
            begin.record()
            run()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end))


def interleaved(samplers: Mapping[str, Callable[[], float]], seconds: float) -> dict[str, float]:
    """Time of each in ms, over rounds in which each is sampled once, begun by another one each time.

    The lower quartile: whatever else a machine does makes runs longer, never shorter.
    """
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    names = list(samplers)
    end = time.monotonic() + seconds
    for round_index in range(_MAX_ROUNDS):
        if round_index >= _MIN_ROUNDS and time.monotonic() > end:
            break
        first = round_index % len(names)
        for name in names[first:] + names[:first]:
            samples[name].append(samplers[name]())
    return {name: statistics.quantiles(one, n=4, method="inclusive")[0] for name, one in samples.items()}


def hipfind_run(call: AnyCall, direction: str) -> Run:
    """The direction by hipfind on random tensors of the call's look."""
    if isinstance(call, UpsampleCall):
        rest = (call.align_corners, *call.scales)
        if direction == "fwd":
            x = call.x.new()
            return lambda: upsample_operators.run_forward(x, call.size, *rest)
        dy, size = call.y.new(), call.x.shape[2:]
        return lambda: upsample_operators.run_backward(dy, size, *rest, call.is_channel_last)
    return _conv_run(call, direction, call.window)


def torch_run(call: AnyCall, direction: str) -> Run:
    """The direction by torch's own operator on random tensors of the call's look."""
    if isinstance(call, UpsampleCall):
        rest = (call.align_corners, *call.scales)
        if direction == "fwd":
            x = call.x.new()
            return lambda: upsample_operators.torch_forward(x, list(call.size), *rest)
        dy, size = call.y.new(), call.x.shape[2:]
        return lambda: upsample_operators.run_backward(dy, size, *rest, call.is_channel_last, by_torch=True)
    window = decode(call.window)
    if window.pad != window.pad_end:
        return _same_padding_run(call, direction)
    return _conv_run(call, direction, window._replace(by_torch=(direction,)).encode())


def _conv_run(call: ConvCall, direction: str, window: str) -> Run:
    first, second = (look.new() for look in call.operands(direction))
    lengths = call.result_lengths(direction)
    bias = call.bias.new() if call.bias is not None and direction == "fwd" else None
    return lambda: conv_operators.run_conv(direction, first, second, bias, lengths, window)


def _same_padding_run(call: ConvCall, direction: str) -> Run:
    """As torch's modules run padding "same" of an odd number: the image is padded first."""
    window = decode(call.window)
    x, w, dy = call.x.new().requires_grad_(), call.w.new().requires_grad_(), call.y.new()
    function = F.conv2d if window.ndim == 2 else F.conv3d
    bias = call.bias.new() if call.bias is not None else None
    rest = (bias, window.stride, "same", window.dilation, window.groups)
    if direction == "fwd":
        x, w = x.detach(), w.detach()
        return lambda: function(x, w, *rest)
    with torch.enable_grad():
        y = function(x, w, *rest)
    return lambda: torch.autograd.grad(y, x if direction == "bwd" else w, dy, retain_graph=True)


def total(timings: Sequence[tuple[int, Timing]], ours: Callable[[Timing], bool]) -> tuple[float, float]:
    """Time of all by torch, and by hipfind where ``ours`` says so; each counted as often as it runs."""
    by_torch = sum(count * one.torch_ms for count, one in timings)
    chosen = sum(count * ((one.hipfind_ms or math.inf) if ours(one) else one.torch_ms) for count, one in timings)
    return by_torch, chosen
