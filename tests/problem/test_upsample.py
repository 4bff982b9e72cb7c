"""UpsampleProblem: what it takes, what it says about itself, and the exact message of every refusal."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given

from hipfind.errors import HipfindError, ProblemError
from hipfind.problem import DType, UpsampleProblem
from tests.helpers.strategies import upsample_problems

SIZES = {"x": (2, 3, 9, 5), "y": (2, 3, 18, 10)}


def create(direction: str = "bwd", **more: Any) -> UpsampleProblem:
    return UpsampleProblem.create(direction, **{**SIZES, **more})


def test_what_a_problem_says_about_itself() -> None:
    p = create(dtype="bf16", layout="NHWC")
    assert (p.operation, p.direction, p.inputs, p.output, p.roles) == ("upsample", "bwd", ("dy",), "dx", ("dy", "dx"))
    assert (p.n, p.c, p.dtype, p.layouts) == (2, 3, DType.BF16, ("NHWC", "NHWC"))
    assert p.tensor("dy").lengths == (2, 3, 18, 10)
    assert p.tensor("dx").strides == (135, 1, 15, 3)
    assert p.flops == 8 * 2 * 3 * 18 * 10
    assert p.min_bytes == 2 * (2 * 3 * 18 * 10 + 2 * 3 * 9 * 5)
    assert not p.reads_output and not p.is_empty
    assert p.canonical() is p and p.canonical_roles() == {"dy": "dy", "dx": "dx"}
    assert create(x=(0, 3, 9, 5), y=(0, 3, 18, 10)).is_empty


@pytest.mark.parametrize(
    ("sizes", "terms"),
    [
        ({}, 4 * 4),
        ({"y": (2, 3, 9, 5)}, 1),
        ({"x": (1, 1, 1, 1), "y": (1, 1, 30, 40)}, 30 * 40),
        ({"x": (1, 1, 9, 9), "y": (1, 1, 3, 9)}, 1),
        ({"x": (1, 1, 9, 2), "y": (1, 1, 9, 8), "align_corners": True}, 7),
    ],
    ids=["double", "same", "one pixel", "shrunk", "corners"],
)
def test_terms_of_a_pixel_count_four_times(sizes: dict[str, Any], terms: int) -> None:
    assert create(**sizes).reduction_length == 4 * terms


def test_scales_are_kept_only_where_they_make_a_difference() -> None:
    plain = create()
    assert create(scales=2) == create(scales=(2.0, None)) == plain
    assert create(scales=2.0).scales == (None, None)
    other = create(scales=2.05)
    assert other != plain and other.scales == (2.05, 2.05)
    assert create(scales=(2.0, 2.05)).scales == (None, 2.05)
    assert create(scales=2.05, align_corners=True) == create(align_corners=True)
    assert create(y=(2, 3, 9, 12), scales=(1.05, 2.45)).scales == (None, 2.45), "an axis of the same size is copied"


def test_sizes_follow_from_scales() -> None:
    p = UpsampleProblem.create("bwd", (1, 2, 10, 7), scales=(1.7, 0.5))
    assert p.y.lengths == (1, 2, 17, 3)
    assert [axis.step for axis in p.axes] == [1 / 1.7, 2.0]
    assert [axis.step for axis in create().axes] == [0.5, 0.5]
    assert [axis.step for axis in create(align_corners=True).axes] == [8 / 17, 4 / 9]
    assert create(y=(2, 3, 1, 10), align_corners=True).axes[0].step == 0.0


def test_forward_the_roles_are_x_and_y() -> None:
    p = UpsampleProblem.create("fwd", **SIZES, dtype="bf16", y_strides=(540, 1, 30, 3))
    assert (p.direction, p.inputs, p.output, p.roles) == ("fwd", ("x",), "y", ("x", "y"))
    assert p.tensor("x") is p.x and p.tensor("y") is p.y and p.layouts == ("NCHW", "NHWC")
    assert (p.flops, p.min_bytes) == (create(dtype="bf16").flops, create(dtype="bf16").min_bytes)
    assert p.canonical() is p and p.canonical_roles() == {"x": "x", "y": "y"}
    assert p.facts() == {"layout": "NCHW_NHWC", "n": 2, "c": 3, "input": "9x5", "output": "18x10"}
    assert dataclasses.replace(p, direction="bwd").roles == ("dy", "dx")
    for problem, role in ((p, "dx"), (create(), "x")):
        with pytest.raises(KeyError):
            problem.tensor(role)


@pytest.mark.parametrize(
    ("sizes", "terms"),
    [({}, 4), ({"y": (2, 3, 9, 5)}, 1), ({"y": (2, 3, 9, 10)}, 2), ({"x": (1, 1, 9, 9), "y": (1, 1, 3, 3)}, 1),
     ({"x": (1, 1, 8, 8), "y": (1, 1, 4, 4)}, 4)],
    ids=["double", "same", "wider", "a third", "half"],
)  # fmt: skip
def test_terms_of_an_output_count_four_times(sizes: dict[str, Any], terms: int) -> None:
    assert create("fwd", **sizes).reduction_length == 4 * terms


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"y": (2, 3, 18, 0)}, "x and y need channels and sizes of 1 or more (only the batch may be 0) "
         "(got x=(2, 3, 9, 5), y=(2, 3, 18, 0))"),
        ({"y": (2, 4, 18, 10)}, "x and y need the same batch and channels (got x=(2, 3, 9, 5), y=(2, 4, 18, 10))"),
        ({"y": None}, "the output's size needs y or a scale for height and width (got scales=(None, None))"),
        ({"x": (3, 9, 5), "y": None, "scales": 2}, "x needs 4 lengths (N, C, H, W) (got x=(3, 9, 5))"),
        ({"scales": 1.9}, "height of y must be floor(height of x * scale) = 17 "
         "(got x=(2, 3, 9, 5), y=(2, 3, 18, 10), scale 1.9)"),
        ({"y_strides": (0, 180, 10, 1)},
         "the output y must not overlap itself in memory (got lengths (2, 3, 18, 10), strides (0, 180, 10, 1))"),
        ({"dtype": "int8"}, "x and y must have the same float dtype (got x int8, y int8)"),
    ],
)  # fmt: skip
def test_refusals_of_the_forward_pass_speak_of_x_and_y(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        create("fwd", **more)
    assert str(caught.value) == message


@given(problem=upsample_problems(directions=("fwd", "bwd")))
def test_equal_descriptions_are_equal_problems(problem: UpsampleProblem) -> None:
    again = UpsampleProblem.create(
        problem.direction, problem.x.lengths, problem.y.lengths, align_corners=problem.align_corners,
        scales=problem.scales, dtype=problem.dtype, deterministic=problem.deterministic, x_strides=problem.x.strides,
        y_strides=problem.y.strides,
    )  # fmt: skip
    assert again == problem and hash(again) == hash(problem)
    assert dataclasses.replace(problem) == problem


POSITIVE = "dy and dx need channels and sizes of 1 or more (only the batch may be 0)"
SAME = "dy and dx need the same batch and channels"
FACTOR = "scales must be finite numbers greater than 0"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"y": (2, 3, 18, 11), "scales": 2},
            "width of dy must be floor(width of dx * scale) = 10 (got dx=(2, 3, 9, 5), dy=(2, 3, 18, 11), scale 2.0)",
        ),
        (
            {"y": (2, 3, 17, 10), "scales": (2, 2)},
            "height of dy must be floor(height of dx * scale) = 18 (got dx=(2, 3, 9, 5), dy=(2, 3, 17, 10), scale 2.0)",
        ),
        ({"x": (2, 3, 0, 5)}, f"{POSITIVE} (got dy=(2, 3, 18, 10), dx=(2, 3, 0, 5))"),
        ({"y": (2, 3, 18, 0)}, f"{POSITIVE} (got dy=(2, 3, 18, 0), dx=(2, 3, 9, 5))"),
        ({"x": (2, 0, 9, 5), "y": (2, 0, 18, 10)}, f"{POSITIVE} (got dy=(2, 0, 18, 10), dx=(2, 0, 9, 5))"),
        ({"x": (2, 3, -9, 5)}, "lengths must not be negative (got lengths (2, 3, -9, 5))"),
        ({"y": (2, 4, 18, 10)}, f"{SAME} (got dy=(2, 4, 18, 10), dx=(2, 3, 9, 5))"),
        ({"y": (1, 3, 18, 10)}, f"{SAME} (got dy=(1, 3, 18, 10), dx=(2, 3, 9, 5))"),
        (
            {"y": (2, 3, 4, 18, 10)},
            "dy and dx need 4 lengths (N, C, H, W) (got dy=(2, 3, 4, 18, 10), dx=(2, 3, 9, 5))",
        ),
        ({"y": None}, "the output's size needs dy or a scale for height and width (got scales=(None, None))"),
        (
            {"y": None, "scales": (2, None)},
            "the output's size needs dy or a scale for height and width (got scales=(2.0, None))",
        ),
        ({"scales": 0}, f"{FACTOR} (got 0)"),
        ({"scales": (2, -1.5)}, f"{FACTOR} (got -1.5)"),
        ({"scales": float("nan")}, f"{FACTOR} (got nan)"),
        ({"scales": 5e-324}, f"{FACTOR} (got 5e-324)"),
        ({"scales": "two"}, "scales needs one number, or two for height and width (got two)"),
        ({"scales": (1, 2, 3)}, "scales needs one number, or two for height and width (got (1, 2, 3))"),
        ({"scales": 1e300}, "a scaled size must be at most 2^60 (got 9 * 1e+300)"),
        (
            {"x": (1, 1, 2**31, 1), "y": (1, 1, 2**31, 1)},
            "height of dx times height of dy must be at most 2^60 (got 2147483648 and 2147483648)",
        ),
        ({"dtype": "int8"}, "dy and dx must have the same float dtype (got dy int8, dx int8)"),
        (
            {"x_strides": (0, 45, 5, 1)},
            "the output dx must not overlap itself in memory (got lengths (2, 3, 9, 5), strides (0, 45, 5, 1))",
        ),
        (
            {"layout": "NCDHW"},
            "unknown layout for a tensor of 4 dimensions (got NCDHW); legal: NCHW, NHWC, NCDHW, NDHWC",
        ),
    ],
)
def test_refusals_name_the_rule_and_the_values(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        create(**more)
    assert str(caught.value) == message


def test_unknown_directions_are_refused() -> None:
    for direction in ("wrw", "FWD", ""):
        with pytest.raises(ProblemError, match="unknown direction of an upsampling problem"):
            UpsampleProblem.create(direction, **SIZES)


def test_tensors_of_two_dtypes_are_refused() -> None:
    p = create()
    with pytest.raises(ProblemError, match=r"same float dtype \(got dy fp16, dx fp32\)"):
        dataclasses.replace(p, y=create(dtype="fp16").y)


@given(problem=upsample_problems())
def test_problems_with_a_broken_number_are_refused_by_name(problem: UpsampleProblem) -> None:
    """Whatever the sizes: one pixel more or less than the scale gives is an error of ours, never another one."""
    if problem.scales[0] is None:
        return
    for change in (-1, 1):
        lengths = list(problem.y.lengths)
        lengths[2] += change
        with pytest.raises(HipfindError, match=r"height of dy|1 or more"):
            UpsampleProblem.create("bwd", problem.x.lengths, lengths, scales=problem.scales)


def test_facts_are_what_a_perf_db_shows() -> None:
    assert create(layout="NHWC").facts() == {"layout": "NHWC", "n": 2, "c": 3, "input": "9x5", "output": "18x10"}
    assert create(x_strides=(135, 1, 15, 3)).facts()["layout"] == "NCHW_NHWC"
    assert create(y_strides=(0, 0, 0, 0)).facts()["layout"] == "*_NCHW"
