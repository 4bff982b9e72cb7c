"""Strips: all of dx is covered, nothing is larger than the kernel's arrays, and members are counted right."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hipfind.kernels.spec import BLOCK
from hipfind.problem import UpsampleProblem
from hipfind.problem.upsample import Axis
from hipfind.solvers.reasons import Reason
from hipfind.solvers.upsample.coordinates import coordinates
from hipfind.solvers.upsample.strip import UpsampleBwdStrip
from hipfind.solvers.upsample.strip_tiling import ROWS, TILE_W, strip_tiling
from hipfind.target import known

GPU = known("sm_90")
SIZES = st.integers(1, 40) | st.integers(1, 20_000)


@given(
    sizes=st.tuples(SIZES, SIZES, SIZES, SIZES),
    align_corners=st.booleans(),
    planes=st.integers(1, 20_000),
    inner=st.sampled_from((1, 3, 8, 19, 32, 64, 255)),
    line=st.sampled_from((2, 4, 8)),
    units=st.sampled_from((1, 104, 304)),
)
@example(sizes=(5, 854, 1, 1), align_corners=False, planes=1, inner=1, line=2, units=1)  # only single rows fit
@settings(max_examples=200, deadline=None)
def test_every_strip_has_room(
    sizes: tuple[int, int, int, int], align_corners: bool, planes: int, inner: int, line: int, units: int
) -> None:
    h, w = (coordinates(Axis(size, out, None, align_corners)) for size, out in (sizes[:2], sizes[2:]))
    pack, alignment = (4 if inner % 4 == 0 and line >= 4 else 1), line // math.gcd(line, inner)
    tiling = strip_tiling(units, h, w, planes, inner, line, pack, alignment)
    one_column = w.out if w.size == 1 else min(w.span(1) + alignment - 1, w.out)
    if tiling is None:
        assert h.span(1) > ROWS or one_column * inner > BLOCK * line
        return
    assert 1 <= tiling.tile_h <= h.size and 1 <= tiling.tile_w <= min(TILE_W, w.size)
    assert h.span(tiling.tile_h) <= ROWS
    strips = -(-w.size // tiling.tile_w)
    columns = w.out if strips == 1 else min(w.span(tiling.tile_w) + alignment - 1, w.out)
    assert columns * inner <= tiling.lines * line < columns * inner + line
    assert tiling.lines * tiling.at_once * tiling.parts <= BLOCK
    assert tiling.groups == strips * -(-h.size // tiling.tile_h) * -(-planes // tiling.at_once)
    assert tiling.parts == 1 or tiling.tile_h == 1, "members that share a window's rows meet at its end only"
    results = tiling.at_once * tiling.tile_w * (inner // pack)
    assert tiling.parts_w == 1 or results * tiling.parts_w <= BLOCK
    assert tiling.parts_w & (tiling.parts_w - 1) == 0
    assert inner // pack * tiling.parts_w <= BLOCK


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (UpsampleProblem.create("bwd", (1, 1, 1, 1), (1, 1, 1024, 1024)), Reason.TOO_LARGE),
        (UpsampleProblem.create("bwd", (1, 1, 4, 1), (1, 1, 8, 9000)), Reason.TOO_LARGE),
        (UpsampleProblem.create("bwd", (2, 3, 9, 5), (2, 3, 18, 10), y_strides=(1600, 500, 25, 2)), Reason.LAYOUT),
        (UpsampleProblem.create("bwd", (2, 3, 9, 5), (2, 3, 18, 10), y_strides=(1600, 1, 80, 4),
                                x_strides=(400, 1, 20, 4)), Reason.LAYOUT),
    ],
    ids=["rows", "columns", "no neighbours", "too few neighbours"],
)  # fmt: skip
def test_what_strips_leave_to_others(problem: UpsampleProblem, reason: Reason) -> None:
    assert UpsampleBwdStrip().IsApplicable(GPU, problem).reason is reason
    assert UpsampleBwdStrip().IsApplicable(known("x86_64"), problem).reason is Reason.SPECIALIZED
