"""The ``hipfind`` command: a group of subcommands, one file each."""

from __future__ import annotations

import click

from hipfind.cli.conv import conv_commands
from hipfind.cli.db import db
from hipfind.cli.devices import devices
from hipfind.cli.exits import RootGroup
from hipfind.cli.explain import explain
from hipfind.cli.find import find
from hipfind.cli.immediate import immediate
from hipfind.cli.log import log_to_stderr
from hipfind.cli.solvers import solvers
from hipfind.cli.tune import tune
from hipfind.cli.upsample import upsample
from hipfind.version import VERSION


@click.group(cls=RootGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, message="hipfind %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Find the fastest solver of a convolution, run it, and look the answer up again.

    Problems are named by MIOpenDriver's flags. Exit codes: 0 it worked, 1 it failed, 2 wrong use, 3 a wrong
    result (conv), 130 interrupted.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        return
    context.with_resource(log_to_stderr())


for command in (find, immediate, explain, *conv_commands(), upsample, tune, solvers, devices, db):
    main.add_command(command)
