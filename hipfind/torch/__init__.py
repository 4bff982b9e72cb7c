"""hipfind for PyTorch: convolutions and bilinear upsampling by hipfind's solvers, as functions and inside models.

``conv2d``, ``conv3d``, ``conv_transpose2d`` and ``upsample_bilinear2d`` take torch.nn.functional's arguments.
``optimize`` gives a model's modules the fast paths that are worth it, ``restore`` takes them back, ``capture`` lists a
model's problems for ``hipfind tune``.
"""

from __future__ import annotations

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("hipfind.torch needs PyTorch: pip install 'hipfind[torch]'") from error

from hipfind.torch.capturing import Captured, capture
from hipfind.torch.functional import conv2d, conv3d, conv_transpose2d, upsample_bilinear2d
from hipfind.torch.optimizer import optimize, restore
from hipfind.torch.report import Decision, Report

del _torch

__all__ = [
    "Captured",
    "Decision",
    "Report",
    "capture",
    "conv2d",
    "conv3d",
    "conv_transpose2d",
    "optimize",
    "restore",
    "upsample_bilinear2d",
]
