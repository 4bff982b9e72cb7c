"""Backward data by v4r1 on one GPU: the dynamic solver beside the static one, and both beside torch.

    python -m benchmarks.v4r1 [--only 3x3_s2] [--rounds 15] [--out FILE]

Both solvers run with the same perf config: of the static solver's most promising ones the fastest here. Interleaved,
cache flushed before every run, device events, medians.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable
from typing import Any

import torch
import yaml

import hipfind as hf
from benchmarks import report
from benchmarks.gpu_suite import LAYOUTS, SUITE, difference, make_tensors, time_all
from benchmarks.host_suite import make_problem, torch_call
from hipfind.device.devices import get_device
from hipfind.invokers.invoker import Invoker, build
from hipfind.problem import ConvProblem
from hipfind.solvers.igemm.bwd_v4r1 import ConvTritonIgemmBwdV4R1
from hipfind.solvers.igemm.bwd_v4r1_dynamic import ConvTritonIgemmBwdV4R1Dynamic

SHAPES = ("3x3_s2", "big_stride7", "1x1_s2", "3x3_r50_56", "3x3_r50_14", "dilated_aspp", "3d_r3d")
_CONFIGS = 12


def built(solver: Any, problem: ConvProblem, config: Any) -> Invoker:
    device = get_device("cuda")
    return build(solver.GetSolution(device.target, problem, config), device, problem.roles)


def measure(shape: dict[str, Any], layout: str, rounds: int, flush: torch.Tensor) -> dict[str, Any]:
    problem = make_problem(shape, "bwd", "bf16", layout)
    target, tensors = get_device("cuda").target, make_tensors(problem)
    static, dynamic = ConvTritonIgemmBwdV4R1(), ConvTritonIgemmBwdV4R1Dynamic()
    nbytes = max(solver.GetWorkspaceSize(target, problem) for solver in (static, dynamic))
    workspace = torch.empty(max(nbytes, 1), dtype=torch.uint8, device="cuda")
    addresses = [*(tensors[role].data_ptr() for role in problem.roles), workspace.data_ptr()]

    def call(invoker: Invoker) -> Callable[[], Any]:
        return lambda: invoker.run(addresses)

    configs = [config for _, config in zip(range(_CONFIGS), static.Search(target, problem), strict=False)]
    get_device("cuda").compile_ahead(
        [spec for config in configs for spec in static.GetSolution(target, problem, config).kernels]
    )
    first = time_all({str(config): call(built(static, problem, config)) for config in configs}, 5, flush)
    best = static.parse_config(min(first, key=lambda name: first[name]))
    runs = {"torch": torch_call(problem, tensors)}
    expected = runs["torch"]()
    errors = {}
    for name, solver in (("static", static), ("dynamic", dynamic)):
        runs[name] = call(built(solver, problem, best))
        tensors["x"].fill_(float("nan"))
        runs[name]()
        errors[name] = difference(expected, tensors["x"], problem)
    times = time_all(runs, rounds, flush)
    return {
        "shape": shape["name"],
        "layout": layout,
        "torch ms": times["torch"],
        "static ms": times["static"],
        "dynamic ms": times["dynamic"],
        "dynamic / static": times["dynamic"] / times["static"],
        "torch / static": times["torch"] / times["static"],
        "difference": max(errors.values()),
        "config": str(best),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results" / "gpu_v4r1")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    flush = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    rows = []
    for shape in yaml.safe_load(SUITE.read_text()):
        if shape["name"] in SHAPES and options.only in shape["name"]:
            rows += [measure(shape, layout, options.rounds, flush) for layout in LAYOUTS[len(shape["in"])]]
    device = get_device("cuda")
    facts = report.machine(
        {"device": torch.cuda.get_device_name(), **device.environment()},
        {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version()), "hipfind": hf.__version__},
    )
    notes = (
        f"bf16, medians of {options.rounds} interleaved rounds. difference: of the results from torch's, the larger."
    )
    print(report.write(options.out, "Backward data by v4r1, dynamic beside static", facts, rows, notes))


if __name__ == "__main__":
    main()
