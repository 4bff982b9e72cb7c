"""What a call of hipfind.torch costs on the host, beside torch's own and the plan under it, on a tiny convolution.

    python -m benchmarks.torch_overhead [--device cpu|cuda] [--out FILE]

The fastest of rounds of calls; a GPU is not waited for. "forward and backward" makes both gradients.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

import hipfind
import hipfind.torch as hft
from benchmarks import report
from hipfind.device.devices import get_device
from hipfind.torch import conv_operators
from hipfind.torch.window import make_window

CALLS, ROUNDS = 50, 100


def per_call_us(call: Callable[[], Any], device: torch.device) -> float:
    """Host time of one call in the fastest round: whatever else the machine does only adds to it."""
    means = []
    call()
    for _ in range(ROUNDS):
        if device.type != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        means.append((time.perf_counter() - start) / CALLS * 1e6)
    return min(means)


def calls(device: torch.device) -> dict[str, Callable[[], Any]]:
    """What is timed, by name."""
    x = torch.randn(1, 8, 4, 4, device=device)
    w = torch.randn(8, 8, 4, 4, device=device)
    x_asks, w_asks = x.clone().requires_grad_(), w.clone().requires_grad_()
    window = make_window(2, (4, 4), 4, 0, 1, 0, 1, False, False, ())
    plan = conv_operators.call_of("fwd", x, w, None, window).plan
    y = torch.empty(1, 8, 1, 1, device=device)
    addresses = [x.data_ptr(), w.data_ptr()]

    def by_address() -> torch.Tensor:
        made = torch.empty_like(y)
        plan.run(addresses, made.data_ptr())
        return made

    def both(function: Callable[..., torch.Tensor]) -> None:
        made = function(x_asks, w_asks, stride=4)
        torch.autograd.grad(made, (x_asks, w_asks), y)

    return {
        "plan.run on addresses, and a new output": by_address,
        "plan(x, w)": lambda: plan(x, w),
        "torch, no gradient": lambda: F.conv2d(x, w, stride=4),
        "hipfind.torch, no gradient": lambda: hft.conv2d(x, w, stride=4),
        "torch, forward": lambda: F.conv2d(x_asks, w_asks, stride=4),
        "hipfind.torch, forward": lambda: hft.conv2d(x_asks, w_asks, stride=4),
        "torch, forward and backward": lambda: both(F.conv2d),
        "hipfind.torch, forward and backward": lambda: both(hft.conv2d),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    rows = [{"call": name, "us": per_call_us(call, device)} for name, call in calls(device).items()]
    kind = "host" if device.type == "cpu" else "hip" if torch.version.hip else "cuda"
    ours = get_device(kind)
    facts = report.machine(
        {"device": ours.target.name, **ours.environment()},
        {"torch": torch.__version__, "hipfind": hipfind.__version__},
    )
    out = (
        options.out
        or pathlib.Path(__file__).parent / "results" / f"torch_overhead_{'host' if kind == 'host' else 'gpu'}"
    )
    print(report.write(out, "What a call of hipfind.torch costs on the host", facts, rows, __doc__.splitlines()[-1]))


if __name__ == "__main__":
    main()
