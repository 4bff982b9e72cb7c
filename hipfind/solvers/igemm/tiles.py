"""Perf config of the kernels for matrix cores: the output tile of a program, how it is computed, and what is valid.

A program multiplies tiles of ``m`` x ``k`` and ``k`` x ``n`` elements, with ``stages`` of them under way in shared
memory, and keeps the m x n sums in the registers of ``warps`` waves. A long sum can be cut into ``split`` parts,
which a second kernel adds up.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from hipfind.errors import ConfigError
from hipfind.solvers.reasons import APPLICABLE, Applicability, Reason, no
from hipfind.target import Target

_TEXT = re.compile(r"m=(\d{1,4}),n=(\d{1,4}),k=(\d{1,4}),split=(\d{1,4}),warps=(\d{1,2}),stages=(\d{1,2})")
_M = (32, 64, 128, 256)
_N = (16, 32, 64, 128, 256)
_K = (16, 32, 64, 128)
SMALLEST = _M[0], _N[0]
"""Rows and columns of the smallest tile."""
WIDEST = _N[-1]
"""Columns of the widest tile."""
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_WARPS = (4, 8)
_STAGES = {"nvidia": (2, 3, 4, 5), "amd": (1, 2)}
_MOST_SUMS = {"nvidia": 128, "amd": 64}
"""Sums of a lane that fit the registers beside the rest."""
_FEWEST_SUMS = 256
"""Sums of a wave below which it only waits for operands."""
_RESERVED_LDS = 1024
_MOST_TRIED = 64
_HOPELESS = 3.0
"""Configs that are expected to take this many times the best one's time are not tried."""
# the model of the machine: cycles, bytes, registers; see ``cost``
_OTHER_REGISTERS = 60
_MOST_REGISTERS = 255
_REGISTERS_OF_UNIT = 65536
_LANES_OF_UNIT = 2048
_HALF_RATE_COLUMNS = 40
_FEW_ROWS_SHARE = 0.77
_MULTIPLICATIONS = 4096
_BYTES_A_CYCLE = 50
_LATENCY = 1800
_START = 770
_STORE = 0.13
_SUM_START = 3000
_SUM = 0.043


@dataclasses.dataclass(frozen=True)
class TileConfig:
    """Tile of the output (m x n), of the sum (k), parts of the sum, waves of a program, loads under way."""

    m: int
    n: int
    k: int
    split: int = 1
    warps: int = 4
    stages: int = 2

    def __str__(self) -> str:
        return f"m={self.m},n={self.n},k={self.k},split={self.split},warps={self.warps},stages={self.stages}"

    @classmethod
    def parse(cls, text: str, solver_id: str) -> TileConfig:
        """Inverse of ``str``. Raises ConfigError."""
        found = _TEXT.fullmatch(text)
        if found is None:
            written = "m=M,n=N,k=K,split=S,warps=W,stages=D"
            raise ConfigError(f"a perf config of {solver_id} is written {written}", got=text)
        return cls(*(int(number) for number in found.groups()))


class Product(NamedTuple):
    """The matrix product behind a solution: its sizes and how many there are.

    ``itemsize``: bytes of an element; ``parts``: most parts of the sum; ``deepest`` and ``widest``: what a tile of the
    sum, and of the columns, must divide (0: anything).
    """

    m: int
    n: int
    k: int
    batch: int
    itemsize: int
    parts: int = 1
    deepest: int = 0
    widest: int = 0


def check(target: Target, product: Product, config: TileConfig) -> Applicability:
    """Whether a config fits the target's shared memory and registers, and the product's sizes."""
    wanted = (
        ("m", config.m, _M), ("n", config.n, _N), ("k", config.k, _K), ("split", config.split, _SPLITS),
        ("warps", config.warps, _WARPS), ("stages", config.stages, _STAGES.get(target.vendor, ())),
    )  # fmt: skip
    for name, value, legal in wanted:
        if value not in legal:
            return no(Reason.CONFIG, f"{name} {value}, legal: {', '.join(map(str, legal))}")
    if config.split > product.parts:
        return no(Reason.CONFIG, f"split {config.split}, at most {product.parts} parts here")
    if product.deepest and product.deepest % config.k:
        return no(Reason.CONFIG, f"k {config.k} does not divide {product.deepest}")
    if product.widest and product.widest % config.n:
        return no(Reason.CONFIG, f"n {config.n} does not divide {product.widest}")
    shared = shared_bytes(target, product, config)
    if shared > target.lds_bytes - _RESERVED_LDS:
        return no(Reason.CONFIG, f"{shared} bytes of shared memory, {target.lds_bytes} here")
    sums, most = config.m * config.n // (config.warps * target.wave_size), _MOST_SUMS[target.vendor]
    if not _FEWEST_SUMS <= sums * target.wave_size <= most * target.wave_size:
        return no(Reason.CONFIG, f"{sums} sums a lane, legal: {_FEWEST_SUMS // target.wave_size} to {most}")
    return APPLICABLE


