"""Order of candidates by their expected time: what immediate mode answers when nothing was measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Estimate:
    """What is known of a candidate before it runs.

    ``wti`` is GetWti's answer (negative: unknown), ``expected_ms`` the time that follows from it, ``order`` the
    solver's place in the registry. ``hint_ms``: a time that another program measured for this algorithm on such a
    device; it stands in the place of the expected one.
    """

    solver_id: str
    wti: float
    expected_ms: float
    workspace_bytes: int
    order: int
    hint_ms: float | None = None

    @property
    def is_known(self) -> bool:
        return self.hint_ms is not None or (self.wti >= 0.0 and math.isfinite(self.expected_ms))

    @property
    def likely_ms(self) -> float:
        """The hint, else the expected time; of no meaning where neither is known."""
        return self.expected_ms if self.hint_ms is None else self.hint_ms


def rank(estimates: Iterable[Estimate]) -> tuple[Estimate, ...]:
    """Fastest expected first; ties by workspace, then registry order; unknown ones behind all known.

    A pure function of its input: no set or hash order, so every process ranks alike.
    """
    return tuple(
        sorted(
            estimates,
            key=lambda one: (
                not one.is_known,
                one.likely_ms if one.is_known else 0.0,
                one.workspace_bytes,
                one.order,
            ),
        )
    )
