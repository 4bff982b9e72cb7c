"""The performance suite beside torch (cudnn.benchmark on) on one GPU: interleaved, cache flushed, device events.

    python -m benchmarks.gpu_suite [--only point] [--dtype bf16] [--rounds 15] [--layouts first,last] [--tune] [--out
    FILE]

hipfind's side is a plan of the Find winner; its result is compared with torch's. With --tune perf configs are searched
first (--configs of each solver), and the best time with default configs stands beside the best one with tuned configs,
both as the searches measured them. For point output torch's matrix product on reshaped tensors stands beside
both. `floor` = max(FLOPs / peak, bytes / bandwidth) by the target's figures.
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
from benchmarks.host_suite import make_problem, torch_call
from hipfind import settings
from hipfind.device.devices import get_device
from hipfind.errors import HipfindError
from hipfind.problem import ConvProblem
from hipfind.solvers.geometry import is_point_output

SUITE = pathlib.Path(__file__).with_name("gpu_suite.yaml")
TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
LAYOUTS = {2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def make_tensors(problem: ConvProblem) -> dict[str, torch.Tensor]:
    """Random tensors on the GPU with the problem's strides."""
    made = {}
    for role in problem.roles:
        descriptor = problem.tensor(role)
        dtype = TORCH_DTYPES[descriptor.dtype.value]
        tensor = torch.empty_strided(descriptor.lengths, descriptor.strides, dtype=dtype, device="cuda")
        made[role] = tensor.copy_(torch.randn(descriptor.lengths, device="cuda", dtype=dtype))
    return made


def product_call(problem: ConvProblem, tensors: dict[str, torch.Tensor]) -> Callable[[], Any] | None:
    """An expert's matrix product on the reshaped tensors, where the convolution is one."""
    if not is_point_output(problem):
        return None
    n, k = problem.n, problem.k
    x = torch.randn(n, tensors["x"].numel() // n, device="cuda", dtype=tensors["x"].dtype)
    w = torch.randn(k, x.shape[1], device="cuda", dtype=x.dtype)
    y = tensors["y"].reshape(n, k).contiguous()
    return {"fwd": lambda: x @ w.t(), "bwd": lambda: y @ w, "wrw": lambda: y.t() @ x}[problem.direction]


def difference(theirs: Any, ours: Any, problem: ConvProblem) -> float:
    """||ours - theirs|| / ||theirs||; NaN where an element was not written. Both are rounded to the output's type."""
    if isinstance(theirs, tuple):  # torch's gradients, of which one was asked for
        (theirs,) = (gradient for gradient in theirs if gradient is not None)
    lengths = problem.tensor(problem.output).lengths
    one, other = (torch.as_tensor(value, device="cuda").reshape(lengths).float() for value in (ours, theirs))
    return float((one - other).norm() / other.norm())


def default_against_tuned(found: hf.FindReport) -> float | None:
    """The best time with default configs over the best one with tuned configs, as the searches measured them."""
    tuned = [one.time_ms for one in found.searches if one.time_ms is not None]
    default = [one.default_ms for one in found.searches if one.default_ms is not None]
    return min(default) / min(tuned) if tuned and default else None


def mean_of(values: list[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(values)))) if values else float("nan")


