"""Options that several commands share: the problem by MIOpenDriver's flags or by a key, device, limits, JSON."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Sequence
from typing import Any

import click

from hipfind import settings
from hipfind.cli import text
from hipfind.problem.base import Problem
from hipfind.problem.driver import DriverCommand
from hipfind.problem.driver_flags import BASES, PROBLEM_FLAGS, Flag
from hipfind.problem.keys import problem_of_key

AnyFunction = Callable[..., Any]

_BY_DTYPE = {dtype.value: base for base, dtype in BASES.items() if base != "convfp32"}  # which is conv
PREFIX = "flag_"
"""Marks the parameters that are MIOpenDriver's flags, which may not clash with a command's own."""


def driver_options(flags: tuple[Flag, ...], refused: Container[str] = ()) -> Callable[[AnyFunction], AnyFunction]:
    """Options for MIOpenDriver's flags; the function gets ``given``: the values as typed, by long name.

    Values stay text here: the driver command checks them, with one message for each rule. The help leaves out flags
    that take nothing but their default, and the ``refused`` ones.
    """

    def decorate(function: AnyFunction) -> AnyFunction:
        @functools.wraps(function)
        def call(**arguments: Any) -> Any:
            values = {flag.long: arguments.pop(PREFIX + flag.long) for flag in flags}
            return function(given={name: value for name, value in values.items() if value is not None}, **arguments)

        command: AnyFunction = call
        for flag in reversed(flags):
            command = _flag_option(flag, bool(flag.only) or flag.long in refused)(command)
        return command

    return decorate


def _flag_option(flag: Flag, hidden: bool) -> Callable[[AnyFunction], AnyFunction]:
    default = f"  [default: {flag.default}]" if flag.default != "" else ""
    return click.option(
        PREFIX + flag.long,
        f"--{flag.long}",
        f"-{flag.short}",
        metavar="INT" if flag.kind is int else "TEXT",
        help=flag.help + default,
        hidden=hidden,
    )


def problem_options(function: AnyFunction) -> AnyFunction:
    """The problem by flags and ``--dtype``, or by ``--key``; the function gets ``problems``, one a direction."""

    @driver_options(PROBLEM_FLAGS)
    @click.option("--dtype", type=click.Choice(tuple(_BY_DTYPE)), help="Element type.  [default: fp32]")
    @click.option("--key", help="Name the problem by a key instead: hipfind's own, or one of MIOpen's find-db.")
    @functools.wraps(function)
    def call(given: dict[str, str], dtype: str | None, key: str | None, **arguments: Any) -> Any:
        return function(problems=_problems(given, dtype, key), **arguments)

    return call


def _problems(given: dict[str, str], dtype: str | None, key: str | None) -> Sequence[Problem]:
    named = [f"--{name}" for name in given] + (["--dtype"] if dtype else [])
    if key is None:
        if not named:
            raise click.UsageError("a problem is named by flags, e.g. -n 64 -c 3 -H 224 -W 224 -k 64 ..., or by --key")
        return DriverCommand.create(_BY_DTYPE[dtype or "fp32"], given).problems()
    if named:
        raise click.UsageError(f"--key names the whole problem; leave out {', '.join(named)}")
    return [problem_of_key(key)]


def parse_bytes(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else text.parse_size(value)


workspace_limit_option = click.option(
    "--workspace-limit",
    metavar="SIZE",
    callback=parse_bytes,
    help="Leave out solvers that need more workspace, e.g. 32MiB.",
)
find_mode_option = click.option(
    "--find-mode",
    metavar="MODE",
    help=f"{', '.join(f'{name} ({number})' for name, number in settings.FIND_MODES.items())}."
    "  [default: HIPFIND_FIND_MODE]",
)
device_option = click.option(
    "--device", metavar="NAME", help="Device, e.g. host, hip:1, null:gfx942.  [default: HIPFIND_DEVICE]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
