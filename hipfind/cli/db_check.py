"""``hipfind db check``: names the state of the perf DB, says what to do, and tells which records do not count."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import click

from hipfind.cli import text
from hipfind.cli.db_open import environments_here, path_option
from hipfind.cli.exits import FAILED
from hipfind.cli.options import json_option
from hipfind.cli.output import print_json
from hipfind.errors import ConfigError, UnknownSolverError
from hipfind.perfdb.checkup import MISSING, Checkup, examine
from hipfind.perfdb.layers import system_paths
from hipfind.perfdb.store import PerfDb
from hipfind.solvers.base import TunableSolver
from hipfind.solvers.registry import Registry, default_registry

_NOT_THERE = "take it out of HIPFIND_SYSTEM_DB_PATH, or put the file there"
_KINDS = (
    "SELECT {refused}, r.solver_id, r.solver_version, r.config, t.key, e.fingerprint, count(*) FROM {table} r "
    "JOIN targets t ON t.id = r.target JOIN environments e ON e.id = r.environment GROUP BY 1, 2, 3, 4, 5, 6"
)


@click.command("check")
@path_option
@json_option
def check(path: str | None, as_json: bool) -> int:
    """Name the state of the perf DB: ok, missing, older, invalid_records, locked, read_only, full, corrupt, ...

    Exit code 0: hipfind reads it and stores in it, or will make it. 1: it does not; what is wrong and what to do is
    printed. Nothing that is stored is changed. How many records count here, and why others do not, comes with it:
    those of another device, environment or solver version are kept for the day when they count again. Without --db
    the system files in force are checked, too.
    """
    found = examine(path)
    rows = _count(path) if found.facts else {}
    system = [_layer(examine(one, read_only=True)) for one in system_paths()] if path is None else []
    if as_json:
        print_json({**found.to_dict(), "records": rows, "system": [one.to_dict() for one in system]})
    else:
        _show(found, rows)
        for one in system:
            click.echo()
            _show(one, {})
    return 0 if found.is_usable and all(one.is_usable for one in system) else FAILED


def _layer(found: Checkup) -> Checkup:
    """A system file must be there: hipfind does not make it."""
    return dataclasses.replace(found, state="not_there", remedy=_NOT_THERE) if found.state == MISSING else found


def _show(found: Checkup, rows: dict[str, int]) -> None:
    lines = {"state": found.state, "path": found.path, "found": found.detail, "remedy": found.remedy}
    if found.facts:
        lines["size"] = text.size(found.facts["size_bytes"])
        lines["schema"] = str(found.facts["schema_version"])
        lines["journal"] = f"{found.facts['journal_mode']} (file system: {found.file_system or 'unknown'})"
    lines.update({name.replace("_", " "): str(count) for name, count in rows.items() if count})
    for name, value in lines.items():
        if value:
            click.echo(f"{name:<22}{value}")
    for name in found.beside:
        click.echo(f"{'kept beside it':<22}{name}")


def _count(path: str | None) -> dict[str, int]:
    """Find and perf records by whether they count here, and why not."""
    counts: collections.Counter[str] = collections.Counter(usable=0)
    registry = default_registry()
    with PerfDb.open(path, read_only=True) as db:
        here = environments_here(db)
        for table, refused in (("find_records", "0"), ("perf_records", "r.refused IS NOT NULL")):
            for is_refused, *kind, count in db.read(_KINDS.format(table=table, refused=refused)):
                counts["refused_config" if is_refused else _kind(registry, here, *kind)] += count
    return dict(counts)


def _kind(registry: Registry, here: dict[str, str], name: Any, version: Any, config: Any, target: str, env: str) -> str:
    try:
        solver = registry.get(name)
    except UnknownSolverError:
        return "unknown_solver"
    if version != solver.version:
        return "other_solver_version"
    if config:
        try:
            if not isinstance(solver, TunableSolver):
                return "invalid_config"
            solver.parse_config(config)
        except ConfigError:
            return "invalid_config"
    if target not in here:
        return "other_device"
    return "usable" if here[target] == env else "other_environment"
