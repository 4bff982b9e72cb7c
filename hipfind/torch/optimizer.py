"""optimize and restore: which modules of a model are worth giving to hipfind, and giving them, and taking them back."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import torch

from hipfind.torch import whole
from hipfind.torch.modules import is_of_interest, is_swapped, swap, swap_back, why_not
from hipfind.torch.racing import Racer, Timing, total
from hipfind.torch.recording import AnyCall, ConvCall, Recorded, record
from hipfind.torch.report import Decision, Report
from hipfind.torch.window import decode

_DIRECTIONS = ("fwd", "bwd", "wrw")
_PATIENT = {"OPENBLAS_THREAD_TIMEOUT": "4", "OMP_WAIT_POLICY": "passive"}
"""Variables that make threads sleep while they wait, read when numpy and torch are loaded."""
_STEPS = 4
"""Times ``seconds`` for the race of whole steps."""
_IN_FUNCTIONS = "a call of a function, not a module: call hipfind.torch's in its place"


def optimize(
    model: torch.nn.Module,
    example_input: Any = None,
    *,
    min_gain: float = 1.05,
    seconds: float = 0.5,
    find_mode: str = "hybrid",
    tune: bool = False,
    whole_step: bool = True,
) -> Report:
    """Let hipfind do the work of a model's convolutions and bilinear upsamplings where that is worth it.

    ``example_input`` (a tensor, a tuple of arguments, or a mapping of named ones) is run forward once to see every
    module's tensors. Each direction of each call is then found (``find_mode``, ``tune``: see hipfind.find) and timed
    against torch's own operator, ``seconds`` at most each; directions in which torch is faster stay torch's. All three
    directions count in a model that is training, the forward one alone in another. Without an example the kinds of
    module are swapped that are known to gain: patch embeddings and bilinear upsamplings.

    ``min_gain``: a module is swapped when it becomes so many times faster. ``whole_step``: afterwards a step of the
    model (forward; backward, too, where it is training) is timed both ways, four times ``seconds`` in all, and where
    the whole is slower everything is given back: in a model that keeps its GPU waiting for Python the calls' own cost
    counts, not the kernels'. Set it to False for a model that is going to run from CUDA graphs.

    The model is changed in place: its modules stay the same objects with the same parameters and state_dict keys.
    Returns a Report, to be printed and undone.
    """
    named = {name: module for name, module in model.named_modules() if is_of_interest(module)}
    recorded = Recorded() if example_input is None else record(model, example_input)
    racer = Racer(seconds, find_mode, tune)
    refused = {name: why_not(module) for name, module in named.items()}
    racer.compile_ahead(call for name, reason in refused.items() if not reason for call in recorded.calls.get(name, {}))
    decisions = []
    for name, module in named.items():
        if refused[name]:
            decision = Decision(name, type(module).__name__, refused[name])
        elif example_input is None:
            decision = _predicted(name, module)
        else:
            decision = _measured(name, type(module).__name__, recorded.calls.get(name, {}), racer, min_gain)
        decisions.append(decision)
    decisions += [
        Decision(name, "function", _IN_FUNCTIONS, calls=tuple(calls.items()))
        for name, calls in recorded.calls.items()
        if name not in named
    ]
    for decision in decisions:
        if decision.is_swapped:
            swap(named[decision.module], decision.by_torch)
    notes = () if example_input is None else _notes(model)
    swapped = [(named[one.module], one.by_torch) for one in decisions if one.is_swapped]
    if example_input is None or not swapped or not whole_step:
        return Report(model, decisions, notes)
    try:
        step = whole.race(model, example_input, swapped, _STEPS * seconds)
    except RuntimeError as error:  # all that torch raises
        return Report(model, decisions, (*notes, f"A whole step was not timed, it does not run: {error}"))
    if step.is_slower:
        for module, _ in swapped:
            swap_back(module)
        decisions = [_given_back(one) for one in decisions]
    return Report(model, decisions, notes, step)


def _given_back(decision: Decision) -> Decision:
    if not decision.is_swapped:
        return decision
    reason = f"{decision.reason} by itself, but the whole step is slower: hipfind's calls cost more than they gain"
    return dataclasses.replace(decision, reason=reason, is_swapped=False, by_torch=())


def _notes(model: torch.nn.Module) -> tuple[str, ...]:
    """What a reader of times on a CPU must know: two libraries' threads that spin while they wait stop each other."""
    is_on_cpu = any(one.device.type == "cpu" for one in model.parameters())
    missing = [f"{name}={value}" for name, value in _PATIENT.items() if name not in os.environ]
    if not is_on_cpu or torch.get_num_threads() == 1 or not missing:
        return ()
    return (
        "On a CPU torch's threads and those of numpy's OpenBLAS spin while they wait and may hold up each other, many "
        f"times over: set {' and '.join(missing)} before Python starts.",
    )


