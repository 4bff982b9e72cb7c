"""torch's modules whose work hipfind does: the same object, parameters and keys; only its class changes, and back."""

from __future__ import annotations

from typing import Any

import torch

from hipfind.torch.functional import convolution, upsampling


class HipfindConv2d(torch.nn.Conv2d):  # type: ignore[misc]  # torch is not typed here
    """Conv2d by hipfind; ``by_torch`` names the directions left to torch."""

    by_torch: tuple[str, ...] = ()

    def _conv_forward(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        rest = (self.stride, self.padding, self.dilation, self.groups)
        return convolution(2, input, weight, bias, *rest, by_torch=self.by_torch)


class HipfindConv3d(torch.nn.Conv3d):  # type: ignore[misc]
    """Conv3d by hipfind."""

    by_torch: tuple[str, ...] = ()

    def _conv_forward(self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        rest = (self.stride, self.padding, self.dilation, self.groups)
        return convolution(3, input, weight, bias, *rest, by_torch=self.by_torch)


class HipfindConvTranspose2d(torch.nn.ConvTranspose2d):  # type: ignore[misc]
    """ConvTranspose2d by hipfind."""

    by_torch: tuple[str, ...] = ()

    def forward(self, input: torch.Tensor, output_size: list[int] | None = None) -> torch.Tensor:
        """As torch's."""
        extra = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, 2, self.dilation
        )  # fmt: skip
        rest = (self.stride, self.padding, self.dilation, self.groups, extra, True)
        return convolution(2, input, self.weight, self.bias, *rest, by_torch=self.by_torch)


class HipfindUpsample(torch.nn.Upsample):  # type: ignore[misc]
    """Bilinear Upsample by hipfind; ``by_torch`` names the directions left to torch."""

    by_torch: tuple[str, ...] = ()

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """As torch's."""
        rest = (self.size, self.scale_factor, self.align_corners, self.recompute_scale_factor)
        return upsampling(input, *rest, by_torch=self.by_torch)


class HipfindUpsamplingBilinear2d(torch.nn.UpsamplingBilinear2d):  # type: ignore[misc]
    """UpsamplingBilinear2d by hipfind."""

    by_torch: tuple[str, ...] = ()

    forward = HipfindUpsample.forward


SWAPS: dict[type, type] = {
    torch.nn.Conv2d: HipfindConv2d,
    torch.nn.Conv3d: HipfindConv3d,
    torch.nn.ConvTranspose2d: HipfindConvTranspose2d,
    torch.nn.Upsample: HipfindUpsample,
    torch.nn.UpsamplingBilinear2d: HipfindUpsamplingBilinear2d,
}
"""hipfind's class of each of torch's."""
_BACK = {ours: theirs for theirs, ours in SWAPS.items()}
_UPSAMPLERS = (torch.nn.Upsample, torch.nn.UpsamplingBilinear2d)


def is_swapped(module: torch.nn.Module) -> bool:
    """Whether hipfind does this module's work."""
    return type(module) in _BACK


def swap(module: torch.nn.Module, by_torch: tuple[str, ...]) -> None:
    """Give one of torch's modules to hipfind, but for the directions in ``by_torch``."""
    module.__class__ = SWAPS[type(module)]
    if by_torch:
        module.by_torch = by_torch


def swap_back(module: torch.nn.Module) -> None:
    """Give a module back to torch."""
    module.__dict__.pop("by_torch", None)
    module.__class__ = _BACK[type(module)]


def is_of_interest(module: torch.nn.Module) -> bool:
    """Whether this is a convolution or an upsampling, of whatever kind."""
    return isinstance(module, (torch.nn.modules.conv._ConvNd, torch.nn.Upsample))


def why_not(module: torch.nn.Module) -> str:
    """Why hipfind cannot do a module's work, whatever its input; "" where it can."""
    kind = type(module)
    name = kind.__module__ + "." + kind.__name__
    if is_swapped(module):
        return "hipfind does it already"
    if ".quantized" in name or ".qat" in name:
        return "quantized"
    if kind not in SWAPS:
        base = next((one for one in kind.__mro__ if one.__module__.startswith("torch.nn.modules.")), kind)
        if base is kind:
            return f"{kind.__name__} is not supported"
        return f"{kind.__name__}, a subclass of {base.__name__}, may do something else"
    if kind in _UPSAMPLERS:
        return "" if module.mode == "bilinear" else f"mode {module.mode}, not bilinear"
    if "forward" in module.__dict__:
        return "its forward was replaced"
    if kind is not torch.nn.ConvTranspose2d and module.padding_mode != "zeros":
        return f"padding_mode {module.padding_mode}"
    return _why_not_weight(module.weight)


def _why_not_weight(weight: Any) -> str:
    if type(weight) not in (torch.nn.Parameter, torch.Tensor):
        return f"weights of type {type(weight).__name__}"
    if weight.layout is not torch.strided:
        return f"sparse weights ({weight.layout})"
    if weight.is_complex():
        return f"complex numbers ({weight.dtype})"
    if not weight.is_floating_point() or weight.element_size() < 2:
        return f"weights of {weight.dtype}"
    if weight.is_quantized:
        return "quantized"
    return ""
