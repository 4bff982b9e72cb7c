"""The one key: complete, one for each problem, and read back as the same problem."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfind.errors import ParseError, ProblemError
from hipfind.problem import ConvProblem
from hipfind.problem.conv_key import EXAMPLE, encode_key, parse_key
from tests.helpers.strategies import conv_problems

ANY_PROBLEM = conv_problems(scaling=True, attributes=True)

# every part of a problem, changed one at a time from BASE; strides where tensors are not packed
BASE: dict[str, Any] = {
    "direction": "fwd", "x": (2, 4, 10, 10), "w": (8, 4, 3, 3), "stride": (2, 2), "pad": (1, 1), "dilation": (1, 1),
}  # fmt: skip
CHANGES: dict[str, dict[str, Any]] = {
    "direction": {"direction": "bwd"},
    "other direction": {"direction": "wrw"},
    "batch": {"x": (3, 4, 10, 10)},
    "no batch": {"x": (0, 4, 10, 10)},
    "channels of x": {"x": (2, 5, 10, 10), "w": (8, 5, 3, 3)},
    "channels of y": {"w": (7, 4, 3, 3)},
    "height": {"x": (2, 4, 11, 10)},
    "width": {"x": (2, 4, 10, 11)},
    "height that leaves a remainder": {"x": (2, 4, 9, 10)},
    "filter height": {"w": (8, 4, 2, 3)},
    "filter width": {"w": (8, 4, 3, 2)},
    "stride height": {"stride": (1, 2)},
    "stride width": {"stride": (2, 1)},
    "pad height": {"pad": (0, 1)},
    "pad width": {"pad": (1, 0)},
    "pad before": {"pad": ((0, 1), (1, 1))},
    "pad after": {"pad": ((1, 0), (1, 1))},
    "pads swapped": {"pad": ((0, 2), (1, 1))},
    "dilation height": {"dilation": (2, 1)},
    "dilation width": {"dilation": (1, 2)},
    "groups": {"w": (8, 2, 3, 3), "groups": 2},
    "depthwise": {"w": (8, 1, 3, 3), "groups": 4},
    "dtype": {"dtype": "fp16"},
    "other dtype": {"dtype": "bf16"},
    "double": {"dtype": "fp64"},
    "int8": {"dtype": ("int8", "int8", "int32")},
    "int8 out": {"dtype": "int8"},
    "layout": {"layout": "NHWC"},
    "layout of x": {"layout": ("NHWC", "NCHW", "NCHW")},
    "layout of w": {"layout": ("NCHW", "NHWC", "NCHW")},
    "layout of y": {"layout": ("NCHW", "NCHW", "NHWC")},
    "strides of x": {"x_strides": (800, 100, 10, 1)},
    "other strides of x": {"x_strides": (800, 200, 10, 1)},
    "strides of w": {"w_strides": (72, 9, 3, 1)},
    "strides of y": {"y_strides": (800, 25, 5, 1)},
    "alpha": {"alpha": 0.5},
    "other alpha": {"alpha": -1.0},
    "alpha near one": {"alpha": 1.0 + 2**-52},
    "beta": {"beta": 1.0},
    "small beta": {"beta": 5e-324},
    "deterministic": {"deterministic": True},
    "compute type": {"compute": "tf32"},
    "rank": {"x": (2, 4, 1, 10, 10), "w": (8, 4, 1, 3, 3), "stride": (1, 2, 2), "pad": (0, 1, 1), "dilation": 1},
    "rank, depth last": {
        "x": (2, 4, 10, 10, 1),
        "w": (8, 4, 3, 3, 1),
        "stride": (2, 2, 1),
        "pad": (1, 1, 0),
        "dilation": 1,
    },
    "mode": {"w": (4, 8, 3, 3), "mode": "transpose"},
    "output padding": {"w": (4, 8, 3, 3), "mode": "transpose", "output_padding": 1},
}


def test_the_key_is_readable() -> None:
    assert encode_key(ConvProblem.create("fwd", (1, 3, 8, 8), (8, 3, 3, 3))) == EXAMPLE
    problem = ConvProblem.create(
        "bwd", (2, 4, 8, 9), (6, 2, 3, 3), stride=(2, 1), pad=((1, 2), (0, 1)), groups=2, dtype="fp32",
        layout=("NHWC", "NCHW", "NCHW"), y_strides=(1000, 100, 10, 1), alpha=-1e-05, beta=0.5, deterministic=True,
        compute="tf32",
    )  # fmt: skip
    assert problem.key() == (
        "conv-bwd-n2-c4-k6-i8x9-f3x3-o5x8-s2x1-p1x0:2x1-d1x1-g2-fp32-NHWC_NCHW_*-ys1000x100x10x1-a-1e-05-b0.5-det-tf32"
    )


def test_one_change_makes_another_key() -> None:
    keys = {name: ConvProblem.create(**{**BASE, **change}).key() for name, change in {"none": {}, **CHANGES}.items()}
    by_key: dict[str, str] = {}
    for name, key in keys.items():
        assert by_key.setdefault(key, name) == name, f"{name} and {by_key[key]} share {key}"
        assert parse_key(key) == ConvProblem.create(**{**BASE, **(CHANGES.get(name) or {})})


def test_every_field_is_changed_above() -> None:
    made = [ConvProblem.create(**{**BASE, **change}) for change in CHANGES.values()]
    base = ConvProblem.create(**BASE)
    for field in dataclasses.fields(ConvProblem):
        if field.compare:
            assert any(getattr(problem, field.name) != getattr(base, field.name) for problem in made), field.name


@settings(max_examples=300)
@given(ANY_PROBLEM)
def test_round_trip(problem: ConvProblem) -> None:
    key = problem.key()
    assert parse_key(key) == problem
    assert parse_key(key).key() == key
    assert not set(key) & set(" ;,=\t\n")


@given(st.lists(ANY_PROBLEM, min_size=2, max_size=6))
def test_keys_are_equal_where_problems_are(problems: list[ConvProblem]) -> None:
    assert len({problem.key() for problem in problems}) == len(set(problems))


@given(conv_problems(packed=True, layouts=("first",)), st.floats(allow_nan=False, allow_infinity=False))
def test_scales_are_kept_to_the_last_bit(problem: ConvProblem, scale: float) -> None:
    scaled = dataclasses.replace(problem, alpha=scale, beta=-scale)
    again = parse_key(scaled.key())
    assert (again.alpha, again.beta) == (scale, -scale)


@pytest.mark.parametrize(
    "text",
    [
        "", "conv", "3-14-14-14x14-1280-1-1-9500-0x0-14x14-1x1-0-NCHW-BF16-F", EXAMPLE + "-", EXAMPLE + " ",
        EXAMPLE + "\n", " " + EXAMPLE, EXAMPLE.upper(), EXAMPLE.replace("fwd", "forward"), EXAMPLE.replace("n1", "n-1"),
        EXAMPLE.replace("fp32", "fp31"), EXAMPLE.replace("fp32", "fp32_fp32"), EXAMPLE.replace("NCHW", "NCHX"),
        EXAMPLE.replace("s1x1", "s1.5x1"), EXAMPLE.replace("n1", "n" + "9" * 5000), EXAMPLE.replace("n1", "n\u0661"),
        EXAMPLE + "-anan", EXAMPLE + "-ainf", EXAMPLE + "-a1_0", EXAMPLE + "-det-b1.0", EXAMPLE + "-det-det",
    ],
)  # fmt: skip
def test_text_that_is_no_key(text: str) -> None:
    with pytest.raises(ParseError, match="not a problem's key") as caught:
        parse_key(text)
    assert EXAMPLE in str(caught.value)
    assert caught.value.got == text


@pytest.mark.parametrize(
    "text",
    [
        EXAMPLE.replace("n1", "n01"), EXAMPLE.replace("p0x0", "p0x0:0x0"), EXAMPLE.replace("fp32", "fp32_fp32_fp32"),
        EXAMPLE.replace("NCHW", "NCHW_NCHW_NCHW"), EXAMPLE + "-a1.0", EXAMPLE + "-b0.0", EXAMPLE + "-b-0.0",
        EXAMPLE + "-a0.50", EXAMPLE.replace("i8x8-f3x3-o6x6", "i1x1-f1x1-o1x1").replace("NCHW", "NHWC"),
        EXAMPLE.replace("NCHW", "*_NCHW_NCHW") + "-xs192x64x8x1", EXAMPLE + "-xs192x64x8x1",
    ],
)  # fmt: skip
def test_another_spelling_is_refused_with_the_right_one(text: str) -> None:
    with pytest.raises(ParseError, match="another way") as caught:
        parse_key(text)
    assert parse_key(caught.value.remedy.removeprefix("the key is "))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (EXAMPLE.replace("o6x6", "o7x6"), "extent of y on spatial axis 0 must be 6"),
        (EXAMPLE.replace("i8x8", "i8x8x8"), "unknown layout for a tensor of 5 dimensions"),
        (EXAMPLE.replace("g1", "g0"), "groups must be 1 or more"),
        (EXAMPLE.replace("g1", "g2"), "divisible by groups"),
        (EXAMPLE.replace("NCHW", "NCDHW"), "unknown layout for a tensor of 4 dimensions"),
        (EXAMPLE.replace("NCHW", "*_NCHW_NCHW"), "must give that tensor's strides"),
        (EXAMPLE + "-a1e999", "alpha must be a finite number"),
        (EXAMPLE.replace("fp32", "fp16") + "-tf32", "tf32 needs fp32"),
    ],
)
def test_a_key_that_contradicts_itself(text: str, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        parse_key(text)
