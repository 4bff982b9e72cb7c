"""Host cost per call on a GPU: a plan on a tiny problem beside torch's dispatch of the same convolution; a warm Find.

python -m benchmarks.gpu_overhead [--out benchmarks/results/gpu_overhead]
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

import hipfind as hf
from benchmarks import report
from benchmarks.gpu_suite import make_tensors
from hipfind import settings
from hipfind.device.devices import get_device
from hipfind.problem import ConvProblem

CALLS = 300
"""Calls between two synchronizations: few enough that the queue of launches never fills up and blocks."""


def per_call_us(call: Callable[[], Any], rounds: int = 21) -> float:
    """Median over rounds of the host time of one call in us; the device is not waited for."""
    means = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        means.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(means)


def call_rows() -> list[dict[str, Any]]:
    """One tiny convolution by torch and by plans of each kind of solver."""
    tiny = ConvProblem.create("fwd", x=(1, 8, 4, 4), w=(8, 8, 4, 4), stride=4, dtype="bf16")
    tensors = make_tensors(tiny)
    x, w, y = (tensors[role] for role in tiny.roles)
    base = per_call_us(lambda: torch.nn.functional.conv2d(x, w, stride=4))
    rows = [{"what": "torch conv2d dispatch", "us": base, "torch / this": 1.0}]
    for solver in ("GemmFwdRest", "ConvDirectNaiveConvFwd"):
        plan = hf.plan(tiny, solver=solver)
        for name, call in (
            ("plan(x, w)", lambda p=plan: p(x, w)),
            ("plan(x, w, out=y)", lambda p=plan: p(x, w, out=y)),
        ):
            cost = per_call_us(call)
            rows.append({"what": f"{name} {solver}", "us": cost, "torch / this": base / cost})
    shot = per_call_us(lambda: hf.conv(x, w, stride=4))
    return rows + [{"what": "hf.conv(x, w)", "us": shot, "torch / this": base / shot}]


def find_rows() -> list[dict[str, Any]]:
    """Whole Finds of new problems with every kernel in the cache, beside the time of the timed runs alone."""
    rows = []
    for channels in (16, 24, 32):
        problem = ConvProblem.create("fwd", x=(8, channels, 14, 14), w=(64, channels, 3, 3), pad=1, dtype="bf16")
        start = time.perf_counter()
        found = hf.find(problem, mode="normal")
        total = (time.perf_counter() - start) * 1e3
        runs = sum((one.time_ms or 0.0) * (one.samples + 1) for one in found.candidates)
        rows.append(
            {"what": f"find, {channels} channels: ms in all / of timed runs", "us": total, "torch / this": runs}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results" / "gpu_overhead")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    with tempfile.TemporaryDirectory() as home, settings.override(user_db_path=home + "/bench.db", device="cuda"):
        rows = call_rows() + find_rows()
    facts = report.machine(
        {"device": torch.cuda.get_device_name(), **get_device("cuda").environment()},
        {"torch": torch.__version__, "hipfind": hf.__version__},
    )
    notes = f"Medians; {CALLS} calls a round, the device not waited for. Rows of find are in ms."
    print(report.write(options.out, "Host cost per call on a GPU", facts, rows, notes))


if __name__ == "__main__":
    main()