def time_all(calls: dict[str, Callable[[], Any]], rounds: int, flush: torch.Tensor) -> dict[str, float]:
    """Median device time in ms of each call; one of each a round, the cache flushed before every run."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    names = list(calls)
    for index in range(rounds):
        for name in names[index % len(names) :] + names[: index % len(names)]:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            start.record()
            calls[name]()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end))
    return {name: statistics.median(values) for name, values in times.items()}


def measure(
    shape: dict[str, Any], direction: str, layout: str, options: argparse.Namespace, flush: torch.Tensor
) -> dict[str, Any]:
    problem = make_problem(shape, direction, options.dtype, layout)
    tensors = make_tensors(problem)
    start = time.perf_counter()
    with settings.override(tune_configs=options.configs, verify=options.verify):
        found = hf.find(problem, mode="normal", tune=options.tune)
    find_s = time.perf_counter() - start
    if found.best is None:
        raise HipfindError("no solver has a usable result", got=problem.key())
    plan = hf.plan(problem)
    inputs, out = [tensors[role] for role in problem.inputs], tensors[problem.output].clone()
    calls: dict[str, Callable[[], Any]] = {
        "torch": torch_call(problem, tensors),
        "hipfind": lambda: plan(*inputs, out=out),
    }
    error = difference(calls["torch"](), plan(*inputs, out=out), problem)
    product = product_call(problem, tensors)
    if product is not None:
        calls["matmul"] = product
    times = time_all(calls, options.rounds, flush)
    target = get_device("cuda").target
    floor = max(problem.flops / target.peak(options.dtype), problem.min_bytes / (target.bandwidth_gbs * 1e9)) * 1e3
    return {
        "shape": shape["name"],
        "direction": direction,
        "layout": layout,
        "floor ms": floor,
        "torch ms": times["torch"],
        "matmul ms": times.get("matmul"),
        "hipfind ms": times["hipfind"],
        "torch / hipfind": times["torch"] / times["hipfind"],
        "to reach ms": shape.get("reach_ms", {}).get(direction),
        "default / tuned": default_against_tuned(found),
        "difference": error,
        "solver": f"{plan.solver_id} {plan.choice.config}".strip(),
        "find s": find_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dtype", choices=sorted(TORCH_DTYPES), default="bf16")
    parser.add_argument("--layouts", default="first,last")
    parser.add_argument("--only", default="")
    parser.add_argument("--tune", action="store_true", help="search perf configs first")
    parser.add_argument("--configs", type=int, default=0, help="perf configs of a solver that are searched, 0: all")
    parser.add_argument("--verify", default="first", help="when a Find checks outputs: first, always, off")
    parser.add_argument("--seconds", type=float, default=500.0, help="stop starting new cases after this long")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device, rows, begin = get_device("cuda"), [], time.monotonic()
    # much larger than the L2, so that clearing it also takes longer than queueing what is timed after it
    flush = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    with tempfile.TemporaryDirectory() as home, settings.override(user_db_path=home + "/bench.db", device="cuda"):
        for shape in [s for s in yaml.safe_load(SUITE.read_text()) if options.only in s["name"]]:
            names = LAYOUTS[len(shape["in"])]
            for layout in [
                name for name, which in zip(names, ("first", "last"), strict=True) if which in options.layouts
            ]:
                for direction in ("fwd", "bwd", "wrw"):
                    if time.monotonic() - begin > options.seconds:
                        continue
                    try:
                        rows.append(measure(shape, direction, layout, options, flush))
                        print("  ".join(f"{k}={report.cell(v)}" for k, v in rows[-1].items()), flush=True)
                    except (HipfindError, RuntimeError) as error:
                        print(f"{shape['name']} {direction} {layout}: {type(error).__name__}: {error}", flush=True)
    facts = report.machine(
        {"device": torch.cuda.get_device_name(), **device.environment()},
        {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "hipfind": hf.__version__},
    )
    ratios = [row["torch / hipfind"] for row in rows]
    gains = [row["default / tuned"] for row in rows if row["default / tuned"] is not None]
    out = options.out or pathlib.Path(__file__).parent / "results" / f"gpu_suite_{options.dtype}"
    notes = (
        f"Medians of {options.rounds} interleaved rounds by device events, cache flushed before each run. "
        f"Geometric mean of torch / hipfind over {len(rows)} cases: {mean_of(ratios):.2f}, "
        f"least {min(ratios, default=float('nan')):.2f}, {sum(ratio < 0.8 for ratio in ratios)} under 0.8. "
        f"Best time with default configs over tuned, geometric mean of {len(gains)}: {mean_of(gains):.2f}. "
        f"Searched: {options.configs or 'all'} configs of each solver; outputs checked by Find: {options.verify}."
    )
    print(report.write(out, f"Suite beside torch on one GPU, {options.dtype}", facts, rows, notes))


if __name__ == "__main__":
    main()
