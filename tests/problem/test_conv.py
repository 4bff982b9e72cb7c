"""ConvProblem: what is computed, what is refused, what two equal problems are; transposed mode and its mirror."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from hipfind.errors import ProblemError
from hipfind.problem import ConvProblem, DType, TensorDescriptor
from tests.helpers.arrays import make_arrays
from tests.helpers.strategies import conv_problems

PLAIN: dict[str, Any] = {"direction": "fwd", "x": (2, 4, 9, 7), "w": (6, 4, 3, 2)}


def create(**changes: Any) -> ConvProblem:
    return ConvProblem.create(**{**PLAIN, **changes})


@pytest.mark.parametrize(
    ("changes", "y"),
    [
        ({}, (2, 6, 7, 6)),
        ({"pad": 1}, (2, 6, 9, 8)),
        ({"pad": (2, 0)}, (2, 6, 11, 6)),
        ({"pad": ((0, 1), (3, 0))}, (2, 6, 8, 9)),
        ({"pad": (0, 1, 3, 0)}, (2, 6, 8, 9)),
        ({"stride": (2, 3)}, (2, 6, 4, 2)),
        ({"dilation": (3, 4)}, (2, 6, 3, 3)),
        ({"w": (6, 2, 3, 2), "groups": 2}, (2, 6, 7, 6)),
        ({"x": (0, 4, 9, 7)}, (0, 6, 7, 6)),
        ({"x": (2, 4, 5, 9, 7), "w": (6, 4, 5, 3, 2), "stride": (1, 2, 3)}, (2, 6, 1, 4, 2)),
        ({"w": (4, 5, 3, 2), "mode": "transpose", "stride": 2}, (2, 5, 19, 14)),
        ({"w": (4, 5, 3, 2), "mode": "transpose", "stride": 2, "output_padding": (1, 0)}, (2, 5, 20, 14)),
        ({"w": (4, 5, 3, 2), "mode": "trans", "groups": 2, "pad": 1, "dilation": 2}, (2, 10, 11, 7)),
    ],
)
def test_output_lengths(changes: dict[str, Any], y: tuple[int, ...]) -> None:
    problem = create(**changes)
    assert problem.y.lengths == y
    assert create(**{**changes, "output_padding": 0}, y=y) == problem


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"direction": "forward"}, "unknown direction.*forward.*fwd, bwd, wrw"),
        ({"mode": "winograd"}, "unknown mode.*winograd"),
        ({"compute": "fp8"}, "unknown compute type.*fp8"),
        ({"compute": "tf32", "dtype": "fp16"}, "tf32 needs fp32.*fp16"),
        ({"dtype": "fp31"}, "unknown dtype.*fp31.*legal: fp64"),
        ({"dtype": ("fp32", "fp16", "fp32")}, "same float dtype.*x fp32, w fp16, y fp32"),
        ({"dtype": ("fp32", "fp32")}, "one name, or three"),
        ({"dtype": "int32"}, "same float dtype.*int32"),
        ({"dtype": "int8", "direction": "bwd"}, "forward only.*bwd"),
        ({"dtype": "int8", "mode": "transpose", "w": (4, 6, 3, 2)}, "forward only.*transpose"),
        ({"layout": "NHCW"}, "unknown layout for 2 spatial dimensions.*NHCW.*NCHW, NHWC"),
        ({"layout": "NCDHW"}, "unknown layout for 2"),
        ({"layout": ("NCHW", "NHWC")}, "one name, or three"),
        ({"layout": 7}, "unknown layout.*7"),
        ({"x": (2, 4, 9)}, "x needs 4 lengths"),
        ({"x": 5}, "x must be whole numbers"),
        ({"x": (2, 4.5, 9, 7)}, "x must be whole numbers"),
        ({"x": (2, 4, 9, 9, 7)}, "same number of dimensions"),
        ({"y": (2, 6, 7, 7, 6)}, "same number of dimensions"),
        ({"x": (-1, 4, 9, 7)}, "lengths must not be negative"),
        ({"x": (2, 0, 9, 7), "w": (6, 0, 3, 2)}, "1 or more"),
        ({"w": (0, 4, 3, 2)}, "1 or more"),
        ({"w": (6, 4, 0, 2)}, "1 or more"),
        ({"w": (6, 3, 3, 2)}, r"w must be \[K, C/groups, ...\] = \[6, 4, ...\]"),
        ({"groups": 2}, r"w must be .* = \[6, 2, ...\]"),
        ({"groups": 4}, "divisible by groups.*K=6, groups=4"),
        ({"groups": 0}, "groups must be 1 or more"),
        ({"groups": "two"}, "groups must be whole numbers"),
        ({"stride": 0}, "stride must be 1 or more"),
        ({"stride": (1, 2, 3)}, "stride needs one number, or 2"),
        ({"stride": "12"}, "stride must be whole numbers"),
        ({"dilation": (1, 0)}, "dilation must be 1 or more"),
        ({"pad": -1}, "pad must be 0 or more"),
        ({"pad": (1, 2, 3)}, "pad needs one number, 2 numbers"),
        ({"pad": ((1, 2), (3,))}, "pad needs one number, 2 numbers"),
        ({"w": (6, 4, 10, 2)}, r"filter is larger than the padded image on spatial axis 0.*= 10"),
        ({"w": (6, 4, 3, 5), "dilation": 2}, r"spatial axis 1 .*filter 5 with dilation 2 = 9"),
        ({"y": (2, 6, 7, 7)}, "extent of y on spatial axis 1 must be 6.*7"),
        ({"y": (1, 6, 7, 6)}, "same batch"),
        ({"y": (2, 5, 7, 6)}, r"w must be .* = \[5, 4, ...\]"),
        ({"output_padding": 1}, "output_padding needs mode transpose"),
        ({"mode": "transpose", "w": (4, 6, 3, 2), "output_padding": 1}, "less than the stride"),
        ({"mode": "transpose", "w": (4, 6, 3, 2), "pad": 9}, "output extent is less than 1 on spatial axis 0"),
        ({"mode": "transpose"}, r"w must be \[C, K/groups, ...\]"),
        ({"alpha": float("nan")}, "alpha must be a finite number.*nan"),
        ({"beta": float("inf")}, "beta must be a finite number.*inf"),
        ({"alpha": "half"}, "alpha must be a finite number.*half"),
        ({"y_strides": (6, 1, 6, 1)}, "output y must not overlap itself"),
        ({"direction": "bwd", "x_strides": (0, 63, 7, 1)}, "output x must not overlap itself"),
        ({"x_strides": (252, 63, 7.5, 1)}, "strides must be whole numbers"),
        ({"x_strides": (252, 63, 7)}, "as many strides"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_the_value(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        create(**changes)


def test_transposed_problems_with_other_channels_in_than_out() -> None:
    for groups in (1, 2):
        problem = create(
            x=(2, 6, 5, 5), w=(6, 4 // groups, 3, 3), mode="transpose", stride=2, pad=1, output_padding=1, groups=groups
        )
        assert problem.y.lengths == (2, 4, 10, 10)
        mirror = problem.canonical()
        assert (mirror.direction, mirror.mode) == ("bwd", "convolution")
        assert (mirror.c, mirror.k) == (4, 6)


@given(conv_problems(scaling=True, attributes=True))
def test_the_canonical_problem_is_in_convolution_mode_and_has_the_same_arrays(problem: ConvProblem) -> None:
    canonical = problem.canonical()
    assert canonical.mode == "convolution"
    assert canonical.canonical() is canonical
    roles = problem.canonical_roles()
    for role in problem.roles:
        assert canonical.tensor(roles[role]) == problem.tensor(role)
    assert roles[problem.output] == canonical.output
    assert {roles[role] for role in problem.inputs} == set(canonical.inputs)
    for name in ("flops", "min_bytes", "reduction_length", "reads_output", "is_empty", "alpha", "deterministic"):
        assert getattr(canonical, name) == getattr(problem, name), name


def test_counts() -> None:
    problem = create(stride=2, w=(6, 2, 3, 2), groups=2)  # y: 2, 6, 4, 3
    assert problem.flops == 2 * (2 * 6 * 4 * 3) * (2 * 3 * 2)
    assert problem.min_bytes == 4 * (2 * 4 * 9 * 7 + 6 * 2 * 3 * 2 + 2 * 6 * 4 * 3)
    lengths = {"fwd": 2 * 3 * 2, "bwd": 3 * (2 * 1), "wrw": 2 * 4 * 3}  # stride 2: every second tap meets a pixel
    for direction, length in lengths.items():
        assert dataclasses.replace(problem, direction=direction).reduction_length == length
    assert dataclasses.replace(problem, beta=2.0).min_bytes == problem.min_bytes + problem.y.nbytes


def test_sizes_are_exact_integers() -> None:
    problem = ConvProblem.create("fwd", (458752, 3, 2, 14, 14), (1280, 3, 2, 14, 14), stride=(2, 14, 14), dtype="bf16")
    assert problem.flops == 2 * 458752 * 1280 * 1176
    assert ConvProblem.create("fwd", (2**40, 2**20, 9, 9), (1, 2**20, 1, 1)).x.nbytes == 2**60 * 81 * 4


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    "shape",
    [
        {"x": (2, 1, 9, 7), "w": (1, 1, 3, 2)},
        {"x": (2, 4, 1, 1), "w": (6, 4, 1, 1)},
        {"x": (1, 1, 5, 1), "w": (1, 1, 5, 1)},
    ],
)
def test_strides_that_fit_both_layouts_make_one_problem(shape: dict[str, Any], layout: str) -> None:
    problem = create(**shape, layout=layout)
    assert problem == create(**shape)
    assert hash(problem) == hash(create(**shape))
    assert problem.layouts == ("NCHW",) * 3
    assert problem.is_channel_first and not problem.is_channel_last


def test_an_ambiguous_tensor_has_the_layout_of_the_others() -> None:
    problem = create(x=(4, 3, 14, 14), w=(8, 3, 14, 14), layout="NHWC")
    assert problem.y.layouts() == ("NCHW", "NHWC")
    assert problem.is_channel_last
    assert problem == create(x=(4, 3, 14, 14), w=(8, 3, 14, 14), layout=("NHWC", "NHWC", "NCHW"))


def test_strides_of_axes_of_length_one_do_not_make_another_problem() -> None:
    strides = {"x_strides": (10, 1, 10, 2), "w_strides": (2, 1, 77, 99)}
    problem = create(x=(1, 2, 1, 5), w=(3, 2, 1, 1), layout=("NCHW", "NCHW", "NHWC"), **strides)
    assert problem == create(x=(1, 2, 1, 5), w=(3, 2, 1, 1), layout="NHWC")


def test_negative_zero_and_whole_scales_do_not_make_another_problem() -> None:
    assert create(alpha=1, beta=-0.0) == create()
    assert repr(create(beta=-0.0)) == repr(create())


def test_the_constructor_checks_as_create_does() -> None:
    problem = create()
    with pytest.raises(ProblemError, match="beta must be a finite number"):
        dataclasses.replace(problem, beta=float("nan"))
    with pytest.raises(ProblemError, match="same batch"):
        dataclasses.replace(problem, y=TensorDescriptor.packed((1, 6, 7, 6)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.groups = 2  # type: ignore[misc]


@given(conv_problems(scaling=True))
def test_problems_made_from_the_arrays_of_a_problem_are_it(problem: ConvProblem) -> None:
    arrays = make_arrays(problem, seed=0)
    for role, array in arrays.items():
        tensor = problem.tensor(role)
        assert TensorDescriptor.of(array).canonical("") == tensor.canonical("") or tensor.elements == 0
        written = role in problem.inputs or problem.reads_output
        if tensor.dtype.is_float:
            assert np.isfinite(array.astype(np.float64)).all() == (written or array.size == 0)


def test_gaps_of_arrays_are_poison() -> None:
    problem = create(x=(2, 4, 2, 2), w=(3, 4, 1, 1), x_strides=(32, 4, 2, 1), dtype="bf16")
    x = make_arrays(problem, seed=0)["x"]
    buffer = x.base.astype(np.float32)
    assert buffer.size == problem.x.span_bytes // 2
    assert np.isnan(buffer).sum() == buffer.size - x.size
    assert problem.x.dtype is DType.BF16


def test_reduction_length_counts_only_the_taps_that_can_meet_a_pixel() -> None:
    """A tolerance that grows with the sum must not count products that never happen."""
    patch = {"x": (4, 3, 14, 14), "w": (40, 3, 14, 14)}
    assert ConvProblem.create("fwd", **patch, stride=14).reduction_length == 3 * 14 * 14
    assert ConvProblem.create("bwd", **patch, stride=14).reduction_length == 40
    assert ConvProblem.create("wrw", **patch, stride=14).reduction_length == 4
    strided = {"x": (2, 6, 20, 20), "w": (8, 3, 3, 5), "groups": 2}
    assert ConvProblem.create("bwd", **strided, stride=(2, 1)).reduction_length == 4 * 2 * 5
    assert ConvProblem.create("bwd", **strided, stride=2, dilation=2).reduction_length == 4 * 3 * 5
    transposed = ConvProblem.create("fwd", x=(2, 6, 5, 5), w=(6, 4, 3, 3), stride=2, mode="transpose")
    assert transposed.reduction_length == 6 * 2 * 2
