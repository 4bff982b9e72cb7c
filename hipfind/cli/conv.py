"""``hipfind conv``: MIOpenDriver's convolution driver. Takes its flags, prints lines of its form."""

from __future__ import annotations

import contextlib

import click

from hipfind import settings
from hipfind.cli.conv_data import refuse_unread_files
from hipfind.cli.conv_print import print_run
from hipfind.cli.conv_run import run_conv, wanted_solver
from hipfind.cli.exits import WRONG_RESULT
from hipfind.cli.options import device_option, driver_options, json_option
from hipfind.cli.output import print_json
from hipfind.errors import ParseError
from hipfind.find.calls import command_of
from hipfind.problem.driver import DriverCommand
from hipfind.problem.driver_flags import BASES, FLAGS

_REFUSED = {"gpualloc": "inputs are made on the host, where the reference result is computed from them"}
"""MIOpenDriver's flags about a run that hipfind does not have, and why. Those about a problem are the parser's."""

_MAIN_NAMES = ("conv", "convfp16", "convbfp16")


def conv_commands() -> list[click.Command]:
    """One command a base argument of MIOpenDriver: they differ in the dtype. The rarer ones are not listed in help."""
    return [_command(base) for base in BASES]


def _command(base: str) -> click.Command:
    dtype = BASES[base].value
    help = _HELP if base == "conv" else f"As `hipfind conv`, on {dtype} data."

    @click.command(base, help=help, short_help=f"Run convolutions as MIOpenDriver does, {dtype}.",
                   hidden=base not in _MAIN_NAMES)  # fmt: skip
    @driver_options(FLAGS, _REFUSED)
    @click.option("--log-cmd", is_flag=True, help="Print the command of every call on stderr, as HIPFIND_LOG_CMD=1.")
    @device_option
    @json_option
    def conv(given: dict[str, str], log_cmd: bool, device: str | None, as_json: bool) -> int:
        command = DriverCommand.create(base, given)
        _refuse(command)
        solver, problems = wanted_solver(command), command.problems()
        refuse_unread_files(command, problems)
        runs = []
        with settings.override(log_cmd=True) if log_cmd else contextlib.nullcontext():
            for problem in problems:
                if command.print_problem and not as_json:
                    click.echo(command_of(problem))
                runs.append(run_conv(problem, command, solver, device))
                if not as_json:
                    print_run(runs[-1], command)
        if as_json:
            print_json([run.to_dict() for run in runs])
        return 0 if all(run.is_right for run in runs) else WRONG_RESULT

    return conv


_HELP = """Run convolutions on random fp32 data, as MIOpenDriver does: a line that MIOpen logs runs with "hipfind" in
place of "./bin/MIOpenDriver".

Without -S, Find chooses the solver and stores what it measured; the next run answers from the perf DB, and -s 1
measures every solver again. Each direction runs once more than -i says: the first run is not counted. Results are
compared with a float64 reference (-V 0: not); outputs are filled with NaN before, so what is not written fails. The
error and its limit are printed.

Tensors can be read from files (-d, -e, -D) and written to files (-o 1: dump_in.bin, dump_wei.bin, dump_dout.bin, and
dump_fwd_out, dump_bwd_din, dump_bwd_dwei with _gpu.bin for the result and _cpu.bin for the reference in fp32): plain
elements in memory order, as MIOpenDriver has them.

Exit codes: 0 all results are right (or were not verified), 1 it could not run, 2 wrong use, 3 a result is wrong, or
memory outside a buffer was written: the line that says FAILED names the direction."""


def _refuse(command: DriverCommand) -> None:
    for flag in FLAGS:
        value = command.values[flag.long]
        if flag.long in _REFUSED and value != flag.default:
            raise ParseError(f"--{flag.long} (-{flag.short}) is not supported: {_REFUSED[flag.long]}", got=f"{value}",
                             remedy=f"leave it at {flag.default!r}")  # fmt: skip
