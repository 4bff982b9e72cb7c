"""Models for the tests: transformers' own classes in small configurations with random weights, and a U-Net."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

X = torch.ones(2, 3, 6, 6)
"""What ``small`` takes."""


def small() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1))


class UNet(nn.Module):
    """Two levels down and up again, by bilinear upsampling and skip connections."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = _twice(3, width)
        self.second = _twice(width, 2 * width)
        self.third = _twice(2 * width, 4 * width)
        self.down = nn.MaxPool2d(2)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        self.fourth = _twice(6 * width, 2 * width)
        self.fifth = _twice(3 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        second = self.second(self.down(first))
        third = self.third(self.down(second))
        fourth = self.fourth(torch.cat([self.up(third), second], 1))
        fifth = self.fifth(torch.cat([self.up(fourth), first], 1))
        return self.head(fifth)


def _twice(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding="same"), nn.BatchNorm2d(width), nn.ReLU(),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Model:
    """``make`` returns a model in training mode; ``example`` its input; ``swapped``: modules that hipfind can do."""

    name: str
    make: Callable[[], nn.Module]
    example: Callable[[], Any]
    swapped: int


def _vit() -> nn.Module:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return ViTModel(config, add_pooling_layer=False)


def _convnext() -> nn.Module:
    from transformers import ConvNextConfig, ConvNextModel

    return ConvNextModel(ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 2], num_stages=2, image_size=32))


def _qwen2_vl() -> nn.Module:
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

    config = Qwen2VLVisionConfig(depth=2, embed_dim=32, hidden_size=64, num_heads=2, mlp_ratio=2, patch_size=4)
    return Qwen2VisionTransformerPretrainedModel(config)


def _image(side: int) -> Callable[[], Any]:
    return lambda: {"pixel_values": torch.randn(2, 3, side, side)}


def _patches() -> dict[str, torch.Tensor]:
    grid = torch.tensor([[1, 4, 4], [2, 4, 8]])
    return {"hidden_states": torch.randn(int(grid.prod(1).sum()), 3 * 2 * 4 * 4), "grid_thw": grid}


MODELS = (
    Model("ViT", _vit, _image(32), 1),
    Model("ConvNeXt", _convnext, _image(32), 5),
    Model("Qwen2-VL", _qwen2_vl, _patches, 1),
    Model("U-Net", UNet, lambda: torch.randn(2, 3, 16, 16), 12),
)
