"""What every failure of the command line looks like: one message on stderr and an exit code, never a traceback.

Exit codes: 0 it worked; 1 it was understood and failed; 2 wrong use (nothing was run or stored); 3 a computed result is
wrong (``hipfind conv``); 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from hipfind.errors import HipfindError, ProblemError, SettingError, UnknownSolverError

FAILED = 1
WRONG_USE = 2
WRONG_RESULT = 3
INTERRUPTED = 130

_WRONG_USE_ERRORS = (ProblemError, SettingError, UnknownSolverError)


class RootGroup(click.Group):
    """The command group that turns errors with a name into messages. Commands return their exit code, or None for 0."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        def run() -> Any:
            return super(RootGroup, self).main(args, prog_name, complete_var, standalone_mode=False, **extra)

        if not standalone_mode:
            return run()
        with _plain_warnings():
            sys.exit(_exit_code(run))


def _exit_code(run: Callable[[], Any]) -> int:
    """Run a command; an error with a name becomes a message and its exit code."""
    try:
        code = run()
        sys.stdout.flush()
    except click.UsageError as error:
        complain(_with_help(error))
        return WRONG_USE
    except click.ClickException as error:
        complain(error.format_message())
        return error.exit_code
    except _WRONG_USE_ERRORS as error:
        complain(str(error))
        return WRONG_USE
    except HipfindError as error:
        complain(str(error))
        return FAILED
    except MemoryError as error:
        complain(f"not enough memory: {error}")
        return FAILED
    except click.Abort:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return FAILED
    return code if isinstance(code, int) else 0


def complain(message: str) -> None:
    """One error message on stderr."""
    click.echo(f"hipfind: error: {message}", err=True)


def _with_help(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    return f"{message}; see `{error.ctx.command_path} --help`" if error.ctx is not None else message


def _drop_stdout() -> None:
    """The reader of our output has gone: what is still buffered goes nowhere, so that the exit stays quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings as one line for people, without the file and line that raised them."""

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        click.echo(f"hipfind: warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
