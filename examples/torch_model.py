"""A PyTorch model gets the fast paths that are worth it, keeps its parameters, and can be given back to torch."""

import torch
from torch import nn

import hipfind.torch


class Tiny(nn.Module):
    """Patches in, a map of scores out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 64, 8, 8)
        self.mix = nn.Conv2d(64, 8, 3, padding=1)
        self.up = nn.Upsample(scale_factor=4, mode="bilinear")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.mix(self.embed(x).relu()))


torch.manual_seed(0)
model, x = Tiny(), torch.randn(4, 3, 64, 64)
expected, keys = model(x).detach(), list(model.state_dict())

report = hipfind.torch.optimize(model, x, seconds=0.05)
print(report)

y = model(x)
y.square().mean().backward()
assert list(model.state_dict()) == keys
assert (y - expected).norm() < 1e-5 * expected.norm()

captured = hipfind.torch.capture(model, x)
print(f"\nfor `hipfind tune`, after captured.save(...):\n{captured.to_yaml()}")

report.undo()
assert type(model.embed) is nn.Conv2d
