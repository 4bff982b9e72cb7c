"""Writes docs/settings.md and docs/cli.md from the code: ``python docs/generate.py``. A test checks that they agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hipfind import settings
from hipfind.cli.main import main
from hipfind.cli.options import PREFIX
from hipfind.problem.driver_flags import PROBLEM_FLAGS

_GENERATED = "<!-- Made from the code by docs/generate.py (make docs). Do not edit. -->"
_LOG = (
    "## The log",
    "",
    "hipfind logs through Python's `logging` under the logger `hipfind` and is silent until the program asks:",
    '`logging.basicConfig(); logging.getLogger("hipfind").setLevel(logging.INFO)`. At INFO, Find, immediate mode and',
    "plans say one line for each decision:",
    "",
    "```text",
    "find problem=conv-fwd-n2-c3-k4-... device=host solver=GemmFwdRest time_ms=0.0187 source=measured now",
    "```",
    "",
    "`source` is one of `measured now`, `user DB`, `system DB`, `nearest device`, `MIOpen's records`, `WTI`,",
    "`trivial`. What a numerics check finds comes under `hipfind.numerics`.",
)
_OPTION_HEAD = ("| option | value | meaning |", "| --- | --- | --- |")


def settings_page() -> str:
    """The page of HIPFIND_* variables."""
    rows = [
        f"| `{field.metadata['env']}` | {_default(field.default)} | {_cell(field.metadata['help'])} |"
        for field in settings.fields()
    ]
    return "\n".join(
        [
            "# Settings",
            "",
            _GENERATED,
            "",
            "Environment variables, read once, at first use. A value that is not legal is an error; a name that is not",
            'in this table is ignored with a warning. `hipfind.settings.override(find_mode="normal")` changes values',
            "for a block of Python code and for the current thread or task only; the names there are the variables'",
            "in lower case without `HIPFIND_`.",
            "",
            "| variable | default | meaning |",
            "| --- | --- | --- |",
            *rows,
            "",
            *_LOG,
            "",
        ]
    )


def cli_page() -> str:
    """The page of commands and their options."""
    problem = {PREFIX + flag.long for flag in PROBLEM_FLAGS}
    lines = [
        "# Command line",
        "",
        _GENERATED,
        "",
        "`hipfind COMMAND [OPTIONS]`, or `python -m hipfind COMMAND [OPTIONS]`. Every command has `--json`. Tables and",
        "progress bars are drawn for terminals; piped output is plain text, one line a row. Exit codes: 0 it worked,",
        "1 it failed, 2 wrong use (nothing was run or stored), 3 a computed result is wrong (`conv`), 130 interrupted.",
        "Errors go to stderr, and so does the log (`HIPFIND_LOG_LEVEL`).",
    ]
    for path, command in _commands("hipfind", main):
        options = [option for option in command.params if not getattr(option, "hidden", False)]
        own = [option for option in options if option.name not in problem]
        lines += ["", f"## {path}", "", _paragraphs(command.help or "")]
        if "As `hipfind conv`" in lines[-1]:
            continue
        if len(own) < len(options):
            lines += ["", "Takes the [problem flags](#problem-flags), and:"]
        lines += ["", *_OPTION_HEAD, *map(_option_row, own)]
    shared = [option for option in main.commands["find"].params if option.name in problem]
    lines += ["", "## Problem flags", "", "MIOpenDriver's, with its defaults.", "", *_OPTION_HEAD]
    return "\n".join([*lines, *(_option_row(option) for option in shared if not getattr(option, "hidden", False)), ""])


def _commands(path: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from _commands(f"{path} {name}", command)
        else:
            yield f"{path} {name}", command


def _option_row(option: click.Parameter) -> str:
    if isinstance(option, click.Argument):
        return f"| `{(option.metavar or option.name or '').upper()}` | | |"
    assert isinstance(option, click.Option)
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return f"| {names} | {_value_of(option)} | {_cell(option.help or '')} |"


def _value_of(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return ", ".join(f"`{choice}`" for choice in option.type.choices)
    return f"`{(option.metavar or option.type.name).upper()}`"


def _default(value: Any) -> str:
    shown = ", ".join(value) if isinstance(value, tuple) else str(int(value)) if isinstance(value, bool) else str(value)
    return f"`{shown}`" if shown else "(empty)"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.replace("\b", "").split("\n\n"))


PAGES = {"settings.md": settings_page, "cli.md": cli_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (Path(__file__).parent / name).write_text(page(), encoding="utf-8")
