"""Calls: a problem's plan, ready for torch tensors of one look (dtype, device, lengths, strides), kept by that look.

What a call costs beyond the plan's own launches: reading the tensors' look, one dictionary look-up, the output's
allocation by torch, the current stream. Nothing is validated again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from hipfind import settings
from hipfind.device.arrays import device_of
from hipfind.errors import ArrayError
from hipfind.find.immediate import immediate
from hipfind.find.plan import Plan, make_plan
from hipfind.find.session import Session, session_for
from hipfind.problem.base import Problem
from hipfind.problem.tensor import packed_strides

_MOST_KEPT = 4096
FORMATS = {
    "NCHW": torch.contiguous_format, "NHWC": torch.channels_last,
    "NCDHW": torch.contiguous_format, "NDHWC": torch.channels_last_3d,
}  # fmt: skip
MakeProblem = Callable[[bool], Problem]
"""The problem of a call: of its inputs as they lie (False), or as they would lie packed (True)."""


class Look(NamedTuple):
    """What a call reads of a tensor, without its data: dtype, lengths, strides in elements, device."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Look:
        return cls(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.device)

    def stride(self) -> tuple[int, ...]:
        """As a tensor's."""
        return self.strides

    @property
    def is_cuda(self) -> bool:
        return bool(self.device.type == "cuda")

    def new(self) -> torch.Tensor:
        """A tensor of this look with random numbers, which are not taken from torch's own."""
        numbers = torch.Generator(self.device).manual_seed(0)
        made = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)
        return made.normal_(generator=numbers)


class Call:
    """Runs one problem on tensors of one look, on torch's current stream, and returns a new tensor."""

    __slots__ = (
        "_device", "_format", "_generation", "_index", "_lengths", "_session", "_settings", "_strides", "_workspace",
        "plan",
    )  # fmt: skip

    def __init__(self, plan: Plan, session: Session, device: torch.device, format: Any, strides: Sequence[int]) -> None:
        self.plan = plan
        self._session = session
        self._generation = session.generation
        self._settings = settings.current()
        self._device = device
        self._index = device.index if device.type != "cpu" else -1
        self._format = format
        """The memory format that inputs are copied to where they do not lie so; None: as they lie."""
        self._lengths = plan.problem.tensor(plan.problem.output).lengths
        self._strides = tuple(strides)
        self._workspace = plan.workspace_bytes

    @property
    def is_current(self) -> bool:
        """False once a Find may have changed the answer, and where other settings hold."""
        return self._session.generation == self._generation and settings.current() is self._settings

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        if self._format is not None:
            inputs = tuple(tensor.contiguous(memory_format=self._format) for tensor in inputs)
        out = inputs[0].new_empty_strided(self._lengths, self._strides)
        addresses = [tensor.data_ptr() for tensor in inputs]
        if self._index < 0:
            self.plan.run(addresses, out.data_ptr())
        else:
            stream = torch._C._cuda_getCurrentRawStream(self._index)
            # Of torch's allocator, which knows the streams and gives back what it keeps before it fails.
            room = torch.empty(self._workspace, dtype=torch.uint8, device=self._device) if self._workspace else None
            self.plan.run(addresses, out.data_ptr(), room.data_ptr() if room is not None else 0, stream)
        return out


class CallCache:
    """Calls by their tensors' look. Safe from several threads: two may make the same call, one is kept."""

    def __init__(self) -> None:
        self._calls: dict[tuple[Any, ...], Call] = {}

    def get(self, key: tuple[Any, ...]) -> Call | None:
        """The call of this key, None where there is none or its answer is old."""
        call = self._calls.get(key)
        return call if call is not None and call.is_current else None

    def put(self, key: tuple[Any, ...], call: Call) -> None:
        if len(self._calls) >= _MOST_KEPT:
            self._calls.clear()
        self._calls[key] = call


def make_call(make_problem: MakeProblem, inputs: Sequence[torch.Tensor], layout: str) -> Call:
    """The call for inputs of this look. ``layout``: of the output, and of the inputs that are copied.

    Raises ArrayError, ProblemError, NoSolutionError.
    """
    device = inputs[0].device
    if any(tensor.device != device for tensor in inputs):
        where = ", ".join(str(tensor.device) for tensor in inputs)
        raise ArrayError("tensors must be on one device", got=where, remedy="move them to one device first")
    session = session_for(device_of(inputs[0]))
    problem, is_packed = choose(make_problem, layout, session)
    strides = packed_strides(problem.tensor(problem.output).lengths, layout)
    return Call(make_plan(problem, session), session, device, FORMATS[layout] if is_packed else None, strides)


def session_on(device: torch.device) -> Session:
    """The session of torch's device."""
    return session_for(device_of(torch.empty(0, device=device)))


def choose(make_problem: MakeProblem, layout: str, session: Session) -> tuple[Problem, bool]:
    """The problem to solve, and whether inputs are copied for it into ``layout``.

    Inputs are used as they lie, unless no solver takes them so, or copying them first is expected to be faster.
    """
    problem, target = make_problem(False), session.device.target
    inputs = [problem.tensor(role) for role in problem.inputs]
    copied = [tensor.nbytes for tensor in inputs if not tensor.is_packed_as(layout)]
    if copied:
        packed = make_problem(True)
        copies_ms = sum(2 * nbytes / (target.bandwidth_gbs * 1e6) + target.launch_us * 1e-3 for nbytes in copied)
        if _expected_ms(packed, session) + copies_ms < _expected_ms(problem, session):
            return packed, True
    return problem, False


def _expected_ms(problem: Problem, session: Session) -> float:
    choices = immediate(problem, session)
    return choices[0].time_ms if choices else math.inf
