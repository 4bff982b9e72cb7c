"""Tiles of the block solver: all of dx is covered, and nothing is larger than the kernel's arrays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipfind.kernels.spec import BLOCK
from hipfind.problem import DType, UpsampleProblem
from hipfind.problem.upsample import Axis
from hipfind.solvers.upsample.coordinates import coordinates
from hipfind.solvers.upsample.planes import Planes, Steps
from hipfind.solvers.upsample.tiling import room_of, tiling_of
from hipfind.target import KNOWN_TARGETS, known

NO_STEPS = Steps(0, 0, 0, 0)
SIZES = st.integers(1, 40) | st.integers(1, 20_000)


@given(
    sizes=st.tuples(SIZES, SIZES, SIZES, SIZES),
    align_corners=st.booleans(),
    total=st.integers(1, 20_000),
    inner=st.sampled_from((1, 3, 8, 19, 32, 64)),
    dtype=st.sampled_from((DType.FP32, DType.BF16, DType.FP64)),
    target=st.sampled_from(KNOWN_TARGETS),
)
def test_every_tile_has_room(
    sizes: tuple[int, int, int, int], align_corners: bool, total: int, inner: int, dtype: DType, target: object
) -> None:
    target = known(getattr(target, "arch", ""))
    h, w = (coordinates(Axis(size, out, None, align_corners)) for size, out in (sizes[:2], sizes[2:]))
    room = room_of(target, dtype)
    line = room.line or 1
    alignment = 1 if target.is_host else line
    pack = line if inner % line == 0 else 1
    tiling = tiling_of(target, room, h, w, Planes(total, 1, inner, NO_STEPS, NO_STEPS), pack, alignment)

    assert 1 <= tiling.tile_h <= min(room.tile_h, h.size) and 1 <= tiling.tile_w <= min(room.tile_w, w.size)
    tiles = -(-h.size // tiling.tile_h) * -(-w.size // tiling.tile_w)
    assert tiling.groups == tiles * tiling.chunks * -(-total // tiling.planes_per_group)
    assert -(-h.span(tiling.tile_h) // tiling.chunks_h) <= room.rows
    columns = -(-w.span(tiling.tile_w) // tiling.chunks_w)
    assert columns + alignment - 1 <= room.columns
    slots = 2 if target.is_host else tiling.tile_h * tiling.parts_h
    assert slots * room.pitch(columns, inner, alignment) <= room.sums
    if not target.is_host and tiling.parts_w > 1:
        assert tiling.tile_h * tiling.tile_w * inner * tiling.parts_w <= room.scratch
    assert 1 <= tiling.row_groups <= tiling.tile_h


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_few_pixels_keep_a_gpu_busy(arch: str) -> None:
    """32 x 32 pixels of 3 channels, and a single pixel, from a million elements each."""
    target = known(arch)
    for dx in ((1, 3, 32, 32), (1, 1, 1, 1)):
        problem = UpsampleProblem.create("bwd", dx, (*dx[:2], 1024, 1024))
        h, w = (coordinates(axis) for axis in problem.axes)
        room = room_of(target, DType.FP32)
        tiling = tiling_of(target, room, h, w, Planes(dx[1], dx[1], 1, NO_STEPS, NO_STEPS), 1, room.line)
        assert tiling.groups >= target.compute_units
        lines = room.pitch(w.span(tiling.tile_w) // tiling.chunks_w, 1, 1) // room.line
        members = tiling.tile_h * tiling.parts_h * lines
        assert tiling.groups * members >= target.compute_units * BLOCK // 2
