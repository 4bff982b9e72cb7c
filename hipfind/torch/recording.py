"""Runs a model once and notes every convolution and upsampling: where it happens and what its tensors look like."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from hipfind.problem.base import Problem
from hipfind.problem.tensor import packed_strides
from hipfind.torch import conv_operators, upsample_operators
from hipfind.torch.calls import Look
from hipfind.torch.functional import output_size, prepare
from hipfind.torch.window import decode


@dataclasses.dataclass(frozen=True)
class ConvCall:
    """A convolution as it happened; ``directions``: those that a step of this model runs."""

    x: Look
    w: Look
    window: str
    directions: tuple[str, ...]
    bias: Look | None = None

    @property
    def y(self) -> Look:
        """The result, and its gradient."""
        window = decode(self.window)
        lengths = tuple(window.output_lengths(self.x.shape, self.w.shape))
        return packed_look(self.x, lengths, window.layout)

    @property
    def layout(self) -> str:
        return decode(self.window).layout

    def operands(self, direction: str) -> tuple[Look, ...]:
        """The inputs of a direction."""
        return {"fwd": (self.x, self.w), "bwd": (self.y, self.w), "wrw": (self.y, self.x)}[direction]

    def result_lengths(self, direction: str) -> tuple[int, ...]:
        return {"fwd": self.y, "bwd": self.x, "wrw": self.w}[direction].shape

    def maker(self, direction: str) -> Callable[[bool], Problem]:
        """A function that makes the direction's problem: of tensors as they lie, or packed."""
        first, second = self.operands(direction)
        lengths, window = None if direction == "fwd" else self.result_lengths(direction), decode(self.window)
        return lambda is_packed: conv_operators.conv_problem(direction, first, second, lengths, window, is_packed)

    def describe(self) -> str:
        """For people: the lengths of x and w, and what differs from the usual."""
        window = decode(self.window)
        parts = [_by(self.x.shape), _by(self.w.shape)]
        parts += [f"stride {_by(window.stride)}"] if set(window.stride) != {1} else []
        parts += [f"groups {window.groups}"] if window.groups != 1 else []
        return " ".join([*parts, self.layout, _name(self.x.dtype)])


@dataclasses.dataclass(frozen=True)
class UpsampleCall:
    """A bilinear upsampling as it happened; ``directions``: those that a step of this model runs."""

    x: Look
    size: tuple[int, ...]
    align_corners: bool
    scales: tuple[float | None, float | None]
    is_channel_last: bool
    directions: tuple[str, ...]

    @property
    def layout(self) -> str:
        return upsample_operators.upsample_layout(self.is_channel_last)

    @property
    def y(self) -> Look:
        """The result, and its gradient."""
        return packed_look(self.x, (*self.x.shape[:2], *self.size), self.layout)

    def maker(self, direction: str) -> Callable[[bool], Problem]:
        """A function that makes the direction's problem: of a tensor as it lies, or packed."""
        given, made = (self.x, self.y) if direction == "fwd" else (self.y, self.x)
        rest = (made.shape[2:], self.align_corners, self.scales, self.is_channel_last)
        return lambda is_packed: upsample_operators.upsample_problem(direction, given, *rest, is_packed)

    def describe(self) -> str:
        """For people: the lengths of x and the size that it is brought to."""
        return f"{_by(self.x.shape)} to {_by(self.size)} {self.layout} {_name(self.x.dtype)}"


AnyCall = ConvCall | UpsampleCall


def packed_look(like: Look, lengths: tuple[int, ...], layout: str) -> Look:
    """A packed tensor's look, of another's dtype and device."""
    return Look(like.dtype, lengths, packed_strides(lengths, layout), like.device)


def _by(numbers: Any) -> str:
    return "x".join(map(str, numbers))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclasses.dataclass
class Recorded:
    """What happened in a run: calls by the name of the module that made them, with how often."""

    calls: dict[str, dict[AnyCall, int]] = dataclasses.field(default_factory=dict)

    def add(self, module: str, call: AnyCall) -> None:
        counts = self.calls.setdefault(module, {})
        counts[call] = counts.get(call, 0) + 1


