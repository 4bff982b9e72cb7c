"""Plain tensors: whether torch's dispatcher would do nothing with a call on them but hand it to the kernel.

A pass through the dispatcher into Python costs 3 to 4 us, and an operator with gradients takes two. Where no mode,
no tracer, no transform and no subclass is at work, the operators of this package call their kernels directly.
"""

from __future__ import annotations

import torch

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
