"""``hipfind devices``: what can run here. Each device computes a small convolution, checked against float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from hipfind import settings
from hipfind.cli import text
from hipfind.cli.conv_run import Prepared
from hipfind.cli.exits import FAILED
from hipfind.cli.options import json_option
from hipfind.cli.output import print_json
from hipfind.cli.table import Column, print_table
from hipfind.device.devices import DeviceInfo
from hipfind.errors import HipfindError
from hipfind.find import api
from hipfind.find.session import session_for
from hipfind.problem.conv import ConvProblem
from hipfind.problem.tolerance import Verdict

_COLUMNS = (
    Column("Device"),
    Column("Test"),
    Column("Target"),
    Column("Units", right=True, leave_out=2),
    Column("fp32 TFLOP/s", right=True, leave_out=3),
    Column("GB/s", right=True, leave_out=4),
    Column("Memory", right=True, leave_out=1),
    Column("What", wraps=True),
)


@dataclasses.dataclass(frozen=True)
class _Checked:
    """A device after its test; ``verdict`` and ``solver_id`` are there where it ran, ``reason`` where it did not."""

    info: DeviceInfo
    solver_id: str = ""
    verdict: Verdict | None = None
    reason: str = ""

    @property
    def works(self) -> bool:
        return self.verdict is not None and self.verdict.ok

    @property
    def what(self) -> str:
        """One sentence about the test."""
        if self.verdict is None:
            return self.reason
        sign, end = ("<", "") if self.verdict.ok else (">", ", wrong result")
        return f"{self.solver_id}: error {self.verdict.error:.1e} {sign} {self.verdict.limit:.1e}{end}"


@click.command("devices")
@json_option
def devices(as_json: bool) -> int:
    """List the devices that hipfind knows, and let each compute a small convolution that is checked in float64.

    PASS: it computes right. FAIL: it is here and does not. -: it cannot be used here, and why.
    """
    rows = [_check(info) for info in api.devices()]
    if as_json:
        print_json([_to_dict(row) for row in rows])
    else:
        print_table(_COLUMNS, [_row(row) for row in rows])
    return FAILED if any(row.info.available and not row.works for row in rows) else 0


def _check(info: DeviceInfo) -> _Checked:
    if not info.available:
        return _Checked(info, reason=info.reason)
    problem = ConvProblem.create("fwd", (2, 4, 9, 9), (6, 4, 3, 3), stride=2, pad=1)
    try:
        with settings.override(disable_user_db=True):
            choice = api.plan(problem, device=info.name).choice
            prepared = Prepared(problem, choice, session_for(info.name))
        prepared.run()
        return _Checked(info, choice.solver_id, prepared.verdict(prepared.read_output(), prepared.reference("")))
    except HipfindError as error:
        return _Checked(info, reason=str(error))


def _row(row: _Checked) -> list[str]:
    target = row.info.target
    test = "PASS" if row.works else "FAIL" if row.info.available else "-"
    if target is None:
        return [row.info.name, test, "-", "-", "-", "-", "-", text.one_line(row.what, 300)]
    return [
        row.info.name,
        test,
        f"{target.name} ({target.arch})",
        str(target.compute_units),
        f"{target.peak('fp32') / 1e12:.3g}",
        f"{target.bandwidth_gbs:.3g}",
        text.size(target.memory_bytes),
        text.one_line(row.what, 300),
    ]


def _to_dict(row: _Checked) -> dict[str, Any]:
    target = row.info.target
    return {
        "name": row.info.name,
        "available": row.info.available,
        "works": row.works,
        "reason": row.reason,
        "solver_id": row.solver_id,
        "error": row.verdict.error if row.verdict else None,
        "limit": row.verdict.limit if row.verdict else None,
        "target": dataclasses.asdict(target) if target else None,
    }