class _Recorder(TorchFunctionMode):  # type: ignore[misc]  # torch is not typed here
    """Sees the calls of torch's functions while it is on."""

    def __init__(self, is_training: bool) -> None:
        super().__init__()
        self.recorded = Recorded()
        self.modules: list[tuple[str, torch.nn.Module]] = []
        self._is_training = is_training

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = self._seen(func, args, kwargs)
        if call is not None:
            self.recorded.add(self.modules[-1][0] if self.modules else "", call)
        return func(*args, **kwargs)

    def _seen(self, func: Any, args: Any, kwargs: Any) -> AnyCall | None:
        if func is conv_operators.conv_fwd:
            x, w, bias, window = args
            return self._conv(x, w, bias, decode(window)._replace(by_torch=()).encode())
        if func in (upsample_operators.upsample, upsample_operators.upsample_by_torch):
            x, size, align_corners, *scales = args
            return self._upsample(x, size, align_corners, (scales[0], scales[1]))
        if func in _CONVOLUTIONS:
            arguments = _CONVOLUTIONS[func](*args, **kwargs)
            if not _is_usual(*arguments[1:3]):
                return None
            with torch._C.DisableTorchFunctionSubclass():
                x, w, bias, _, window = prepare(*arguments)
            return self._conv(x, w, bias, window)
        if func is F.interpolate:
            return self._interpolate(*args, **kwargs)
        return None

    def _conv(self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, window: str) -> ConvCall:
        needs = (True, x.requires_grad and self._is_training, w.requires_grad and self._is_training)
        directions = tuple(one for one, needed in zip(("fwd", "bwd", "wrw"), needs, strict=True) if needed)
        return ConvCall(Look.of(x), Look.of(w), window, directions, None if bias is None else Look.of(bias))

    def _interpolate(
        self,
        input: torch.Tensor,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
        antialias: bool = False,
    ) -> UpsampleCall | None:
        if mode != "bilinear" or antialias or not _is_usual(input, input):
            return None
        extents, scales = output_size(input, size, scale_factor, recompute_scale_factor)
        return self._upsample(input, extents, bool(align_corners), scales)

    def _upsample(self, x: torch.Tensor, size: Any, align_corners: bool, scales: Any) -> UpsampleCall:
        is_last = upsample_operators.is_made_channel_last(x)
        directions = ("fwd", "bwd") if x.requires_grad and self._is_training else ("fwd",)
        return UpsampleCall(Look.of(x), tuple(map(int, size)), align_corners, tuple(scales), is_last, directions)


def _is_usual(x: Any, w: Any) -> bool:
    """Whether these are tensors that an operator of hipfind could take."""
    return all(
        isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.is_floating_point()
        and tensor.element_size() > 1
        for tensor in (x, w)
    )  # fmt: skip


def _conv_arguments(ndim: int) -> Callable[..., tuple[Any, ...]]:
    def arguments(
        input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> tuple[Any, ...]:
        return ndim, input, weight, bias, stride, padding, dilation, groups, 0, False

    return arguments


def _transpose_arguments(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> tuple[Any, ...]:  # fmt: skip
    return 2, input, weight, bias, stride, padding, dilation, groups, output_padding, True


_CONVOLUTIONS: dict[Any, Callable[..., tuple[Any, ...]]] = {
    F.conv2d: _conv_arguments(2),
    F.conv3d: _conv_arguments(3),
    F.conv_transpose2d: _transpose_arguments,
}


def record(model: torch.nn.Module, example_input: Any) -> Recorded:
    """Run a model forward once and note its calls. Its buffers and torch's random numbers are as before afterwards.

    ``example_input``: a tensor, a tuple of arguments, or a mapping of named ones. With ``model.training`` gradients are
    on, and what asks for them is noted; nothing is differentiated.
    """
    recorder = _Recorder(model.training)
    with unchanged(model), _names(model, recorder.modules), torch.set_grad_enabled(model.training), recorder:
        run(model, example_input)
    return recorder.recorded


def run(model: torch.nn.Module, example_input: Any) -> Any:
    """Call a model on an example."""
    if isinstance(example_input, Mapping):
        return model(**example_input)
    if isinstance(example_input, tuple | list):
        return model(*example_input)
    return model(example_input)


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


@contextlib.contextmanager
def _names(model: torch.nn.Module, stack: list[tuple[str, torch.nn.Module]]) -> Iterator[None]:
    """Keep the names of the modules that are running on ``stack``, the innermost last."""
    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda one, _, name=name: stack.append((name, one))))
        handles.append(module.register_forward_hook(lambda *_: stack.pop() and None, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
