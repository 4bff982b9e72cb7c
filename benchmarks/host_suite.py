"""The host suite beside torch's CPU convolution: one process, same threads, interleaved, ratios of medians.

    python -m benchmarks.host_suite [--rounds 9] [--dtype fp32] [--only NAME] [--out benchmarks/results/host_suite_fp32]

hipfind's side is a plan of the Find winner, measured in mode normal into a DB of its own; torch's side is the operator
that its autograd calls. A round times both once, in turn, in alternating order, with a pause before each.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import yaml

import hipfind as hf
from benchmarks import report
from hipfind import settings
from hipfind.device.devices import get_device
from hipfind.problem import ConvProblem

SUITE = pathlib.Path(__file__).with_name("host_suite.yaml")
PAUSE_S = 0.03
"""Before each call: torch's OpenMP threads go on spinning after a call, on cores that the next one needs."""
TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def make_problem(shape: dict[str, Any], direction: str, dtype: str, layout: str) -> ConvProblem:
    ndim, groups = len(shape["in"]), shape.get("groups", 1)
    return ConvProblem.create(
        direction,
        x=(shape["n"], shape["c"], *shape["in"]),
        w=(shape["k"], shape["c"] // groups, *shape["filter"]),
        stride=shape.get("stride", [1] * ndim),
        pad=shape.get("pad", [0] * ndim),
        dilation=shape.get("dilation", [1] * ndim),
        groups=groups,
        dtype=dtype,
        layout=layout,
    )


def make_tensors(problem: ConvProblem) -> dict[str, torch.Tensor]:
    """Random tensors with the problem's strides; numpy and torch share their memory."""
    made = {}
    for role in problem.roles:
        descriptor = problem.tensor(role)
        tensor = torch.empty_strided(descriptor.lengths, descriptor.strides, dtype=TORCH_DTYPES[descriptor.dtype.value])
        made[role] = tensor.copy_(torch.randn(descriptor.lengths))
    return made


def torch_call(problem: ConvProblem, tensors: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """torch's own operator for this direction."""
    x, w, y = tensors["x"], tensors["w"], tensors["y"]
    common = (
        list(problem.stride),
        list(problem.pad),
        list(problem.dilation),
        False,
        [0] * problem.ndim,
        problem.groups,
    )
    if problem.direction == "fwd":
        return lambda: torch.ops.aten.convolution(x, w, None, *common)
    mask = [problem.direction == "bwd", problem.direction == "wrw", False]
    return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *common, mask)


def hipfind_call(problem: ConvProblem, tensors: dict[str, torch.Tensor]) -> tuple[Callable[[], Any], str]:
    """A plan of the Find winner on the same data, writing into a made output like torch does."""
    plan = hf.plan(problem, mode="normal")
    inputs = [tensors[role] for role in problem.inputs]
    return (lambda: plan(*inputs)), plan.solver_id


def time_pair(first: Callable[[], Any], second: Callable[[], Any], rounds: int) -> tuple[list[float], list[float]]:
    """Times in ms of two calls, interleaved, the order alternating."""
    times: tuple[list[float], list[float]] = ([], [])
    for call in (first, second):
        call()
        call()
    for index in range(rounds):
        for which in (0, 1) if index % 2 else (1, 0):
            time.sleep(PAUSE_S)
            start = time.perf_counter()
            (first, second)[which]()
            times[which].append((time.perf_counter() - start) * 1e3)
    return times


def measure(shape: dict[str, Any], direction: str, dtype: str, layout: str, rounds: int) -> dict[str, Any]:
    problem = make_problem(shape, direction, dtype, layout)
    tensors = make_tensors(problem)
    theirs = torch_call(problem, tensors)
    ours, solver = hipfind_call(problem, tensors)
    torch_times, own_times = time_pair(theirs, ours, rounds)
    target = get_device("host").target
    floor = max(problem.flops / target.peak(dtype), problem.min_bytes / (target.bandwidth_gbs * 1e9)) * 1e3
    torch_ms, own_ms = statistics.median(torch_times), statistics.median(own_times)
    return {
        "shape": shape["name"],
        "direction": direction,
        "layout": layout,
        "floor ms": floor,
        "torch ms": torch_ms,
        "hipfind ms": own_ms,
        "torch / hipfind": statistics.median(t / o for t, o in zip(torch_times, own_times, strict=True)),
        "to reach": shape.get("reach", {}).get(direction) if dtype == "fp32" else None,
        "solver": solver,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dtype", choices=sorted(TORCH_DTYPES), default="fp32")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    shapes = [s for s in yaml.safe_load(SUITE.read_text()) if options.only in s["name"]]
    device = get_device("host")
    torch.set_num_threads(device.target.compute_units)
    rows = []
    with tempfile.TemporaryDirectory() as home, settings.override(user_db_path=home + "/bench.db", device="host"):
        for shape in shapes:
            last = {2: "NHWC", 3: "NDHWC"}[len(shape["in"])]
            layout = last if options.channels_last else {2: "NCHW", 3: "NCDHW"}[len(shape["in"])]
            for direction in ("fwd", "bwd", "wrw"):
                rows.append(measure(shape, direction, options.dtype, layout, options.rounds))
                print("  ".join(f"{name}={report.cell(value)}" for name, value in rows[-1].items()), flush=True)
    facts = report.machine(device.environment(), {"torch": torch.__version__, "hipfind": hf.__version__})
    facts["threads"] = str(torch.get_num_threads())
    mean = float(np.exp(np.mean([np.log(row["torch / hipfind"]) for row in rows])))
    out = options.out or pathlib.Path(__file__).parent / "results" / f"host_suite_{options.dtype}"
    notes = (
        f"Medians of {options.rounds} interleaved rounds, warm caches, both sides making their output. `floor` = "
        f"max(FLOPs / peak, bytes / bandwidth) by the target's estimated figures. Geometric mean of torch / hipfind: "
        f"{mean:.2f}."
    )
    print(report.write(out, f"Host suite beside torch, {options.dtype}", facts, rows, notes))


if __name__ == "__main__":
    main()
