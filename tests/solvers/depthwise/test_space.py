"""The perf configs of the depthwise solvers: text, rules, search, default."""

from __future__ import annotations

import dataclasses

import pytest

from hipfind.errors import ConfigError
from hipfind.problem import ConvProblem
from hipfind.solvers.depthwise.base import DepthwiseSolver
from hipfind.solvers.depthwise.bwd import ConvDirectDepthwiseBwd
from hipfind.solvers.depthwise.config import DepthwiseConfig
from hipfind.solvers.depthwise.fwd import ConvDirectDepthwiseFwd
from hipfind.solvers.depthwise.wrw import ConvDirectDepthwiseWrw
from hipfind.solvers.reasons import Reason
from hipfind.target import Target, known

SOLVERS: dict[str, DepthwiseSolver] = {
    "fwd": ConvDirectDepthwiseFwd(),
    "bwd": ConvDirectDepthwiseBwd(),
    "wrw": ConvDirectDepthwiseWrw(),
}
GPU, HOST = known("sm_90"), known("x86_64")


def convnext(direction: str, layout: str = "NCHW", dtype: str = "bf16") -> ConvProblem:
    return ConvProblem.create(direction, (64, 96, 56, 56), (96, 1, 7, 7), pad=3, groups=96, layout=layout, dtype=dtype)


def mobilenet(direction: str, layout: str = "NCHW") -> ConvProblem:
    return ConvProblem.create(
        direction, (64, 96, 112, 112), (96, 1, 3, 3), pad=1, stride=2, groups=96, layout=layout, dtype="bf16"
    )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("make", [convnext, mobilenet])
@pytest.mark.parametrize("direction", SOLVERS)
@pytest.mark.parametrize("target", [GPU, known("gfx942"), HOST], ids=lambda target: target.arch)
def test_search_gives_each_legal_config_once(target: Target, direction: str, make: object, layout: str) -> None:
    assert callable(make)
    solver, problem = SOLVERS[direction], make(direction, layout)
    configs = list(solver.Search(target, problem))
    assert len(configs) == len(set(configs)) >= (1 if target.is_host else 50)
    assert solver.GetDefaultPerformanceConfig(target, problem) == configs[0]
    workspace = solver.GetWorkspaceSize(target, problem)
    for config in configs:
        assert solver.IsValidPerformanceConfig(target, problem, config), config
        assert solver.parse_config(str(config)) == config
        assert solver.GetSolution(target, problem, config).workspace_bytes == workspace


@pytest.mark.parametrize("text", ["", "tile=4x8 blocks=2 depth=1", "tile=4x8x1 blocks=2 depth=-1", "tile=4x8x1"])
def test_text_that_is_no_config(text: str) -> None:
    with pytest.raises(ConfigError, match="is written tile="):
        SOLVERS["fwd"].parse_config(text)


@pytest.mark.parametrize(
    ("direction", "change", "rule"),
    [
        ("fwd", {"rows": 0}, "1 and more"),
        ("fwd", {"blocks": 4}, "registers"),
        ("fwd", {"columns": 64}, "products"),
        ("fwd", {"channels": 2}, "power of two that divides 96, channel-last"),
        ("bwd", {"rows": 64}, "products"),
        ("wrw", {"rows": 57, "columns": 1}, "larger than y"),
        ("wrw", {"channels": 1 << 12}, "power of two that divides"),
        ("wrw", {"depth": 1, "rows": 1, "columns": 1}, "parts"),
    ],
)
def test_illegal_configs_are_refused_with_their_rule(direction: str, change: dict[str, int], rule: str) -> None:
    solver, problem = SOLVERS[direction], convnext(direction)
    legal = DepthwiseConfig(rows=4, columns=4, channels=1, blocks=2, depth=14)
    assert solver.IsValidPerformanceConfig(GPU, problem, legal)
    config = dataclasses.replace(legal, **change)
    answer = solver.IsValidPerformanceConfig(GPU, problem, config)
    assert answer.reason is Reason.CONFIG
    assert rule in answer.detail
    with pytest.raises(ConfigError, match="not valid"):
        solver.GetSolution(GPU, problem, config)


def test_backward_tiles_are_multiples_of_the_stride() -> None:
    answer = SOLVERS["bwd"].IsValidPerformanceConfig(GPU, mobilenet("bwd"), DepthwiseConfig(3, 4, 1, 2, 1))
    assert "multiple of the stride" in answer.detail


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"w": (8, 2, 3, 3), "groups": 4}, Reason.GROUPS),
        ({"w": (16, 1, 3, 3), "groups": 8}, Reason.GROUPS),
        ({"w": (8, 1, 3, 3), "groups": 8, "alpha": 2.0}, Reason.SCALING),
        ({"w": (8, 1, 3, 3), "groups": 8, "layout": ("NCHW", "NCHW", "NHWC")}, Reason.LAYOUT),
        ({"w": (8, 1, 10, 10), "groups": 8}, Reason.FILTER),
    ],
)
def test_what_does_not_apply(arguments: dict[str, object], reason: Reason) -> None:
    problem = ConvProblem.create("fwd", (2, 8, 16, 16), **arguments)  # type: ignore[arg-type]
    assert SOLVERS["fwd"].IsApplicable(GPU, problem).reason is reason


def test_numbers_that_no_kernel_can_have_are_refused_too() -> None:
    problem = ConvProblem.create(
        "wrw", (2, 8192, 9, 9), (8192, 1, 9, 9), groups=8192, pad=4, layout="NHWC", dtype="fp64"
    )
    for target in (GPU, HOST):
        for channels in (16, 64, 4096, 8192):
            config = DepthwiseConfig(1, 1, channels, 1, 1 << 20)
            answer = SOLVERS["wrw"].IsValidPerformanceConfig(target, problem, config)
            assert answer.reason is Reason.CONFIG or (target.is_host and channels == 16)
