"""What ``hipfind conv`` prints of a run: lines of MIOpenDriver's form, and one with the iterations' statistics."""

from __future__ import annotations

import click

from hipfind.cli.conv_run import ConvRun, Times
from hipfind.problem.driver import DriverCommand
from hipfind.problem.tolerance import Verdict

_TITLES = {"fwd": "Forward", "bwd": "Backward Data", "wrw": "Backward Weights"}
_VERIFIED = {
    "fwd": "Forward Convolution",
    "bwd": "Backward Convolution Data",
    "wrw": "Backward Convolution Weights",
}
_STATS = {"fwd": "fwd-conv", "bwd": "bwdd-conv", "wrw": "bwdw-conv"}


def print_run(run: ConvRun, command: DriverCommand) -> None:
    """The algorithm, the times that were asked for, the files, and the judgement."""
    title = f"{_TITLES[run.problem.direction]} Conv."
    config = f", Config: {run.config}" if run.config else ""
    click.echo(f"hipfind {title} Algorithm: {run.algorithm}, Solution: {run.solver_id}{config} ({run.source})")
    if command.wall:
        click.echo(f"Wall-clock Time {title} Elapsed: {run.wall_times.mean:.6f} ms (average)")
        click.echo(_iterations(run, "wall-clock", run.wall_times))
    if command.time:
        click.echo(f"GPU Kernel Time {title} Elapsed: {run.device_times.mean:.6f} ms (average)")
        click.echo(_iterations(run, "device", run.device_times))
        _print_stats(run)
    for name in run.files:
        click.echo(f"Wrote output to file {name}")
    verified = _VERIFIED[run.problem.direction]
    for name in run.overruns:
        click.echo(f"{verified} FAILED: {'before' if command.buffer_check == 1 else 'after'} {name} memory was written")
    if run.verdict is not None:
        click.echo(f"{verified} {_judgement(run.verdict)}")


def _judgement(verdict: Verdict) -> str:
    if verdict.ok:
        return f"Verifies OK on CPU reference ({verdict.error:.6g} < {verdict.limit:.6g})"
    return f"FAILED: {verdict.error:.6g} > {verdict.limit:.6g}"


def _iterations(run: ConvRun, clock: str, times: Times) -> str:
    return (
        f"iterations: {run.iterations}, {clock} ms min {times.min:.6f}, median {times.median:.6f},"
        f" mean {times.mean:.6f}, max {times.max:.6f}, by the median {run.gflops(times.median):.6g} GFLOP/s,"
        f" {run.gigabytes(times.median):.6g} GB/s"
    )


def _print_stats(run: ConvRun) -> None:
    """MIOpenDriver's two lines of statistics, with each number under its own name (MIOpen swaps some)."""
    p = run.problem
    filter_axes, filter_sizes = (("x", "y"), p.filter[::-1]) if p.ndim == 2 else (("z", "y", "x"), p.filter)
    name = f"{_STATS[p.direction]}{'x'.join(map(str, p.filter))}u{p.stride[0]}"
    heads = ["name", "n", "c", *("do", "ho", "wo")[-p.ndim :], *filter_axes, "k"]
    heads += ["flopCnt", "bytesRead", "bytesWritten", "GFLOPs", "GB/s", "timeMs"]
    sizes = [p.n, p.c, *p.out_spatial, *filter_sizes, p.k, p.flops, run.bytes_read, run.bytes_written]
    mean = run.device_times.mean
    rates = [f"{rate:.0f}" for rate in (run.gflops(mean), run.gigabytes(mean))]
    click.echo(f"stats: {', '.join(heads)}")
    click.echo(f"stats: {', '.join([name, *map(str, sizes), *rates, f'{mean:.6f}'])}")
