"""The lists of solvers and devices."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hipfind.problem.conv import ConvProblem
from hipfind.solvers.registry import default_registry
from tests.cli.conftest import Cli


def test_solvers_are_listed_in_the_registry_order(cli: Cli) -> None:
    rows = json.loads(cli("solvers", "--json").stdout)
    assert [row["solver_id"] for row in rows] == [one.SolverDbId() for one in default_registry().solvers]
    lines = cli("solvers").stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [row["solver_id"] for row in rows]


def test_directions_are_those_of_the_names(cli: Cli) -> None:
    rows = {row["solver_id"]: row for row in json.loads(cli("solvers", "--json").stdout)}
    named = {name: re.findall("Fwd|Bwd|Wrw", name) for name in rows}
    assert sum(map(bool, named.values())) > 8
    for name, directions in named.items():
        if directions and rows[name]["operation"] == "conv":
            assert rows[name]["directions"] == [direction.lower() for direction in directions], name


def test_each_device_computes_and_says_so(cli: Cli, db_path: Path) -> None:
    rows = json.loads(cli("devices", "--json").stdout)
    host = next(row for row in rows if row["name"] == "host")
    assert host["works"] is True
    assert 0 <= host["error"] <= host["limit"]
    assert host["target"]["vendor"] == "host"
    shown = cli("devices")
    assert shown.exit_code == 0
    assert re.search(r"^host\s+PASS", shown.stdout, re.MULTILINE)
    assert not db_path.exists()


def test_a_device_that_computes_wrongly_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ConvProblem.reference
    monkeypatch.setattr(ConvProblem, "reference", lambda problem, arrays: right(problem, arrays) * 1.5)
    shown = cli("devices")
    assert shown.exit_code == 1
    assert re.search(r"^host\s+FAIL\s.*wrong result", shown.stdout, re.MULTILINE)
