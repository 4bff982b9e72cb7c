"""Every upsampling solver beside torch's forward and backward operators, on a CPU or a GPU: one process, interleaved.

    python -m benchmarks.upsample [--device host|cuda] [--direction fwd|bwd] [--only x16] [--dtypes fp32,bf16]
                                  [--layouts NCHW,NHWC] [--solvers UpsampleBwdBlock,...] [--rounds N] [--seconds S]
                                  [--out FILE]

Both directions where none is named, each with its own results; those of the forward pass are in FILE_fwd.

A round runs each contender once, in turn, beginning with another one each time; on a GPU the cache is flushed before
every run (by reading, so that it holds nothing to write back) and device events time it. What is ten times slower than
the best after two runs is not run again. `floor` is the bytes that must move (each tensor once) at the rate of a copy
that is measured first. `limit` on a GPU: 1.5 floors where a tensor is larger than 64 MB, else 2.5 floors or 10 us,
whichever is more. Results are compared with torch's.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import yaml

import hipfind as hf
from benchmarks import report
from hipfind import settings
from hipfind.device.devices import get_device
from hipfind.errors import HipfindError
from hipfind.solvers.registry import AnySolver, default_registry
from hipfind.target import Target

SUITE = pathlib.Path(__file__).with_suffix(".yaml")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}
LARGE_BYTES, HOPELESS = 64e6, 10.0
Call = Callable[[], Any]


@dataclasses.dataclass
class Clock:
    """Times calls on one device, in ms."""

    where: str
    flush: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.where == "cuda":  # larger than any cache, so that reading it also hides the cost of queueing
            self.flush = torch.zeros(1 << 27, dtype=torch.float32, device="cuda")

    def once(self, call: Call) -> float:
        if self.flush is None:
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e3
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.flush.sum()  # read, not written: the write-back of what a cache still holds would be charged to the call
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def race(self, calls: dict[str, Call], rounds: int) -> dict[str, float]:
        """Median of each contender; the fastest run of those that were given up."""
        times: dict[str, list[float]] = {name: [] for name in calls}
        for call in calls.values():
            call()
        for index in range(rounds):
            best = min((min(runs) for runs in times.values() if runs), default=math.inf)
            racing = [name for name, runs in times.items() if len(runs) < 2 or min(runs) < HOPELESS * best]
            first = index % len(racing)
            for name in racing[first:] + racing[:first]:
                times[name].append(self.once(calls[name]))
        return {name: statistics.median(runs) if len(runs) == rounds else min(runs) for name, runs in times.items()}

    def copy_rate(self) -> float:
        """Bytes read and written in a second by a copy of 512 MiB."""
        source = torch.zeros(1 << 27, dtype=torch.float32, device=self.where)
        to = torch.empty_like(source)
        self.once(lambda: to.copy_(source))
        return 2 * source.nbytes / (min(self.once(lambda: to.copy_(source)) for _ in range(5)) * 1e-3)


def make_problem(shape: dict[str, Any], dtype: str, layout: str, direction: str) -> hf.UpsampleProblem:
    n, c = shape["n"], shape["c"]
    return hf.UpsampleProblem.create(
        direction, (n, c, *shape["in"]), (n, c, *shape["out"]), dtype=dtype, layout=layout,
        align_corners=shape.get("align_corners", False),
    )  # fmt: skip


def make(tensor: hf.TensorDescriptor, where: torch.device | str) -> torch.Tensor:
    return torch.empty_strided(tensor.lengths, tensor.strides, dtype=DTYPES[tensor.dtype.value], device=where)


def contenders(problem: hf.UpsampleProblem, target: Target, options: argparse.Namespace) -> list[AnySolver]:
    return [
        solver
        for solver in default_registry().for_operation("upsample")
        if solver.IsApplicable(target, problem) and (solver.SolverDbId() in options.solvers or not options.solvers)
    ]


def compile_ahead(shapes: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """All kernels at once, so that the time goes into measuring."""
    device = get_device(options.device)
    problems = [
        make_problem(shape, dtype, layout, direction)
        for shape in shapes
        for dtype in options.dtypes
        for layout in options.layouts
        for direction in options.direction
    ]
    solutions = [
        solver.GetSolution(device.target, problem)
        for problem in problems
        for solver in contenders(problem, device.target, options)
    ]
    device.compile_ahead([spec for solution in solutions for spec in solution.kernels])


def torch_call(problem: hf.UpsampleProblem, given: torch.Tensor) -> Call:
    size, lengths, rest = list(problem.y.lengths[2:]), list(problem.x.lengths), (problem.align_corners, None, None)
    if problem.direction == "fwd":
        return lambda: torch.ops.aten.upsample_bilinear2d(given, size, *rest)
    return lambda: torch.ops.aten.upsample_bilinear2d_backward(given, size, lengths, *rest)


def solver_call(problem: hf.UpsampleProblem, given: torch.Tensor, solver: str) -> Call:
    plan = hf.plan(problem, solver=solver)
    out = make(problem.tensor(problem.output), given.device)
    return lambda: plan(given, out=out)


def short(solver: str) -> str:
    return solver.removeprefix("UpsampleBwd").removeprefix("UpsampleFwd")


def difference(out: torch.Tensor, theirs: torch.Tensor) -> float:
    """||out - theirs|| / ||theirs||"""
    scale = float(torch.linalg.vector_norm(theirs, dtype=torch.float64))
    return float(torch.linalg.vector_norm(out.double() - theirs.double())) / scale


def measure(
    problem: hf.UpsampleProblem, name: str, layout: str, clock: Clock, rate: float, options: argparse.Namespace
) -> dict[str, Any]:
    given = make(problem.tensor(problem.inputs[0]), clock.where).normal_()
    target = get_device(options.device).target
    names = [solver.SolverDbId() for solver in contenders(problem, target, options)]
    calls = {"torch": torch_call(problem, given)} | {one: solver_call(problem, given, one) for one in names}
    theirs = calls["torch"]()
    errors = [difference(calls[one](), theirs) for one in names]
    del theirs
    times = clock.race(calls, options.rounds)
    best = min(names, key=lambda one: times[one])
    floor = problem.min_bytes / rate * 1e3
    large = max(problem.y.nbytes, problem.x.nbytes) > LARGE_BYTES
    return {
        "shape": name,
        "dtype": problem.dtype.value,
        "layout": layout,
        "floor ms": floor,
        "limit ms": (1.5 * floor if large else max(2.5 * floor, 0.010)) if clock.where == "cuda" else None,
        "torch ms": times["torch"],
        "best ms": times[best],
        "best / floor": times[best] / floor,
        "torch / best": times["torch"] / times[best],
        "best": short(best),
        **{short(one): times[one] for one in names},
        "immediate": short(hf.immediate(problem)[0].solver_id),
        "error": max(errors),
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {"type": lambda text: [name for name in text.split(",") if name]}
    parser.add_argument("--device", default="host")
    parser.add_argument("--direction", choices=["fwd", "bwd"], action="append", help="default: both")
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    parser.add_argument("--dtypes", default=["fp32", "bf16"], **names)
    parser.add_argument("--layouts", default=["NCHW", "NHWC"], **names)
    parser.add_argument("--solvers", default=[], help="only these ids", **names)
    parser.add_argument("--rounds", type=int, default=0, help="default: 5 on a CPU, 15 on a GPU")
    parser.add_argument("--seconds", type=float, default=500.0, help="stop starting new cases after this long")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    options.direction = options.direction or ["bwd", "fwd"]
    return options


def main() -> None:
    options, begin = parse(), time.monotonic()
    device = get_device(options.device)
    clock = Clock("cpu" if device.target.is_host else "cuda")
    options.rounds = options.rounds or (5 if device.target.is_host else 15)
    if device.target.is_host:
        torch.set_num_threads(device.target.compute_units)
    rate = clock.copy_rate()
    shapes = [shape for shape in yaml.safe_load(SUITE.read_text()) if options.only in shape["name"]]
    facts = report.machine(
        {"device": device.target.name, **device.environment()}, {"torch": torch.__version__, "hipfind": hf.__version__}
    )
    with settings.override(user_db_path=os.devnull, disable_user_db=True, device=options.device):
        compile_ahead(shapes, options)
        for direction in options.direction:
            rows = measure_all(direction, shapes, begin + options.seconds, clock, rate, options)
            if rows:
                write(direction, rows, facts, clock, rate, options)


def measure_all(
    direction: str, shapes: list[dict[str, Any]], end: float, clock: Clock, rate: float, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """A row for each case that was begun before ``end``."""
    rows: list[dict[str, Any]] = []
    for shape in shapes:
        for dtype in options.dtypes:
            for layout in options.layouts:
                if time.monotonic() > end:
                    continue
                try:
                    problem = make_problem(shape, dtype, layout, direction)
                    rows.append(measure(problem, shape["name"], layout, clock, rate, options))
                    cells = "  ".join(f"{name}={report.cell(value)}" for name, value in rows[-1].items())
                    print(f"{direction}  {cells}", flush=True)
                except (HipfindError, RuntimeError) as error:
                    print(f"{direction} {shape['name']} {dtype} {layout}: {type(error).__name__}: {error}", flush=True)
    return rows


def write(
    direction: str, rows: list[dict[str, Any]], facts: dict[str, str], clock: Clock, rate: float,
    options: argparse.Namespace,
) -> None:  # fmt: skip
    mean = math.exp(statistics.fmean(math.log(row["torch / best"]) for row in rows))
    notes = (
        f"Medians of {options.rounds} interleaved rounds; a copy moves {rate / 1e9:.1f} GB/s (read plus written). "
        f"Geometric mean of torch / best over {len(rows)} cases: {mean:.2f}."
    )
    missed = [row for row in rows if row["limit ms"] is not None and row["best ms"] > row["limit ms"]]
    if clock.where == "cuda":
        notes += f" {len(missed)} cases are over their limit."
    name = "upsample_host" if clock.where == "cpu" else "upsample_gpu"
    out = options.out or pathlib.Path(__file__).parent / "results" / name
    ending, title = ("_fwd", "upsample_bilinear2d") if direction == "fwd" else ("", "upsample_bilinear2d_backward")
    print(report.write(out.with_name(out.name + ending), f"{title} beside torch", facts, rows, notes))


if __name__ == "__main__":
    main()
