"""Files that list problems: keys, MIOpenDriver command lines, MIOpen's find-db text, its logs, and YAML.

What a file is, is told by its content. Files of lines may mix all kinds of line: a driver command anywhere in a line
(as MIOpen logs it), a key of hipfind's or MIOpen's, alone or with "=" and a record behind it; "#" begins a comment. In
a log, which is a file where MIOpen says its name, other lines are passed over. See problem_yaml for YAML.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

from hipfind.errors import ParseError, ProblemError
from hipfind.problem.base import Problem
from hipfind.problem.driver import parse_command
from hipfind.problem.driver_flags import BASES
from hipfind.problem.keys import problem_of_key

_LOG = re.compile(r"\bMIOpen\(\w+\):|\[LogCmd\w+\]")
_COMMAND = re.compile(r"""(?:^|[\s/\\"'])(?:MIOpenDriver(?:\.exe)?|hipfind)["']?\s+(?P<base>[A-Za-z]\w*)""")
_KEY = re.compile(r"(?P<key>(?:conv|upsample|\d+)-[^\s=]+)(?:=.*)?", re.DOTALL)
_YAML = re.compile(r"---|[\[{]|- |-$|\w+\s*:(?:\s|$)")
_LEGAL = "a line is a MIOpenDriver command, a key of hipfind's or of MIOpen's find-db, or a comment (#)"


class Listed(NamedTuple):
    """A problem of a list, and where it stands, e.g. ``layers.txt:12``."""

    problem: Problem
    where: str


class Unread(NamedTuple):
    """A place in a list that could not be read, and why."""

    where: str
    error: ProblemError


@dataclasses.dataclass
class ProblemList:
    """What lists hold, in their order."""

    problems: list[Listed] = dataclasses.field(default_factory=list)
    errors: list[Unread] = dataclasses.field(default_factory=list)

    def add(self, other: ProblemList) -> None:
        self.problems += other.problems
        self.errors += other.errors

    def unique(self) -> list[Listed]:
        """Each problem where it stands first: two with one canonical key have one answer."""
        first: dict[str, Listed] = {}
        for one in self.problems:
            first.setdefault(one.problem.canonical().key(), one)
        return list(first.values())


def read_list(text: str, name: str) -> ProblemList:
    """The problems of a file's text; ``name`` is the file's, for the places. Never raises: see ``errors``."""
    lines = [line.strip() for line in text.split("\n")]
    is_log = any(_LOG.search(line) for line in lines)
    has_commands = any(_COMMAND.search(line) for line in lines if not line.startswith("- "))
    first = next((line for line in lines if line and not line.startswith("#")), "")
    if _YAML.match(first) and not (is_log or has_commands):
        from hipfind.problem.problem_yaml import read_yaml  # with PyYAML, which costs milliseconds

        return read_yaml(text, name)
    return _read_lines(lines, name, is_log)


def _read_lines(lines: Sequence[str], name: str, is_log: bool) -> ProblemList:
    found = ProblemList()
    for number, line in enumerate(lines, start=1):
        where = f"{name}:{number}"
        if not line or line.startswith("#") or (is_log and not _is_problem(line)):
            continue
        try:
            found.problems += [Listed(problem, where) for problem in problems_of_line(line)]
        except ProblemError as error:
            found.errors.append(Unread(where, error))
    return found


def _is_problem(line: str) -> bool:
    """Whether a log's line is a convolution's command or a key; logs hold other operations' commands, too."""
    command = _COMMAND.search(line)
    return command["base"].startswith("conv") if command else _KEY.fullmatch(line) is not None


def problems_of_line(line: str) -> Sequence[Problem]:
    """The problems of one line: several where a driver command asks for several directions. Raises ProblemError."""
    if _COMMAND.search(line) or line.split(maxsplit=1)[0] in BASES:
        return parse_command(line).problems()
    key = _KEY.fullmatch(line)
    if key is None:
        shown = line if len(line) <= 100 else f"{line[:97]}..."
        raise ParseError("this line names no problem", got=shown, remedy=_LEGAL)
    return [problem_of_key(key["key"])]