def shared_bytes(target: Target, product: Product, config: TileConfig) -> int:
    """Shared memory of a program: the tiles under way, or the output tile on its way out."""
    stages = config.stages if target.vendor == "nvidia" else max(config.stages - 1, 1)
    return max(stages * (config.m + config.n) * config.k * product.itemsize, config.m * config.n * product.itemsize)


def every(target: Target, product: Product) -> Iterator[TileConfig]:
    """Valid configs that the model of the machine gives a chance, the most promising first."""
    stages = _STAGES.get(target.vendor, ())
    found = []
    for m, n, k, split, warps, depth in itertools.product(_M, _N, _K, _SPLITS, _WARPS, stages):
        if _is_wasteful(m, product.m, _M) or _is_wasteful(n, product.n, _N) or _is_wasteful(k, product.k, _K):
            continue
        if split > 1 and math.ceil(product.k / k) < 2 * split:
            continue
        config = TileConfig(m, n, k, split, warps, depth)
        if check(target, product, config):
            found.append((cost(target, product, config), config))
    found.sort(key=lambda pair: pair[0])
    return (config for time, config in found[:_MOST_TRIED] if time <= _HOPELESS * found[0][0])


def _is_wasteful(tile: int, extent: int, sizes: tuple[int, ...]) -> bool:
    """Whether the next smaller tile would already cover all of the extent."""
    return tile > sizes[0] and tile // 2 >= extent


def programs(product: Product, config: TileConfig) -> int:
    """Programs of a launch."""
    return math.ceil(product.m / config.m) * math.ceil(product.n / config.n) * product.batch * config.split


@functools.lru_cache(maxsize=4096)
def default(target: Target, product: Product) -> TileConfig:
    """The valid config of a short list with the least cost."""
    return min(_shortlist(target, product), key=lambda config: cost(target, product, config))


_SHORT = (
    (256, 128, 8), (128, 256, 8), (128, 128, 8), (128, 128, 4), (64, 256, 4), (256, 64, 8), (256, 64, 4), (64, 128, 4),
    (128, 64, 4), (64, 64, 4), (128, 32, 4), (32, 128, 4), (256, 16, 8), (128, 16, 4), (64, 32, 4), (32, 64, 4),
    (32, 32, 4),
)  # fmt: skip
"""Tiles and waves that a default is chosen from."""


def _shortlist(target: Target, product: Product) -> list[TileConfig]:
    """Each tile with a few depths of the sum and of the pipeline, and with splits up to a few programs a unit."""
    depths = _STAGES.get(target.vendor, (2,))[-3:]
    sums = (32, 16) if target.vendor == "amd" and target.wave_size == 32 else (64, 32, 16)  # RDNA spills above 32
    found = []
    for m, n, warps in _SHORT:
        whole = programs(product, TileConfig(m, n, 16))
        splits = [split for split in _SPLITS if split <= min(product.parts, 3 * target.compute_units // whole)]
        for k, split, depth in itertools.product(sums, {1, *splits[-3:]}, depths):
            config = TileConfig(m, n, k, split, warps, depth)
            if check(target, product, config) and (k == 16 or not _is_wasteful(k, product.k, _K)):
                found.append(config)
    return found


def cost(target: Target, product: Product, config: TileConfig) -> float:
    """Expected time in cycles, for comparison.

    A unit works on the programs that its registers and shared memory hold at a time. These share its matrix cores and
    its path to memory; one alone waits for each load as long as its pipeline is not deep enough. The constants are
    fitted to 3,900 measurements on an H200; for other devices they are a guess.
    """
    steps = math.ceil(math.ceil(product.k / config.k) / config.split)
    elements, lanes = config.m * config.n, config.warps * target.wave_size
    registers = min(elements / lanes + _OTHER_REGISTERS, _MOST_REGISTERS)
    at_once = max(1, int(min(
        target.lds_bytes / (shared_bytes(target, product, config) + _RESERVED_LDS),
        _REGISTERS_OF_UNIT / (registers * lanes), _LANES_OF_UNIT / lanes,
    )))  # fmt: skip
    share = (
        config.n / (config.n + _HALF_RATE_COLUMNS) * (_FEW_ROWS_SHARE if config.warps == 4 and config.m < 128 else 1)
    )
    step = max(
        elements * config.k * 2 / (_MULTIPLICATIONS * share),
        (config.m + config.n) * config.k * product.itemsize / _BYTES_A_CYCLE,
    )
    alone = _START + steps * max(step, _LATENCY / max(config.stages - 1, 0.5)) + _STORE * elements
    count = programs(product, config)
    rounds, rest = divmod(count, target.compute_units * at_once)
    together = math.ceil(rest / target.compute_units)
    shared_work = steps * step + _STORE * elements
    time = rounds * max(alone, at_once * shared_work) + (max(alone, together * shared_work) if rest else 0.0)
    if config.split > 1:
        sums = config.split * product.m * product.n * product.batch
        time += _SUM_START + _SUM * sums / target.compute_units
    return time
