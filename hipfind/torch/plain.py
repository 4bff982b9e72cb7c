"""Plain tensors: whether torch's dispatcher would do nothing with a call on them but hand it to the kernel.

A pass through the dispatcher into Python costs 3 to 4 us, and an operator with gradients takes two. Where no mode,
no tracer, no transform and no subclass is at work, the operators of this package call their kernels directly.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

_keys_of = torch._C._dispatch_keys
_active_keys = torch._C._dispatch_tls_local_include_set
_function_modes = torch._C._len_torch_function_stack


def _raw_keys(device: torch.device | str) -> int:
    return int(_keys_of(torch.empty(0, device=device)).raw_repr())


_ACTIVE = int(_active_keys().raw_repr())
_plain = {_raw_keys("cpu")}


def learn(device: torch.device) -> None:
    """Take note of what plain tensors of this device look like; called by kernels, which real tensors alone reach."""
    if device.type != "cpu" and _active_keys().raw_repr() == _ACTIVE:
        _plain.add(_raw_keys(device))


def are_plain(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True where a kernel may be called directly. To be asked in eager mode only."""
    return (
        _keys_of(first).raw_repr() in _plain
        and _keys_of(second).raw_repr() in _plain
        and _active_keys().raw_repr() == _ACTIVE
        and not _function_modes()
    )


def record(function: Any, *arguments: Any) -> Any:
    """Apply an autograd.Function of a single level, also where functorch's transforms have come to this level."""
    if torch._C._are_functorch_transforms_active():
        with enable_single_level_autograd_function():
            return function.apply(*arguments)
    return function.apply(*arguments)


def is_forward_mode() -> bool:
    """Whether forward derivatives are being computed."""
    return bool(forward_ad._current_level >= 0)
