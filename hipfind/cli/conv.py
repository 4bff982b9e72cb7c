"""``hipfind conv``: MIOpenDriver's convolution driver. Takes its flags, prints lines of its form."""

from __future__ import annotations

import click

from hipfind.cli.conv_run import ConvRun, run_conv, wanted_solver
from hipfind.cli.exits import FAILED
from hipfind.cli.options import device_option, driver_options, json_option
from hipfind.cli.output import print_json
from hipfind.errors import ParseError
from hipfind.problem.driver import DriverCommand, to_command
from hipfind.problem.driver_flags import BASES, FLAGS
from hipfind.problem.tolerance import Verdict

_NOT_YET = (
    "verification_cache", "dump_output", "in_data", "weights", "dout_data", "gpualloc", "gpubuffer_check",
    "tuning_policy", "use_hip_graph",
)  # fmt: skip
"""MIOpenDriver's flags that hipfind does not have."""

_MAIN_NAMES = ("conv", "convfp16", "convbfp16")
_TITLES = {"fwd": "Forward", "bwd": "Backward Data", "wrw": "Backward Weights"}
_VERIFIED = {
    "fwd": "Forward Convolution",
    "bwd": "Backward Convolution Data",
    "wrw": "Backward Convolution Weights",
}
_STATS = {"fwd": "fwd-conv", "bwd": "bwdd-conv", "wrw": "bwdw-conv"}


def conv_commands() -> list[click.Command]:
    """One command a base argument of MIOpenDriver: they differ in the dtype. The rarer ones are not listed in help."""
    return [_command(base) for base in BASES]


def _command(base: str) -> click.Command:
    dtype = BASES[base].value
    help = _HELP if base == "conv" else f"As `hipfind conv`, on {dtype} data."

    @click.command(base, help=help, short_help=f"Run convolutions as MIOpenDriver does, {dtype}.",
                   hidden=base not in _MAIN_NAMES)  # fmt: skip
    @driver_options(FLAGS, _NOT_YET)
    @device_option
    @json_option
    def conv(given: dict[str, str], device: str | None, as_json: bool) -> int:
        command = DriverCommand.create(base, given)
        _refuse(command)
        solver, runs = wanted_solver(command), []
        for problem in command.problems():
            if command.print_problem and not as_json:
                click.echo(f"hipfind {to_command(problem).split(maxsplit=1)[1]}")
            runs.append(run_conv(problem, command, solver, device))
            if not as_json:
                _print_run(runs[-1], command)
        if as_json:
            print_json([run.to_dict() for run in runs])
        return FAILED if any(run.verdict is not None and not run.verdict.ok for run in runs) else 0

    return conv


_HELP = """Run convolutions on random fp32 data, as MIOpenDriver does: a line that MIOpen logs runs with "hipfind" in
place of "./bin/MIOpenDriver".

Without -S, Find chooses the solver and stores what it measured; the next run answers from the perf DB, and -s 1
measures every solver again. Each direction runs once more than -i says: the first run is not counted. Results are
compared with a float64 reference (-V 0: not); outputs are filled with NaN before, so what is not written fails. Exit
code 1 when a comparison fails: the line that says FAILED names the direction."""


def _refuse(command: DriverCommand) -> None:
    for flag in FLAGS:
        value = command.values[flag.long]
        if flag.long in _NOT_YET and value != flag.default:
            raise ParseError(f"--{flag.long} (-{flag.short}) is not supported yet", got=f"{value}",
                             remedy=f"leave it at {flag.default!r}")  # fmt: skip


def _print_run(run: ConvRun, command: DriverCommand) -> None:
    title = f"{_TITLES[run.problem.direction]} Conv."
    click.echo(f"hipfind {title} Algorithm: {run.algorithm}, Solution: {run.solver_id} ({run.source})")
    if command.wall:
        click.echo(f"Wall-clock Time {title} Elapsed: {run.wall_ms:.6f} ms (average)")
    if command.time:
        click.echo(f"GPU Kernel Time {title} Elapsed: {run.time_ms:.6f} ms (average)")
        _print_stats(run)
    if run.verdict is not None:
        click.echo(f"{_VERIFIED[run.problem.direction]} {_judgement(run.verdict)}")


def _judgement(verdict: Verdict) -> str:
    if verdict.ok:
        return f"Verifies OK on CPU reference ({verdict.error:.6g} < {verdict.limit:.6g})"
    return f"FAILED: {verdict.error:.6g} > {verdict.limit:.6g}"


def _print_stats(run: ConvRun) -> None:
    """MIOpenDriver's two lines of statistics, with each number under its own name (MIOpen swaps some)."""
    p = run.problem
    filter_axes, filter_sizes = (("x", "y"), p.filter[::-1]) if p.ndim == 2 else (("z", "y", "x"), p.filter)
    name = f"{_STATS[p.direction]}{'x'.join(map(str, p.filter))}u{p.stride[0]}"
    heads = ["name", "n", "c", *("do", "ho", "wo")[-p.ndim :], *filter_axes, "k"]
    heads += ["flopCnt", "bytesRead", "bytesWritten", "GFLOPs", "GB/s", "timeMs"]
    sizes = [p.n, p.c, *p.out_spatial, *filter_sizes, p.k, p.flops, run.bytes_read, run.bytes_written]
    moved = run.bytes_read + run.bytes_written
    rates = [f"{amount / run.time_ms / 1e6:.0f}" if run.time_ms else "0" for amount in (p.flops, moved)]
    click.echo(f"stats: {', '.join(heads)}")
    click.echo(f"stats: {', '.join([name, *map(str, sizes), *rates, f'{run.time_ms:.6f}'])}")