def restore(model: torch.nn.Module) -> list[str]:
    """Give every module of a model back to torch; returns their names."""
    swapped = [(name, module) for name, module in model.named_modules() if is_swapped(module)]
    for _, module in swapped:
        swap_back(module)
    return [name for name, _ in swapped]


def _predicted(name: str, module: torch.nn.Module) -> Decision:
    kind = type(module).__name__
    if isinstance(module, torch.nn.Upsample):
        return Decision(name, kind, "predicted: rows are resized once, and gradients are a gather", is_swapped=True)
    is_patchify = (
        not isinstance(module, torch.nn.ConvTranspose2d)
        and tuple(module.kernel_size) == tuple(module.stride)
        and min(module.kernel_size) > 1
        and (module.padding == "valid" or set(module.padding) == {0})
        and set(module.dilation) == {1}
        and module.groups == 1
    )
    if is_patchify:
        return Decision(name, kind, "predicted: a patch embedding is one matrix product", is_swapped=True)
    return Decision(name, kind, "no gain is known for its kind: give an example input to have it measured")


def _measured(name: str, kind: str, calls: dict[AnyCall, int], racer: Racer, min_gain: float) -> Decision:
    if not calls:
        return Decision(name, kind, "not called with the example input")
    timed = [(count, racer.time(call)) for call, count in calls.items()]
    flat = [(count, one) for count, each in timed for one in each]
    left = Decision(name, kind, "", calls=tuple(calls.items()), timings=tuple(one for _, one in flat))
    by_torch = _left_to_torch(calls, flat, min_gain)
    before, after = total(flat, lambda one: one.direction not in by_torch)
    if before < min_gain * after or all(one.direction in by_torch for _, one in flat):
        problems = [one.problem for _, one in flat if one.problem]
        best = max(one.gain for _, one in flat)
        reason = problems[0] if problems else f"torch's is as fast or faster (hipfind at best {best:.2f} times as fast)"
        return dataclasses.replace(left, reason=reason)
    reason = f"{before / after:.2f} times as fast"
    return dataclasses.replace(left, reason=reason, is_swapped=True, by_torch=by_torch)


def _left_to_torch(calls: dict[AnyCall, int], flat: Sequence[tuple[int, Timing]], min_gain: float) -> tuple[str, ...]:
    """The directions in which hipfind is not worth it."""
    chosen = []
    for direction in _DIRECTIONS:
        own = [(count, one) for count, one in flat if one.direction == direction]
        before, after = total(own, lambda one: one.hipfind_ms is not None)
        if own and (before < min_gain * after or any(one.hipfind_ms is None for _, one in own)):
            chosen.append(direction)
    # torch's operators know no padding that differs before and after an axis: all or nothing then.
    windows = [decode(call.window) for call in calls if isinstance(call, ConvCall)]
    if any(window.pad != window.pad_end for window in windows):
        before, after = total(flat, lambda one: True)
        return () if before >= min_gain * after else tuple({one.direction for _, one in flat})
    return tuple(chosen)
