"""UpsampleProblem: bilinear 2D resizing, or its gradient, as a frozen value with all its rules checked.

Forward, output pixel (oh, ow) reads the input at (source(oh), source(ow)), between pixel centres linearly, with torch's
coordinates::

    align_corners:  source(o) = o * (in - 1) / (out - 1)                       (0 where out is 1)
    otherwise:      source(o) = max(0, (o + 1/2) * step - 1/2),  step = in / out, or 1 / scale where a scale is given

limited to the last pixel. An axis whose size stays the same is copied, whatever the scale (as torch does on CPUs). A
pixel of weight 0 does not count: what is not finite reaches the outputs that have a weight for it, and no others.
Backward, every pixel of dx sums the elements of dy that read it, each by its weight.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hipfind.errors import ProblemError
from hipfind.problem.base import Float64Array
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import TensorDescriptor, joint_layouts, whole_numbers

DIRECTIONS = ("fwd", "bwd")
FIELDS: Mapping[str, Mapping[str, str]] = {"fwd": {"x": "x", "y": "y"}, "bwd": {"dy": "y", "dx": "x"}}
"""By direction: the problem's fields by the roles that they have, the input's first."""
_AXES = ("height", "width")
_MAX_PRODUCT = 2**60
"""Of an axis' two extents: coordinates are exact numbers of 64 bits."""

Scales = tuple[float | None, float | None]


class Axis(NamedTuple):
    """One resized axis: extents of x and y along it, and the scale (output pixels an input pixel) if one is given."""

    size: int
    out: int
    scale: float | None
    align_corners: bool

    @property
    def step(self) -> float:
        """Distance in the input between neighbouring output pixels."""
        if self.align_corners:
            return (self.size - 1) / (self.out - 1) if self.out > 1 else 0.0
        return self.size / self.out if self.scale is None else 1.0 / self.scale


