"""``hipfind db browse``: opens a perf DB in Datasette, on this machine only."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from hipfind.cli.db_open import reads_db
from hipfind.errors import HipfindError
from hipfind.perfdb.store import PerfDb

LOOPBACK = "127.0.0.1"
_FACETS = {
    "results": ["solver", "outcome", "device", "direction", "dtype", "environment"],
    "tuned_configs": ["solver", "device", "direction", "dtype", "refused"],
    "reference_results": ["solver", "device", "direction", "dtype"],
    "problems": ["operation", "direction", "dtype", "layout", "filter", "stride"],
    "find_records": ["solver_id", "outcome", "target", "environment"],
    "perf_records": ["solver_id", "target", "environment"],
    "superseded": ["kind", "origin"],
}
_LABELS = {"problems": "key", "targets": "key", "environments": "fingerprint", "reference_sources": "name"}
_SORT = {"results": "time_ms", "tuned_configs": "time_ms", "reference_results": "time_ms"}
_LIMITS = {"facet_time_limit_ms": 5000, "sql_time_limit_ms": 20000, "default_page_size": 50}
"""A file of MIOpen's has 200,000 records, which Datasette's own limits are too short for."""
_WINS = """SELECT device, solver, count(*) AS wins, sum(time_ms) AS total_ms FROM results
WHERE outcome = 'won' GROUP BY device, solver ORDER BY wins DESC"""


@click.command("browse")
@click.option("--port", type=click.IntRange(0, 65535), default=8001, show_default=True, help="0: any free one.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@reads_db
def browse(db: PerfDb, port: int, no_open: bool) -> int:
    """Browse the DB in Datasette, with facets by solver, device, direction and element type. Ctrl-C ends it.

    Only this machine can reach it. Needs the extra "web".
    """
    if importlib.util.find_spec("datasette") is None:
        raise HipfindError("browsing needs Datasette, which is not installed", remedy="pip install 'hipfind[web]'")
    path = Path(db.path).resolve()
    with tempfile.TemporaryDirectory(prefix="hipfind-browse-") as folder:
        settings = Path(folder) / "metadata.json"
        settings.write_text(json.dumps(metadata(path.stem)), encoding="utf-8")
        return subprocess.call(command_line(path, settings, port, opens=not no_open))


def command_line(path: Path, settings: Path, port: int, *, opens: bool) -> list[str]:
    """How Datasette is started: by this Python, on the loopback address."""
    line = [sys.executable, "-m", "datasette", "serve", str(path), "--host", LOOPBACK, "--port", str(port)]
    for name, value in _LIMITS.items():
        line += ["--setting", name, str(value)]
    return [*line, "--metadata", str(settings), *(["--open"] if opens else [])]


def metadata(name: str) -> dict[str, Any]:
    """Datasette's metadata for a database of this name: facets, labels and a first question."""
    tables: dict[str, dict[str, Any]] = {table: {"facets": facets} for table, facets in _FACETS.items()}
    for table, column in _LABELS.items():
        tables.setdefault(table, {})["label_column"] = column
    for table, column in _SORT.items():
        tables[table]["sort"] = column
    queries = {"wins_by_solver": {"title": "Wins by solver", "sql": _WINS}}
    return {"title": "hipfind perf DB", "databases": {name: {"tables": tables, "queries": queries}}}
