"""Problems and targets that every solver is asked about, whether it applies or not."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from hipfind.problem import ConvProblem, Problem, UpsampleProblem
from hipfind.target import KNOWN_TARGETS, Target, known

LAYOUTS: dict[int, tuple[Any, ...]] = {
    4: ("NCHW", "NHWC", ("NCHW", "NHWC", "NCHW"), ("NHWC", "NCHW", "NCHW"), ("NHWC", "NHWC", "NCHW")),
    5: ("NCDHW", "NDHWC", ("NDHWC", "NCDHW", "NCDHW")),
}
SHAPES: tuple[dict[str, Any], ...] = (
    {"x": (2, 4, 6, 5), "w": (6, 4, 3, 2)},
    {"x": (2, 4, 6, 5), "w": (6, 4, 3, 2), "stride": (2, 1), "pad": ((1, 0), (0, 2)), "dilation": (1, 2)},
    {"x": (3, 6, 7, 7), "w": (4, 3, 3, 3), "stride": 2, "pad": 1, "groups": 2},
    {"x": (2, 6, 9, 8), "w": (6, 1, 3, 3), "pad": 1, "groups": 6},
    {"x": (2, 4, 7, 6), "w": (6, 4, 1, 1)},
    {"x": (1, 4, 7, 6), "w": (6, 4, 1, 1), "dilation": (3, 2)},
    {"x": (2, 4, 7, 6), "w": (6, 2, 1, 1), "groups": 2},
    {"x": (2, 4, 7, 6), "w": (6, 4, 1, 1), "stride": 2},
    {"x": (1, 4, 7, 6), "w": (6, 2, 1, 1), "stride": 2, "groups": 2},
    {"x": (2, 4, 7, 6), "w": (6, 4, 1, 1), "stride": (2, 3)},
    {"x": (2, 4, 7, 6), "w": (6, 4, 1, 1), "pad": 1},
    {"x": (5, 4, 1, 1), "w": (6, 4, 1, 1)},
    {"x": (5, 4, 1, 1), "w": (6, 4, 1, 1), "stride": 2},
    {"x": (1, 1, 1, 1), "w": (1, 1, 1, 1)},
    {"x": (4, 3, 6, 7), "w": (8, 3, 6, 7), "stride": (6, 7)},
    {"x": (4, 3, 6, 7), "w": (8, 3, 6, 7), "stride": 1},
    {"x": (4, 3, 7, 9), "w": (8, 3, 6, 7), "stride": 7},
    {"x": (4, 4, 6, 7), "w": (8, 2, 6, 7), "groups": 2},
    {"x": (2, 1, 1, 1), "w": (1, 1, 3, 3), "pad": 2, "stride": 2},
    {"x": (2, 8, 17, 16), "w": (8, 1, 7, 7), "pad": 3, "groups": 8},
    {"x": (2, 4, 16, 15), "w": (4, 1, 3, 3), "pad": ((1, 0), (0, 1)), "stride": 2, "groups": 4},
    {"x": (2, 16, 6, 5), "w": (32, 16, 3, 3), "stride": 2, "pad": 1},
    {"x": (1, 32, 5, 4), "w": (48, 8, 3, 3), "pad": 1, "groups": 4},
    {"x": (2, 64, 4, 4), "w": (8, 64, 4, 4)},
    {"x": (0, 4, 6, 5), "w": (6, 4, 3, 2)},
    {"x": (2, 3, 4, 5, 6), "w": (4, 3, 2, 3, 2), "stride": (1, 2, 1), "pad": 1},
    {"x": (2, 4, 4, 5, 6), "w": (4, 2, 1, 1, 1), "groups": 2},
    {"x": (2, 4, 4, 5, 6), "w": (4, 4, 1, 1, 1), "stride": 2},
    {"x": (3, 3, 2, 4, 3), "w": (5, 3, 2, 4, 3), "stride": (2, 4, 3)},
    {"x": (3, 4, 5, 5, 5), "w": (8, 4, 4, 4, 4), "stride": 4},
)
DTYPES = ("fp32", "fp16", "bf16", "fp64")


def conv_problems() -> list[ConvProblem]:
    """Every shape in every direction, layout and float dtype, and what few solvers take: scaling, gaps, int8, modes."""
    made = [
        ConvProblem.create(direction, layout=layout, dtype=dtype, **shape)
        for shape in SHAPES
        for direction, dtype in itertools.product(("fwd", "bwd", "wrw"), DTYPES)
        for layout in LAYOUTS[len(shape["x"])]
    ]
    first, pointwise = SHAPES[0], SHAPES[4]
    for direction in ("fwd", "bwd", "wrw"):
        for shape in (first, pointwise):
            made += [
                ConvProblem.create(direction, alpha=2.0, **shape),
                ConvProblem.create(direction, beta=1.0, **shape),
                ConvProblem.create(direction, deterministic=True, **shape),
                ConvProblem.create(direction, compute="tf32", **shape),
                ConvProblem.create(direction, x_strides=(500, 60, 8, 1), **shape),
                ConvProblem.create(direction, y_strides=(900, 100, 12, 2), **shape),
            ]
        made.append(
            ConvProblem.create(direction, (2, 6, 5, 5), (6, 2, 3, 3), mode="transpose", groups=2, stride=2).canonical()
        )
    made += [ConvProblem.create("fwd", dtype=("int8", "int8", out), **first) for out in ("int8", "int32", "fp32")]
    return made


RESIZED: tuple[dict[str, Any], ...] = (
    {"x": (2, 3, 9, 5), "y": (2, 3, 18, 10)},
    {"x": (2, 16, 5, 9), "y": (2, 16, 10, 18), "align_corners": True},
    {"x": (1, 64, 4, 3), "y": (1, 64, 33, 40)},
    {"x": (2, 24, 7, 6), "scales": (1.7, 2.6)},
    {"x": (2, 3, 12, 20), "y": (2, 3, 5, 7)},
    {"x": (1, 1, 1, 1), "y": (1, 1, 700, 900)},
    {"x": (1, 2, 1, 6), "y": (1, 2, 4, 1), "align_corners": True},
    {"x": (0, 3, 9, 5), "y": (0, 3, 18, 10)},
    {"x": (1, 8, 4, 6), "y": (1, 8, 2, 3)},
    {"x": (1, 8, 3, 4), "y": (1, 8, 6, 8)},
    {"x": (1, 8, 3, 2), "y": (1, 8, 48, 32)},
)
ENLARGED: tuple[dict[str, Any], ...] = (
    {"x": (1, 8, 5, 16), "y": (1, 8, 10, 32)},
    {"x": (1, 8, 5, 16), "y": (1, 8, 10, 32), "align_corners": True},
    {"x": (1, 12, 4, 16), "y": (1, 12, 9, 64)},
    {"x": (1, 6, 3, 8), "y": (1, 6, 7, 128)},
    {"x": (1, 2, 3, 8), "y": (1, 2, 7, 256)},
)
"""Forward only: rows that divide by 16 bytes."""
RESIZED_IN = {"fp32": RESIZED, "bf16": RESIZED[1:2] + RESIZED[-2:], "fp16": RESIZED[1:2], "fp64": RESIZED[1:2]}
"""By dtype: kernels are the same for all but for the type, and each one costs a compilation for every kind of GPU."""


def upsample_problems() -> list[UpsampleProblem]:
    """Sizes in either layout and direction and every float dtype; gaps, mixed layouts, expanded scalars."""
    made = [
        UpsampleProblem.create(direction, dtype=dtype, layout=layout, **shape)
        for dtype, shapes in RESIZED_IN.items()
        for direction, layout in itertools.product(("fwd", "bwd"), ("NCHW", "NHWC"))
        for shape in (shapes + ENLARGED[: 5 if dtype in ("fp32", "bf16") else 2] if direction == "fwd" else shapes)
    ]
    more: tuple[dict[str, Any], ...] = (
        {"deterministic": True},
        {"y_strides": (900, 300, 12, 1)},
        {"y_strides": (540, 180, 1, 18), "x_strides": (200, 50, 5, 1)},
        {"y_strides": (0, 0, 0, 0)},
        {"x_strides": (135, 1, 15, 3)},
        {"x_strides": (300, 100, 11, 2)},
    )
    forward: tuple[dict[str, Any], ...] = (
        {"deterministic": True},
        {"x_strides": (300, 100, 11, 2)},
        {"x_strides": (135, 1, 15, 3), "y_strides": (540, 180, 1, 18)},
        {"x_strides": (0, 0, 0, 0)},
        {"y_strides": (540, 1, 30, 3)},
    )
    made += [UpsampleProblem.create("bwd", **RESIZED[0], **attributes) for attributes in more]
    return made + [UpsampleProblem.create("fwd", **RESIZED[0], **attributes) for attributes in forward]


PROBLEMS: dict[str, Sequence[Problem]] = {"conv": conv_problems(), "upsample": upsample_problems()}
"""By operation: what its solvers are asked about."""


def targets() -> list[Target]:
    """Every known target, and hosts that lack something: a compiler, memory, a dtype, room for indices."""
    host = known("x86_64")
    return [
        *KNOWN_TARGETS,
        dataclasses.replace(host, name="no compiler", kernels=False),
        dataclasses.replace(host, name="little memory", memory_bytes=1000),
        dataclasses.replace(host, name="fp32 only", peak_tflops=(("fp32", 0.2),)),
        dataclasses.replace(host, name="few items", max_items=10),
    ]
