"""Results of a benchmark as JSON and as a Markdown table, with the machine and the versions that they belong to."""

from __future__ import annotations

import datetime
import json
import pathlib
import platform
from collections.abc import Mapping, Sequence
from typing import Any


def machine(device_facts: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, str]:
    """Facts that a reader needs to judge the numbers."""
    return {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **device_facts,
        **versions,
    }


def write(
    path: pathlib.Path, title: str, facts: Mapping[str, str], rows: Sequence[Mapping[str, Any]], notes: str
) -> str:
    """Write ``path``.json and ``path``.md; returns the Markdown."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(
        json.dumps({"title": title, "facts": dict(facts), "rows": list(rows)}, indent=1)
    )
    lines = [f"# {title}", "", notes, ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", *markdown_table(rows), ""]
    text = "\n".join(lines)
    path.with_suffix(".md").write_text(text)
    return text


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of the rows' common columns, in the first row's order."""
    if not rows:
        return ["(no rows)"]
    columns = list(rows[0])
    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return head + ["| " + " | ".join(cell(row.get(name)) for name in columns) + " |" for row in rows]


def cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
