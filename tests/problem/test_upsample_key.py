"""Keys of upsampling problems: golden ones, one for each problem, and back."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given

from hipfind.errors import ParseError
from hipfind.problem import UpsampleProblem
from hipfind.problem.upsample_key import EXAMPLE, parse_key
from tests.helpers.strategies import upsample_problems

SIZES = {"x": (2, 3, 9, 5), "y": (2, 3, 18, 10)}


both = functools.partial(upsample_problems, directions=("fwd", "bwd"))


def create(direction: str = "bwd", **more: Any) -> UpsampleProblem:
    return UpsampleProblem.create(direction, **{**SIZES, **more})


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({}, "upsample-bwd-bilinear-n2-c3-i9x5-o18x10-fp32-NCHW"),
        ({"dtype": "bf16", "layout": "NHWC"}, "upsample-bwd-bilinear-n2-c3-i9x5-o18x10-bf16-NHWC"),
        ({"align_corners": True}, "upsample-bwd-bilinear-n2-c3-i9x5-o18x10-fp32-NCHW-ac"),
        ({"scales": (2.05, 2)}, "upsample-bwd-bilinear-n2-c3-i9x5-o18x10-fp32-NCHW-sh2.05"),
        ({"scales": (2, 2.05)}, "upsample-bwd-bilinear-n2-c3-i9x5-o18x10-fp32-NCHW-sw2.05"),
        ({"deterministic": True}, "upsample-bwd-bilinear-n2-c3-i9x5-o18x10-fp32-NCHW-det"),
        ({"y_strides": (0, 0, 0, 0)}, "upsample-bwd-bilinear-n2-c3-i9x5-o18x10-fp32-*_NCHW-dys0x0x0x0"),
        ({"x_strides": (135, 1, 15, 3)}, "upsample-bwd-bilinear-n2-c3-i9x5-o18x10-fp32-NCHW_NHWC"),
        ({"x_strides": (300, 100, 11, 2), "y_strides": (900, 300, 12, 1), "align_corners": True,
          "deterministic": True},
         "upsample-bwd-bilinear-n2-c3-i9x5-o18x10-fp32-*-dys900x300x12x1-dxs300x100x11x2-ac-det"),
        ({"x": (0, 3, 9, 5), "y": (0, 3, 18, 10)}, "upsample-bwd-bilinear-n0-c3-i9x5-o18x10-fp32-NCHW"),
        ({"x": (1, 1, 90000, 1), "y": (1, 1, 1, 1), "scales": (1.7e-05, 1)},
         "upsample-bwd-bilinear-n1-c1-i90000x1-o1x1-fp32-NCHW-sh1.7e-05"),
    ],
)  # fmt: skip
def test_golden_keys(more: dict[str, Any], key: str) -> None:
    problem = create(**more)
    assert problem.key() == key
    assert UpsampleProblem.from_key(key) == problem


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({}, "upsample-fwd-bilinear-n2-c3-i9x5-o18x10-fp32-NCHW"),
        ({"dtype": "bf16", "layout": "NHWC", "align_corners": True, "deterministic": True},
         "upsample-fwd-bilinear-n2-c3-i9x5-o18x10-bf16-NHWC-ac-det"),
        ({"x_strides": (0, 0, 0, 0)}, "upsample-fwd-bilinear-n2-c3-i9x5-o18x10-fp32-*_NCHW-xs0x0x0x0"),
        ({"y_strides": (540, 1, 30, 3)}, "upsample-fwd-bilinear-n2-c3-i9x5-o18x10-fp32-NCHW_NHWC"),
        ({"x_strides": (300, 100, 11, 2), "y_strides": (900, 300, 12, 1), "scales": 2.05},
         "upsample-fwd-bilinear-n2-c3-i9x5-o18x10-fp32-*-xs300x100x11x2-ys900x300x12x1-sh2.05-sw2.05"),
    ],
)  # fmt: skip
def test_golden_keys_of_the_forward_pass(more: dict[str, Any], key: str) -> None:
    problem = create("fwd", **more)
    assert problem.key() == key
    assert UpsampleProblem.from_key(key) == problem


@given(problem=both())
def test_keys_give_the_problem_back(problem: UpsampleProblem) -> None:
    assert parse_key(problem.key()) == problem
    assert parse_key(problem.key()).layouts == problem.layouts


@given(first=both(max_size=4), second=both(max_size=4))
def test_problems_share_a_key_only_if_equal(first: UpsampleProblem, second: UpsampleProblem) -> None:
    assert (first.key() == second.key()) == (first == second)


def test_every_attribute_is_in_the_key() -> None:
    """B51: change one at a time; no two share a key."""
    changes: tuple[dict[str, Any], ...] = (
        {}, {"dtype": "fp16"}, {"layout": "NHWC"}, {"align_corners": True}, {"scales": 2.05}, {"scales": (2.05, 2)},
        {"deterministic": True}, {"x": (2, 3, 5, 9)}, {"y": (2, 3, 10, 18)},
        {"x": (3, 3, 9, 5), "y": (3, 3, 18, 10)}, {"x": (2, 4, 9, 5), "y": (2, 4, 18, 10)},
        {"x_strides": (200, 50, 5, 1)}, {"y_strides": (900, 300, 12, 1)},
    )  # fmt: skip
    assert len({create(**change).key() for change in changes}) == len(changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not an upsampling problem's key"),
        ("upsample-wrw-bilinear-n1-c3-i32x32-o64x64-fp32-NCHW", "this is not an upsampling problem's key"),
        ("upsample-bwd-bilinear-n1-c3-i32-o64x64-fp32-NCHW", "this is not an upsampling problem's key"),
        (f"{EXAMPLE} ", "this is not an upsampling problem's key"),
        (f"{EXAMPLE}-sh2", "spells its problem's key in another way"),
        (f"{EXAMPLE}-sh2.0", "spells its problem's key in another way"),
        (EXAMPLE.replace("n1", "n01"), "spells its problem's key in another way"),
        (EXAMPLE.replace("NCHW", "*"), "must give that tensor's strides"),
        (f"{EXAMPLE}-dys12288x4096x64x1", "spells its problem's key in another way"),
        (f"{EXAMPLE}-ys12288x4096x64x1", "spells its problem's key in another way"),
        (EXAMPLE.replace("bwd", "fwd").replace("NCHW", "*"), "add -xs"),
        (EXAMPLE.replace("bwd", "fwd") + "-dys12288x4096x64x1", "spells its problem's key in another way"),
    ],
)
def test_what_is_no_key_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_key(text)


def test_the_example_in_messages_is_a_key() -> None:
    assert parse_key(EXAMPLE).key() == EXAMPLE
