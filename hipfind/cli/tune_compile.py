"""``hipfind tune --compile-only``: fill the kernel cache for a list of problems, also for a device that is not here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from hipfind.cli import text
from hipfind.cli.exits import complain
from hipfind.cli.output import print_json
from hipfind.cli.progress import count_progress
from hipfind.device.kernel_cache import CacheFile, kernel_cache
from hipfind.find.session import Session
from hipfind.find.tuning import compile_all
from hipfind.problem.problem_list import ProblemList

_SHOWN = 20


def compile_list(listed: ProblemList, session: Session, all_configs: bool, as_json: bool) -> bool:
    """Compile the solutions of every problem, print counts and sizes; True where a kernel failed."""
    problems = [one.problem for one in listed.unique()]
    before = {file.path for file in _files()}
    with count_progress("compiling kernels") as show:
        done = compile_all(problems, session, all_configs=all_configs, on_done=show)
    after = list(_files())
    new = [file for file in after if file.path not in before]
    facts: dict[str, Any] = {
        "device": session.device.name,
        "problems": len(problems),
        "solutions": done.solutions,
        "kernels": done.kernels,
        "new_files": len(new),
        "new_bytes": sum(file.nbytes for file in new),
        "cache": str(kernel_cache().directory) if kernel_cache().directory is not None else None,
        "cache_files": len(after),
        "cache_bytes": sum(file.nbytes for file in after),
        "failures": list(done.failures),
        "unread": [{"where": where, "error": str(error)} for where, error in listed.errors],
    }
    for failure in done.failures[:_SHOWN]:
        complain(text.one_line(failure, 400))
    if as_json:
        print_json(facts)
    else:
        _print(facts)
    return bool(done.failures)


def _files() -> Iterator[CacheFile]:
    try:
        yield from kernel_cache().files()
    except OSError:  # the cache itself warns, and keeps code in memory
        return


def _print(facts: dict[str, Any]) -> None:
    cache, size = facts["cache"] or "in memory only", text.size(facts["cache_bytes"])
    lines = {
        "device": facts["device"],
        "problems": f"{facts['problems']}, {facts['solutions']} solutions",
        "kernels": f"{facts['kernels']}, {len(facts['failures'])} failed",
        "new": f"{facts['new_files']} files, {text.size(facts['new_bytes'])}",
        "cache": f"{cache}, {facts['cache_files']} files, {size}",
    }
    for name, value in lines.items():
        click.echo(f"{name:<10}{value}")
