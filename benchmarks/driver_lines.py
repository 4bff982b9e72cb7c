"""MIOpenDriver's command lines through ``hipfind conv``, each verified in float64, in parallel processes.

    python -m benchmarks.driver_lines FILES_OR_FOLDERS... [--sample 300] [--seed 0] [--processes 2] [--batch 1]
                                      [--solution 0] [--out benchmarks/results/driver_lines]

Every line runs as it stands, with the batch cut (``-n 1``), one timed iteration and ``-S 0``, so that nothing is tuned.
Lines that differ only in what was cut run once and count for all. A table says how many ended how, by solver; what
failed is listed with its reason and as a command that can be pasted. Exit code 1 when a line failed.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import shlex
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from benchmarks import report
from hipfind.device.devices import get_device
from hipfind.problem.conv import ConvProblem
from hipfind.problem.driver import parse_command
from hipfind.version import VERSION


@dataclasses.dataclass(frozen=True)
class Line:
    """A command to run. ``count``: lines of the lists that it stands for; ``flops``: of all its directions."""

    words: tuple[str, ...]
    flops: int
    count: int = 1


@dataclasses.dataclass(frozen=True)
class Result:
    """How a line ended: its exit code, what was printed on stderr, and what ran, one a direction."""

    line: Line
    code: int
    message: str
    runs: tuple[dict[str, Any], ...]

    @property
    def is_right(self) -> bool:
        return self.code == 0 and bool(self.runs) and all(run["verified"] for run in self.runs)

    @property
    def outcome(self) -> str:
        """One word for the table."""
        return (
            "right"
            if self.is_right
            else {0: "not verified", 2: "wrong use", 3: "wrong result"}.get(self.code, "failed")
        )


def read_lines(paths: Iterable[pathlib.Path]) -> Iterator[str]:
    """The lines of files, and of the ``.txt`` files in folders."""
    for path in paths:
        for file in sorted(path.glob("*.txt")) if path.is_dir() else [path]:
            yield from filter(None, map(str.strip, file.read_text(encoding="utf-8").splitlines()))


def cut(lines: Iterable[str], batch: int = 1, solution: str = "0") -> list[Line]:
    """The different commands of the lines with the batch cut, in the order of first use."""
    found: dict[tuple[ConvProblem, ...], Line] = {}
    for text in lines:
        words = tuple(shlex.split(text))
        start = next(place for place, word in enumerate(words) if word.startswith("conv"))
        words = (*words[start:], "-n", str(batch), "-i", "1", "-S", solution)
        problems = tuple(parse_command(words).problems())
        known = found.get(problems)
        flops = sum(problem.flops for problem in problems)
        found[problems] = dataclasses.replace(known, count=known.count + 1) if known else Line(words, flops)
    return list(found.values())


def run_line(line: Line) -> Result:
    """Run one command in this process."""
    from click.testing import CliRunner

    from hipfind.cli.main import main

    done = CliRunner().invoke(main, [*line.words, "--json"], prog_name="hipfind")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return Result(line, 1, f"{type(done.exception).__name__}: {done.exception}", ())
    runs = tuple(json.loads(done.stdout)) if done.exit_code in (0, 3) else ()
    return Result(line, done.exit_code, done.stderr.strip(), runs)


def run_all(lines: Sequence[Line], processes: int) -> Iterator[Result]:
    """Run the commands in processes of their own, the long ones first. One that dies ends what was left for it."""
    with concurrent.futures.ProcessPoolExecutor(processes, _fresh()) as pool:
        started = {pool.submit(run_line, line): line for line in sorted(lines, key=lambda one: -one.flops)}
        for future in concurrent.futures.as_completed(started):
            try:
                yield future.result()
            except concurrent.futures.process.BrokenProcessPool:
                yield Result(started[future], 1, "a process died, this line's or another one's", ())


def share_cores(processes: int) -> None:
    """Give each process that will be started its part of the cores, and results that stay in memory."""
    threads = str(max((os.cpu_count() or 1) // processes, 1))
    os.environ.update(
        HIPFIND_DISABLE_USER_DB="1", HIPFIND_HOST_THREADS=threads, OPENBLAS_NUM_THREADS=threads, OMP_NUM_THREADS=threads
    )


def _fresh() -> Any:
    import multiprocessing

    return multiprocessing.get_context("spawn")  # BLAS reads the number of threads when it is loaded


def table(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row for each outcome and solver: lines, how many commands they are, GFLOP/s, and how near the limit."""
    groups: dict[tuple[str, str], list[Result]] = collections.defaultdict(list)
    for result in results:
        groups[result.outcome, ", ".join(run["solver_id"] for run in result.runs) or "-"].append(result)
    return [
        {
            "outcome": outcome,
            "solver": solver,
            "lines": sum(one.line.count for one in group),
            "commands": len(group),
            "median GFLOP/s": _median(run["gflops"] for one in group for run in one.runs),
            "largest error / limit": max(
                (run["error"] / run["limit"] for one in group for run in one.runs if run["error"] is not None),
                default=None,
            ),
        }
        for (outcome, solver), group in sorted(groups.items())
    ]


def failures(results: Iterable[Result]) -> list[str]:
    """What failed, each with its reason and the command."""
    return [
        f"{one.outcome}: {one.message or _worst(one)}\n    hipfind {shlex.join(one.line.words)}"
        for one in results
        if not one.is_right
    ]


def _worst(result: Result) -> str:
    return "; ".join(f"{run['solver_id']}: error {run['error']}, limit {run['limit']}" for run in result.runs)


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return statistics.median(known) if known else None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("paths", nargs="+", type=pathlib.Path, help="files of lines, or folders of .txt files")
    parser.add_argument("--sample", type=int, default=0, help="random commands to run, 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--solution", default="0", help="-S: 0 for immediate mode, -1 for Find, or a solver")
    parser.add_argument("--out", type=pathlib.Path, help="write PATH.json and PATH.md")
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    lines = cut(read_lines(given.paths), given.batch, given.solution)
    everything = sum(line.count for line in lines), len(lines)
    if given.sample and given.sample < len(lines):
        lines = random.Random(given.seed).sample(lines, given.sample)
    share_cores(given.processes)
    results, start = [], time.monotonic()
    for result in run_all(lines, given.processes):
        results.append(result)
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(results)} of {len(lines)}, {time.monotonic() - start:.0f} s")
    rows, failed = table(results), failures(results)
    covered = sum(one.line.count for one in results)
    notes = (
        f"{covered} of {everything[0]} lines ({len(results)} of {everything[1]} different commands with batch"
        f" {given.batch}), -S {given.solution}, {len(failed)} failed. {given.processes} processes ran at a time, so the"
        " rates are lower bounds. error / limit: of `hipfind conv`'s comparison with float64, over whole tensors."
    )
    print("\n".join(["", notes, *report.markdown_table(rows), *failed]))
    if given.out:
        facts = report.machine(get_device("host").environment(), {"hipfind": VERSION})
        facts["seconds"] = f"{time.monotonic() - start:.0f}"
        report.write(given.out, "MIOpenDriver's lists of model layers on the host", facts, rows, notes)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
