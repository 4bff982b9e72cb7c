"""The perf config of the depthwise solvers: the tile that a thread computes, and how many it takes in turn."""

from __future__ import annotations

import dataclasses
import re

from hipfind.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class DepthwiseConfig:
    """A tile of ``rows`` x ``columns`` results of ``channels`` neighbouring channels that a thread keeps in registers.

    ``blocks``: thread blocks that a compute unit shall hold at once; the fewer, the more registers a thread may have.
    ``depth``: tiles that a thread takes in turn; the filter, or its gradient, stays in registers.
    """

    rows: int
    columns: int
    channels: int
    blocks: int
    depth: int

    def __str__(self) -> str:
        return f"tile={self.rows}x{self.columns}x{self.channels} blocks={self.blocks} depth={self.depth}"


def parse(solver_id: str, text: str) -> DepthwiseConfig:
    """Inverse of ``str``. Raises ConfigError."""
    found = re.fullmatch(r"tile=(\d{1,4})x(\d{1,4})x(\d{1,4}) blocks=(\d{1,4}) depth=(\d{1,9})", text)
    if found is None:
        raise ConfigError(f"a perf config of {solver_id} is written tile=RxCxN blocks=B depth=D", got=text)
    return DepthwiseConfig(*map(int, found.groups()))
