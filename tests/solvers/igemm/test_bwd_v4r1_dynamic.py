"""ConvTritonIgemmBwdV4R1Dynamic: what is compiled in, and that images and batches are not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hipfind.problem import ConvProblem
from hipfind.solvers.igemm.bwd_v4r1_dynamic import ConvTritonIgemmBwdV4R1Dynamic
from hipfind.solvers.igemm.tiles import TileConfig
from hipfind.target import known

SOLVER = ConvTritonIgemmBwdV4R1Dynamic()
TARGET = known("sm_90")
TILE = TileConfig(128, 64, 32, warps=4, stages=3)
SIZES = list(itertools.product((1, 3, 8), ((8, 8), (13, 17), (32, 7), (9, 40))))
LAYER: dict[str, Any] = {"stride": 2, "pad": 1}


def kernels_of(sizes: list[tuple[int, tuple[int, int]]], layout: Any) -> dict[str, set[object]]:
    """Entry -> the binaries that all these sizes of one layer need with one tile."""
    found: dict[str, set[object]] = {}
    for n, image in sizes:
        problem = ConvProblem.create("bwd", (n, 64, *image), (96, 64, 3, 3), dtype="bf16", layout=layout, **LAYER)
        assert SOLVER.IsApplicable(TARGET, problem)
        for spec in SOLVER.GetSolution(TARGET, problem, TILE).kernels:
            found.setdefault(spec.entry, set()).add(spec)
    return found


def test_channel_last_sizes_share_one_binary() -> None:
    assert {entry: len(specs) for entry, specs in kernels_of(SIZES, "NHWC").items()} == {"gather": 1}


@pytest.mark.parametrize("layout", ["NCHW", ("NCHW", "NHWC", "NHWC"), ("NHWC", "NCHW", "NCHW")])
def test_copies_differ_only_in_how_far_images_are_aligned(layout: Any) -> None:
    """Of dy, of w, of dx: each for images of a multiple of 16 pixels, and for others."""
    found = {entry: len(specs) for entry, specs in kernels_of(SIZES, layout).items()}
    assert found["gather"] == 1
    assert found.get("pack", 0) <= 5


def test_it_is_dynamic_and_takes_whole_vectors_only() -> None:
    problem = ConvProblem.create("bwd", (2, 64, 8, 8), (96, 64, 3, 3), dtype="bf16", **LAYER)
    assert SOLVER.IsDynamic(problem)
    for c, k in ((60, 96), (64, 100)):
        other = ConvProblem.create("bwd", (2, c, 8, 8), (k, c, 3, 3), dtype="bf16", **LAYER)
        assert "multiples of 16" in SOLVER.IsApplicable(TARGET, other).detail
