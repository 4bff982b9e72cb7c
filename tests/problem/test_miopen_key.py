"""MIOpen's find-db keys, byte for byte: real keys read and written again, and what such a key cannot say."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given

from hipfind.errors import ParseError, ProblemError
from hipfind.problem import ConvProblem
from hipfind.problem.miopen_key import EXAMPLE, encode_miopen_key, parse_miopen_key
from tests.helpers.shared import find_db_keys, needs_shared
from tests.helpers.strategies import conv_problems

SEED = {"x": (9500, 3, 14, 14), "w": (1280, 3, 14, 14), "stride": 14, "dtype": "bf16"}


@pytest.mark.parametrize(
    ("problem", "key"),
    [
        (ConvProblem.create("fwd", **SEED), "3-14-14-14x14-1280-1-1-9500-0x0-14x14-1x1-0-NCHW-BF16-F"),
        (ConvProblem.create("bwd", **SEED), "1280-1-1-14x14-3-14-14-9500-0x0-14x14-1x1-0-NCHW-BF16-B"),
        (ConvProblem.create("wrw", **SEED), "1280-1-1-14x14-3-14-14-9500-0x0-14x14-1x1-0-NCHW-BF16-W"),
        (
            ConvProblem.create("fwd", **{**SEED, "layout": "NHWC"}),
            "3-14-14-14x14-1280-1-1-9500-0x0-14x14-1x1-0-NHWC-NHWC-NHWC-BF16-F",
        ),
        (
            ConvProblem.create("bwd", (8, 4, 9, 7), (6, 2, 3, 2), pad=(1, 0), groups=2, layout=("NHWC", "", "")),
            "6-9-6-3x2-4-9-7-8-1x0-1x1-1x1-0-NCHW-NCHW-NHWC-FP32-B_g2",
        ),
        (
            ConvProblem.create("wrw", (1, 32, 1, 14, 14), (32, 1, 1, 3, 3), pad=(0, 1, 1), groups=32, dtype="fp16"),
            "32-1-14-14-1x3x3-32-1-14-14-1-0x1x1-1x1x1-1x1x1-0-NCDHW-FP16-W_g32",
        ),
        (
            ConvProblem.create("fwd", (2, 4, 5, 5, 5), (8, 4, 3, 3, 3), stride=2, dilation=(1, 2, 2), layout="NDHWC"),
            "4-5-5-5-3x3x3-8-2-1-1-2-0x0x0-2x2x2-1x2x2-0-NDHWC-NDHWC-NDHWC-FP32-F",
        ),
        (
            ConvProblem.create("fwd", (2, 4, 5, 5), (8, 4, 3, 3), dtype=("int8", "int8", "int32")),
            "4-5-5-3x3-8-3-3-2-0x0-1x1-1x1-0-NCHW-INT8INT8INT32-F",
        ),
    ],
)  # fmt: skip
def test_keys(problem: ConvProblem, key: str) -> None:
    assert problem.miopen_key() == key
    assert parse_miopen_key(key) == problem
    assert parse_miopen_key(key).miopen_key() == key


@pytest.mark.parametrize(
    "key",
    [
        EXAMPLE,
        # memory that fits several layouts keeps the names it came with
        "1-1-1-1x1-64-1-1-8-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-FP32-F",
        "1-19-19-1x1-64-19-19-1024-0x0-1x1-1x1-0-NHWC-NHWC-NHWC-FP32-B",
        "1-1-1-1-1x1x1-1-1-1-1-1-0x0x0-1x1x1-1x1x1-0-NDHWC-NDHWC-NDHWC-FP16-W",
        "64-1-1-1x1-32-1-1-8-0x0-1x1-1x1-0-NCHW-NHWC-NCHW-FP32-F",
        # fully connected layers written as convolutions
        "512-7-7-7x7-4096-1-1-1-0x0-1x1-1x1-0-NCHW-FP32-F",
        "4096-1-1-7x7-512-7-7-1-0x0-1x1-1x1-0-NCHW-FP32-B",
        "1-1-1-1-1x4x4-512-1-4-4-128-0x0x0-1x1x1-1x1x1-0-NCDHW-FP32-B",
    ],
)
def test_real_keys_round_trip(key: str) -> None:
    assert parse_miopen_key(key).miopen_key() == key


@given(conv_problems(packed=True, asymmetric_pads=False, empty=False))
def test_round_trip(problem: ConvProblem) -> None:
    again = parse_miopen_key(encode_miopen_key(problem))
    assert again == problem.canonical()
    assert again.miopen_key() == problem.miopen_key()


def test_a_layout_hint_that_does_not_fit_is_not_used() -> None:
    problem = ConvProblem.create("fwd", (2, 4, 5, 5), (8, 4, 3, 3))
    lying = dataclasses.replace(problem, layout_hint=("NHWC", "NHWC", "NHWC"))
    assert lying.miopen_key() == problem.miopen_key()


def test_a_transposed_convolution_has_the_key_of_its_mirror() -> None:
    problem = ConvProblem.create("fwd", (2, 6, 5, 5), (6, 4, 3, 3), stride=2, pad=1, output_padding=1, mode="transpose")
    mirror = ConvProblem.create("bwd", (2, 4, 10, 10), (6, 4, 3, 3), stride=2, pad=1)
    assert problem.miopen_key() == mirror.miopen_key() == "6-5-5-3x3-4-10-10-2-1x1-2x2-1x1-0-NCHW-FP32-B"


def test_what_miopen_leaves_out_of_its_keys_shares_one() -> None:
    problem = ConvProblem.create("fwd", (2, 4, 5, 5), (8, 4, 3, 3))
    changes: list[dict[str, Any]] = [{"alpha": 2.0}, {"beta": 1.0}, {"deterministic": True}, {"compute": "tf32"}]
    for change in changes:
        other = dataclasses.replace(problem, **change)
        assert other.miopen_key() == problem.miopen_key()
        assert other.key() != problem.key()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pad": ((0, 1), (0, 0))}, r"pads that differ.*pad \(0, 0\), pad_end \(1, 0\)"),
        ({"x_strides": (200, 50, 5, 1)}, "no layout name for x.*200, 50"),
        ({"w_strides": (72, 18, 3, 1)}, "no layout name for w"),
        ({"direction": "bwd", "y_strides": (200, 20, 3, 1)}, "no layout name for y"),
        ({"x": (0, 4, 5, 5)}, "batch of 0"),
    ],
)
def test_what_a_miopen_key_cannot_say(changes: dict[str, Any], message: str) -> None:
    problem = ConvProblem.create(**{"direction": "fwd", "x": (2, 4, 5, 5), "w": (8, 4, 3, 3), **changes})
    with pytest.raises(ProblemError, match=message):
        problem.miopen_key()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a MIOpen find-db key"),
        (EXAMPLE + "\n", "not a MIOpen find-db key"),
        (EXAMPLE.lower(), "not a MIOpen find-db key"),
        (EXAMPLE.replace("0x0", "00x0"), "not a MIOpen find-db key"),
        (EXAMPLE.replace("1x1", "1x0"), "not a MIOpen find-db key"),
        (EXAMPLE.replace("3x3", "3x3x3"), "not a MIOpen find-db key"),
        (EXAMPLE + "=GemmFwdRest:1,0,x", "not a MIOpen find-db key"),
        (EXAMPLE.replace("-0-NCHW", "-1-NCHW"), "with a bias"),
        (EXAMPLE + "_g1", "unknown suffix _g1"),
        (EXAMPLE + "_x3", "unknown suffix _x3"),
        (EXAMPLE + "_g2_g2", "unknown suffix _g2_g2"),
        (EXAMPLE + "_ciFP8_cwFP8", "cast types .*_ciFP8_cwFP8.* not supported"),
        (EXAMPLE + "_g2_coBF8", "cast types .*_coBF8.* not supported"),
        (EXAMPLE.replace("FP32", "FP8"), "dtype FP8 .* not supported"),
        (EXAMPLE.replace("FP32", "FP32FP16"), "one dtype, or three that differ"),
        (EXAMPLE.replace("FP32", "FP32FP32FP32"), "one dtype, or three that differ"),
        (EXAMPLE.replace("NCHW", "CHWN-CHWN-CHWN"), "layout CHWN .* not supported"),
        (EXAMPLE.replace("NCHW", "NCHWc-NCHWc-NCHWc"), "layout NCHWc .* not supported"),
        (EXAMPLE.replace("NCHW", "NDHWC-NDHWC-NDHWC"), "layout NDHWC .* not supported"),
        (EXAMPLE.replace("NCHW", "NHWC"), "one layout where all are NCHW"),
        (EXAMPLE.replace("NCHW", "NCHW-NCHW-NCHW"), "one layout where all are NCHW"),
        (EXAMPLE.replace("NCHW", "NCHW-NHWC"), "not a MIOpen find-db key"),
    ],
)
def test_text_that_is_no_key_of_ours(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        parse_miopen_key(text)
    assert caught.value.got == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1-1-1-4x4-512-1-1-128-0x0-1x1-1x1-0-NCHW-FP32-B", "filter is larger than the padded image"),
        ("128-10-10-3x3-256-5-5-100-0x0-2x2-1x1-0-NCHW-BF16-F", "extent of y on spatial axis 0 must be 4"),
        ("4-8-8-3x3-6-6-6-1-0x0-1x1-1x1-0-NCHW-FP32-F_g4", "divisible by groups"),
    ],
)
def test_keys_of_miopens_files_that_contradict_themselves(text: str, message: str) -> None:
    with pytest.raises(ProblemError, match=message) as caught:
        parse_miopen_key(text)
    assert not isinstance(caught.value, ParseError)


@needs_shared
def test_every_key_of_gfx942_round_trips() -> None:
    count = 0
    for key in find_db_keys("gfx942130"):
        assert ConvProblem.from_miopen_key(key).miopen_key() == key
        count += 1
    assert count == 9600


@needs_shared
@pytest.mark.parametrize("name", ["gfx90a68", "gfx1030_36"])
def test_keys_of_other_files_round_trip_or_contradict_themselves(name: str) -> None:
    count = refused = 0
    for key in find_db_keys(name, every=50):
        count += 1
        try:
            problem = parse_miopen_key(key)
        except ProblemError as error:
            assert not isinstance(error, ParseError), key
            refused += 1
        else:
            assert problem.miopen_key() == key
    assert count > 2000
    assert refused <= 0.005 * count
