"""What optimize did to a model: its decisions, module by module, as a table for people and as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from hipfind.torch.modules import is_swapped, swap_back
from hipfind.torch.racing import Timing
from hipfind.torch.recording import AnyCall
from hipfind.torch.whole import StepTimes

_HEAD = ("module", "call", "direction", "torch ms", "hipfind ms", "gain", "by", "solver")


@dataclasses.dataclass(frozen=True)
class Decision:
    """One module's fate and the reason. ``by_torch``: the directions of a swapped module that stay torch's.

    ``calls``: what it was called with and how often; ``timings``: of each direction of each call, in that order.
    """

    module: str
    kind: str
    reason: str
    is_swapped: bool = False
    by_torch: tuple[str, ...] = ()
    calls: tuple[tuple[AnyCall, int], ...] = ()
    timings: tuple[Timing, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {
            "module": self.module,
            "kind": self.kind,
            "swapped": self.is_swapped,
            "reason": self.reason,
            "by_torch": list(self.by_torch),
            "calls": [call.describe() for call, _ in self.calls],
            "timings": [{**dataclasses.asdict(one), "gain": one.gain} for one in self.timings],
        }


class Report:
    """The decisions of one optimize, and notes for people. ``print(report)`` shows them; ``undo`` takes them back.

    ``step``: times of a whole step of the model, None where none was timed.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        decisions: Sequence[Decision],
        notes: Sequence[str] = (),
        step: StepTimes | None = None,
    ) -> None:
        self.decisions = tuple(decisions)
        self.notes = tuple(notes)
        self.step = step
        modules = dict(model.named_modules())
        self._swapped = [modules[one.module] for one in decisions if one.is_swapped]

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the modules that hipfind does now."""
        return tuple(one.module for one in self.decisions if one.is_swapped)

    @property
    def left(self) -> dict[str, str]:
        """Names of the modules that stay torch's, with the reason."""
        return {one.module: one.reason for one in self.decisions if not one.is_swapped}

    def undo(self) -> None:
        """Give the modules that were changed back to torch."""
        for module in self._swapped:
            if is_swapped(module):
                swap_back(module)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {
            "decisions": [one.to_dict() for one in self.decisions],
            "notes": list(self.notes),
            "step": None if self.step is None else dataclasses.asdict(self.step),
        }

    def __str__(self) -> str:
        swapped = [one for one in self.decisions if one.is_swapped]
        left = [one for one in self.decisions if not one.is_swapped]
        parts = [f"{len(swapped)} module{'' if len(swapped) == 1 else 's'} by hipfind, {len(left)} left as they were"]
        if self.step is not None:
            parts.append(f"a whole step: {self.step}")
        rows = [row for group in _alike(self.decisions) for row in _rows(group)]
        if rows:
            parts += ["", *_table([_HEAD, *rows])]
        for title, decisions in (("by hipfind:", swapped), ("left:", left)):
            if decisions:
                lines = [(_names(group), group[0].kind, group[0].reason) for group in _alike(decisions)]
                parts += ["", title, *("  " + line for line in _table(lines))]
        for note in self.notes:
            parts += ["", note]
        return "\n".join(parts)


def _alike(decisions: Sequence[Decision]) -> list[list[Decision]]:
    """Decisions that differ in the module's name alone, together, in the order of the first."""
    groups: dict[Any, list[Decision]] = {}
    for one in decisions:
        groups.setdefault(dataclasses.replace(one, module=""), []).append(one)
    return list(groups.values())


def _names(group: Sequence[Decision]) -> str:
    name = group[0].module or "(the model itself)"
    return name if len(group) == 1 else f"{name} and {len(group) - 1} more"


def _rows(group: Sequence[Decision]) -> list[tuple[str, ...]]:
    decision = group[0]
    rows: list[tuple[str, ...]] = []
    timings = iter(decision.timings)
    for call, _ in decision.calls:
        for direction in call.directions if decision.timings else ():
            one = next(timings)
            is_ours = decision.is_swapped and direction not in decision.by_torch
            ours = f"{one.hipfind_ms:.4g}" if one.hipfind_ms is not None else "-"
            rows.append(
                (_names(group), call.describe(), direction, f"{one.torch_ms:.4g}", ours, f"{one.gain:.2f}",
                 "hipfind" if is_ours else "torch", one.solver_id)
            )  # fmt: skip
    return rows


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their longest cell; a column of numbers is aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numbers = [all(cell[:1].isdigit() or cell == "-" for cell in column[1:]) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = zip(row, widths, numbers, strict=True)
        padded = (cell.rjust(width) if is_number else cell.ljust(width) for cell, width, is_number in cells)
        lines.append("  ".join(padded).rstrip())
    return lines
