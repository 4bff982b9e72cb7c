"""``hipfind db prune-kernels``: give back the disk space of compiled kernels that nobody used for long."""

from __future__ import annotations

import math
import time
from typing import Any

import click

from hipfind.cli import text
from hipfind.cli.exits import FAILED, complain
from hipfind.cli.options import json_option, parse_bytes
from hipfind.cli.output import print_json
from hipfind.device.kernel_cache import CacheFile, kernel_cache, old_files

_DAY_S = 86400.0


def cache_facts() -> dict[str, Any]:
    """Where compiled kernels are kept, how many there are and how much room they take; ``error`` where unreadable."""
    cache = kernel_cache()
    facts: dict[str, Any] = {"path": str(cache.directory) if cache.directory is not None else None}
    try:
        files = cache.files()
    except OSError as error:
        return {**facts, "files": None, "size_bytes": None, "error": str(error)}
    return {**facts, "files": len(files), "size_bytes": _sum(files), "error": None}


def cache_line(facts: dict[str, Any]) -> str:
    """The facts for people."""
    if facts["path"] is None:
        return "none (kept in memory)"
    if facts["error"] is not None:
        return f"{facts['path']}: {facts['error']}"
    return f"{facts['path']}, {facts['files']} files, {text.size(facts['size_bytes'])}"


@click.command("prune-kernels")
@click.option(
    "--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Remove what was not used for so long."
)
@click.option(
    "--max-size", metavar="SIZE", callback=parse_bytes, help="Remove the least recently used beyond, e.g. 500MiB."
)
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@json_option
def prune_kernels(older_than: float | None, max_size: int | None, dry_run: bool, as_json: bool) -> int:
    """Remove compiled kernels from the cache (HIPFIND_CACHE_DIR). What is needed again is compiled again.

    Running processes keep the kernels that they have loaded.
    """
    if older_than is None and max_size is None:
        raise click.UsageError("say what may go: --older-than DAYS, --max-size SIZE, or both")
    cache = kernel_cache()
    limits = {
        "older_than_s": math.inf if older_than is None else older_than * _DAY_S,
        "most_bytes": math.inf if max_size is None else float(max_size),
    }
    try:
        before = cache.files()
        gone = old_files(before, **limits, now=time.time())
        if not dry_run:
            gone = cache.remove(gone)
    except OSError as error:
        complain(f"the kernel cache cannot be pruned (got {error}); check the permissions of {cache.directory}")
        return FAILED
    kept = len(before) - len(gone)
    if as_json:
        print_json({"path": str(cache.directory), "dry_run": dry_run, "removed": len(gone),
                    "removed_bytes": _sum(gone), "kept": kept, "kept_bytes": _sum(before) - _sum(gone)})  # fmt: skip
    else:
        verb = "would remove" if dry_run else "removed"
        click.echo(f"{verb} {len(gone)} of {len(before)} files, {text.size(_sum(gone))} of {text.size(_sum(before))}")
    return 0


def _sum(files: list[CacheFile]) -> int:
    return sum(file.nbytes for file in files)
