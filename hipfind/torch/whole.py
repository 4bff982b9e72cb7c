"""A whole step of a model by torch and with hipfind's modules, interleaved: what is left of the gains in the end.

A step is timed by the clock, with what Python costs: where a model keeps its GPU waiting for the next call, faster
kernels gain nothing, and calls that cost the host more lose.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from hipfind.torch.modules import swap, swap_back
from hipfind.torch.racing import interleaved
from hipfind.torch.recording import run, unchanged

_NOISE = 1.02
"""Steps that take so many times another's time are as fast, as far as the clock can tell."""

Swapped = Sequence[tuple[torch.nn.Module, tuple[str, ...]]]
"""Modules that hipfind does, with the directions that are left to torch."""


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """Milliseconds of a step: forward, and in a model that is training backward."""

    torch_ms: float
    hipfind_ms: float

    @property
    def is_slower(self) -> bool:
        """Whether hipfind's step is slower than torch's, by more than noise."""
        return self.hipfind_ms > _NOISE * self.torch_ms

    def __str__(self) -> str:
        return f"{self.hipfind_ms:.4g} ms with hipfind, {self.torch_ms:.4g} ms by torch"


def race(model: torch.nn.Module, example_input: Any, swapped: Swapped, seconds: float) -> StepTimes:
    """Time the model's step both ways, ``seconds`` in all; the modules are hipfind's before and afterwards.

    Gradients are made and dropped: ``.grad`` stays as it is, and so do buffers and torch's random numbers. Raises
    RuntimeError where torch cannot run the step.
    """
    devices = {one.device for one in model.parameters() if one.device.type == "cuda"}
    ways: dict[str, Swapped] = {"hipfind": (), "torch": swapped}  # and which modules are torch's meanwhile

    def sample(name: str) -> float:
        with _torchs(ways[name]):
            return _timed(model, example_input, devices)

    with unchanged(model):
        for name in (*ways, *ways):  # warm-ups
            sample(name)
        times = interleaved({name: functools.partial(sample, name) for name in ways}, seconds)
    return StepTimes(times["torch"], times["hipfind"])


@contextlib.contextmanager
def _torchs(swapped: Swapped) -> Iterator[None]:
    """These modules as torch's, for a while."""
    for module, _ in swapped:
        swap_back(module)
    try:
        yield
    finally:
        for module, by_torch in swapped:
            swap(module, by_torch)


def _timed(model: torch.nn.Module, example_input: Any, devices: set[torch.device]) -> float:
    for device in devices:
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    _step(model, example_input)
    for device in devices:
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) * 1e3


def _step(model: torch.nn.Module, example_input: Any) -> None:
    with torch.set_grad_enabled(model.training):
        made = run(model, example_input)
    leaves = _pytree.tree_leaves(dict(made) if isinstance(made, Mapping) else made)
    outputs = [one for one in leaves if isinstance(one, torch.Tensor) and one.requires_grad]
    given = _pytree.tree_leaves(dict(example_input) if isinstance(example_input, Mapping) else example_input)
    wanted = [one for one in (*model.parameters(), *given) if isinstance(one, torch.Tensor) and one.requires_grad]
    if outputs and wanted:
        torch.autograd.grad(outputs, wanted, [torch.ones_like(one) for one in outputs], allow_unused=True)