@dataclasses.dataclass(frozen=True)
class UpsampleProblem:
    """Bilinear 2D resizing of x [N, C, H, W] to y [N, C, out H, out W], of more or fewer pixels; "bwd": its gradient.

    Forward the roles of ``x`` and ``y`` are called x and y; backward they are dx and dy, and dy is the input.
    ``scales``: the scale factors (height, width) that the forward pass was called with and used for its coordinates
    (torch's ``scale_factor`` with ``recompute_scale_factor`` off), None where it used the sizes. Kept only where they
    make a difference. The result is written, never added to what the output held.

    Use ``create``; the constructor takes finished descriptors. Raises ProblemError where a rule is broken.
    """

    direction: str
    x: TensorDescriptor
    y: TensorDescriptor
    align_corners: bool = False
    scales: Scales = (None, None)
    deterministic: bool = False

    def __post_init__(self) -> None:
        _check(self)
        object.__setattr__(self, "align_corners", bool(self.align_corners))
        object.__setattr__(self, "scales", tuple(_effective(axis) for axis in self.axes))
        layouts = joint_layouts(*(self.tensor(role) for role in self.roles))
        for (role, field), layout in zip(FIELDS[self.direction].items(), layouts, strict=True):
            object.__setattr__(self, field, self.tensor(role).canonical(layout))
        object.__setattr__(self, "layouts", layouts)

    layouts: tuple[str, ...] = dataclasses.field(init=False, compare=False, repr=False)
    """Layout of the input and the output: the first one common to both where there is one, "" for one with gaps."""

    @classmethod
    def create(
        cls,
        direction: str,
        x: Sequence[int],
        y: Sequence[int] | None = None,
        *,
        align_corners: bool = False,
        scales: float | Sequence[float | None] | None = None,
        dtype: object = "fp32",
        layout: str = "",
        deterministic: bool = False,
        x_strides: Sequence[int] | None = None,
        y_strides: Sequence[int] | None = None,
    ) -> UpsampleProblem:
        """A problem from lengths in logical order N, C, H, W.

        ``x``: lengths of the image, or of its gradient; ``y``: of the resized one, or None to have them computed from
        ``scales``: one factor or (height, width). ``layout``: "NCHW" or "NHWC" for both; ``*_strides`` (elements,
        logical order) override it. Raises ProblemError saying which rule is broken, by what value.
        """
        _check_direction(str(direction))
        names = _names(str(direction))
        factors = _factors(scales)
        x_lengths = whole_numbers(names.x, x)
        y_lengths = _output_lengths(names, x_lengths, factors) if y is None else whole_numbers(names.y, y)
        kind = DType.parse(dtype)
        image, resized = (
            TensorDescriptor.packed(lengths, kind, layout)
            if strides is None
            else TensorDescriptor(kind, lengths, whole_numbers(f"{name}_strides", strides))
            for name, lengths, strides in ((names.x, x_lengths, x_strides), (names.y, y_lengths, y_strides))
        )
        return cls(str(direction), image, resized, bool(align_corners), factors, bool(deterministic))

    @classmethod
    def from_key(cls, key: str) -> UpsampleProblem:
        """Inverse of ``key``. Raises ParseError."""
        from hipfind.problem.upsample_key import parse_key

        return parse_key(key)

    # what Problem asks for ------------------------------------------------------------------------------------------

    @property
    def operation(self) -> str:
        return "upsample"

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.roles[:1]

    @property
    def output(self) -> str:
        return self.roles[1]

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(FIELDS[self.direction])

    def tensor(self, role: str) -> TensorDescriptor:
        return {"x": self.x, "y": self.y}[FIELDS[self.direction][role]]

    @property
    def is_empty(self) -> bool:
        return self.n == 0

    @property
    def flops(self) -> int:
        """An element of y has four weights, each multiplied and added once, in either direction."""
        return 8 * self.y.elements

    @property
    def min_bytes(self) -> int:
        return self.x.nbytes + self.y.nbytes

    @property
    def reads_output(self) -> bool:
        return False

    @functools.cached_property
    def reduction_length(self) -> int:
        """Inputs that reach one output at most, each counted four times: two weights and two products round."""
        from hipfind.problem.upsample_reference import most_terms

        return 4 * most_terms(self)

    @property
    def compute(self) -> str:
        """Sums are kept in the usual type: fp32, or fp64 for fp64."""
        return ""

    def usual_size(self, arrays: Mapping[str, npt.NDArray[Any]]) -> float:
        from hipfind.problem.upsample_reference import usual_size

        return usual_size(self, arrays)

    def canonical(self) -> UpsampleProblem:
        return self

    def canonical_roles(self) -> Mapping[str, str]:
        return {role: role for role in self.roles}

    def key(self) -> str:
        """Complete key in text form; ``from_key`` inverts it. See upsample_key for the fields."""
        return self._key

    @functools.cached_property
    def _key(self) -> str:
        from hipfind.problem.upsample_key import encode_key

        return encode_key(self)

    def facts(self) -> Mapping[str, int | str]:
        from hipfind.problem.upsample_key import facts_of

        return facts_of(self)

    def reference(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> Float64Array:
        from hipfind.problem.upsample_reference import upsample_reference

        return upsample_reference(self, arrays)

    def reference_at(
        self, arrays: Mapping[str, npt.NDArray[np.generic]], indices: npt.NDArray[np.int64]
    ) -> Float64Array:
        from hipfind.problem.upsample_reference import upsample_reference_at

        return upsample_reference_at(self, arrays, indices)

    # what solvers ask ------------------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Batch size."""
        return self.x.lengths[0]

    @property
    def c(self) -> int:
        """Channels."""
        return self.x.lengths[1]

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """Height and width."""
        first, second = (
            Axis(size, out, scale, self.align_corners)
            for size, out, scale in zip(self.x.lengths[2:], self.y.lengths[2:], self.scales, strict=True)
        )
        return first, second


class _Names(NamedTuple):
    """What x and y are called in a direction's messages."""

    x: str
    y: str


def _names(direction: str) -> _Names:
    role_of = {field: role for role, field in FIELDS[direction].items()}
    return _Names(role_of["x"], role_of["y"])


def _factors(scales: float | Sequence[float | None] | None) -> Scales:
    """One factor an axis from None, one number or two; an axis' factor may be None."""
    if scales is None:
        return (None, None)
    values = tuple(scales) if isinstance(scales, Sequence) else (scales, scales)
    if len(values) != 2:
        raise ProblemError("scales needs one number, or two for height and width", got=f"{scales}")
    return (_factor(values[0]), _factor(values[1]))


def _factor(value: float | None) -> float | None:
    if value is None:
        return None
    try:
        factor = float(value)
    except (TypeError, ValueError, OverflowError):
        factor = math.nan
    if not (math.isfinite(factor) and factor > 0.0 and math.isfinite(1.0 / factor)):
        raise ProblemError("scales must be finite numbers greater than 0", got=f"{value!r}")
    return factor


def _output_lengths(names: _Names, x: tuple[int, ...], scales: Scales) -> tuple[int, ...]:
    if len(x) != 4:
        raise ProblemError(f"{names.x} needs 4 lengths (N, C, H, W)", got=f"{names.x}={x}")
    if None in scales:
        raise ProblemError(f"the output's size needs {names.y} or a scale for height and width", got=f"scales={scales}")
    return (*x[:2], *(_scaled(size, scale) for size, scale in zip(x[2:], scales, strict=True) if scale is not None))


def _scaled(size: int, scale: float) -> int:
    """Output extent of an axis, as torch computes it."""
    product = size * scale
    if product > _MAX_PRODUCT:
        raise ProblemError("a scaled size must be at most 2^60", got=f"{size} * {scale!r}")
    return math.floor(product)


def _effective(axis: Axis) -> float | None:
    """The scale where it changes the coordinates, else None."""
    if axis.align_corners or axis.scale is None or axis.size == axis.out or 1.0 / axis.scale == axis.size / axis.out:
        return None
    return axis.scale


def _check_direction(direction: str) -> None:
    if direction not in DIRECTIONS:
        raise ProblemError(
            "unknown direction of an upsampling problem", got=direction, remedy="legal: " + ", ".join(DIRECTIONS)
        )


def _check(problem: UpsampleProblem) -> None:
    """Raise ProblemError for the first rule that the problem breaks."""
    _check_direction(problem.direction)
    first, second = problem.roles
    into, out = problem.tensor(first), problem.tensor(second)
    names = f"{first} and {second}"
    both = f"{first}={into.lengths}, {second}={out.lengths}"
    if len(into.lengths) != 4 or len(out.lengths) != 4:
        raise ProblemError(f"{names} need 4 lengths (N, C, H, W)", got=both)
    if into.dtype is not out.dtype or not out.dtype.is_float:
        raise ProblemError(
            f"{names} must have the same float dtype", got=f"{first} {into.dtype.value}, {second} {out.dtype.value}"
        )
    if any(length < 1 for length in (*into.lengths[1:], *out.lengths[1:])):
        raise ProblemError(f"{names} need channels and sizes of 1 or more (only the batch may be 0)", got=both)
    if into.lengths[:2] != out.lengths[:2]:
        raise ProblemError(f"{names} need the same batch and channels", got=both)
    _check_sizes(problem)
    if out.overlaps_itself():
        raise ProblemError(
            f"the output {second} must not overlap itself in memory",
            got=f"lengths {out.lengths}, strides {out.strides}",
        )


def _check_sizes(problem: UpsampleProblem) -> None:
    factors, (x, y) = _factors(problem.scales), _names(problem.direction)
    for name, size, out, scale in zip(_AXES, problem.x.lengths[2:], problem.y.lengths[2:], factors, strict=True):
        if size * out > _MAX_PRODUCT:
            raise ProblemError(f"{name} of {x} times {name} of {y} must be at most 2^60", got=f"{size} and {out}")
        if scale is not None and _scaled(size, scale) != out:
            raise ProblemError(
                f"{name} of {y} must be floor({name} of {x} * scale) = {_scaled(size, scale)}",
                got=f"{x}={problem.x.lengths}, {y}={problem.y.lengths}, scale {scale!r}",
            )
