"""Host cost per call: a plan on a tiny problem beside its own steps, immediate mode on a known problem, the import.

python -m benchmarks.host_overhead [--out benchmarks/results/host_overhead]
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import hipfind as hf
from benchmarks import report
from hipfind import settings
from hipfind.device.devices import get_device
from hipfind.problem import ConvProblem

CALLS = 2000


def per_call_us(call: Callable[[], Any], rounds: int = 15) -> float:
    """Median over rounds of the mean time of one call in us."""
    call()
    means = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        means.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(means)


def interleaved_us(*calls: Callable[[], Any], rounds: int = 41) -> list[float]:
    """Medians over rounds of the mean times in us, all calls in each round: the machine's speed varies with time."""
    for call in calls:
        call()
    means: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, means, strict=True):
            start = time.perf_counter()
            for _ in range(CALLS // 4):
                call()
            times.append((time.perf_counter() - start) / (CALLS // 4) * 1e6)
    return [statistics.median(times) for times in means]


def plan_rows(problem: ConvProblem, name: str, solver: str) -> list[dict[str, Any]]:
    """The plan's call, and the solution's own steps run on ready addresses."""
    plan = hf.plan(problem, solver=solver)
    arrays = {role: np.ones(problem.tensor(role).lengths, problem.tensor(role).dtype.numpy) for role in problem.roles}
    inputs = [arrays[role] for role in problem.inputs]
    out = arrays[problem.output]
    addresses = [arrays[role].ctypes.data for role in problem.roles] + [0]
    steps, with_out, making = interleaved_us(
        lambda: plan._invoker.run(addresses), lambda: plan(*inputs, out=out), lambda: plan(*inputs)
    )
    return [
        {"what": f"{name} ({plan.solver_id}): own steps", "us": steps, "beyond steps us": None, "limit us": None},
        {"what": "plan(x, w, out=y)", "us": with_out, "beyond steps us": with_out - steps, "limit us": 10.0},
        {"what": "plan(x, w)", "us": making, "beyond steps us": making - steps, "limit us": 10.0},
    ]


def import_rows() -> list[dict[str, Any]]:
    code = "import time; t = time.perf_counter(); import {0}; print((time.perf_counter() - t) * 1e3)"
    rows = []
    for module, limit in (("numpy", None), ("hipfind", 150.0)):
        runs = [
            float(
                subprocess.run(
                    [sys.executable, "-c", code.format(module)], capture_output=True, text=True, check=True
                ).stdout
            )
            for _ in range(9)
        ]
        rows.append(
            {"what": f"import {module} (ms)", "us": statistics.median(runs), "beyond steps us": None, "limit us": limit}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results" / "host_overhead")
    options = parser.parse_args()
    tiny = ConvProblem.create("fwd", x=(1, 2, 4, 4), w=(4, 2, 4, 4), stride=4)
    with tempfile.TemporaryDirectory() as home, settings.override(user_db_path=home + "/bench.db", device="host"):
        rows = plan_rows(tiny, "tiny point output", "GemmFwdRest")
        rows += plan_rows(tiny, "tiny point output", "ConvDirectNaiveConvFwd")
        hf.find(tiny)
        known = per_call_us(lambda: hf.immediate(tiny))
        rows.append({"what": "hf.immediate(p), known problem", "us": known, "beyond steps us": None, "limit us": 20.0})
        fresh = [ConvProblem.create("fwd", x=(1, 2, 4, 4), w=(4, 2, 4, 4), stride=4) for _ in range(1)]
        same = per_call_us(lambda: hf.immediate(fresh[0]))
        rows.append({"what": "hf.immediate(equal problem)", "us": same, "beyond steps us": None, "limit us": 20.0})
        x, w = np.ones((1, 2, 4, 4), np.float32), np.ones((4, 2, 4, 4), np.float32)
        rows.append(
            {"what": "hf.conv(x, w, stride=4)", "us": per_call_us(lambda: hf.conv(x, w, stride=4)),
             "beyond steps us": None, "limit us": None}
        )  # fmt: skip
    rows += import_rows()
    facts = report.machine(get_device("host").environment(), {"hipfind": hf.__version__})
    print(report.write(options.out, "Host cost per call", facts, rows, f"Medians; {CALLS} calls a round."))


if __name__ == "__main__":
    main()
