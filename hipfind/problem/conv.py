"""ConvProblem: a convolution in one direction, 2D or 3D, as a frozen value with all its rules checked.

Directions: ``fwd`` y = conv(x, w); ``bwd`` dx from (dy, w); ``wrw`` dw from (dy, x). The roles are named x, w, y in
all three: x is x or dx, w is w or dw, y is y or dy.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hipfind.problem import conv_rules as rules
from hipfind.problem.base import Float64Array
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import LAYOUTS, TensorDescriptor, whole_numbers

DIRECTIONS = rules.DIRECTIONS
MODES = rules.MODES
_INPUTS = {"fwd": ("x", "w"), "bwd": ("y", "w"), "wrw": ("y", "x")}
_OUTPUT = {"fwd": "y", "bwd": "x", "wrw": "w"}


@dataclasses.dataclass(frozen=True)
class ConvProblem:
    """A convolution in one direction.

    x: [N, C, *in], w: [K, C/groups, *filter], y: [N, K, *out] (mode "transpose": w is [C, K/groups, *filter] and y is
    the larger image, as in torch's conv_transpose). ``pad`` is the padding before each axis, ``pad_end`` after it.
    The result is ``alpha * conv + beta * former output``. ``compute`` is the accumulation type: "" for the usual one
    (fp32 for 16-bit types), "tf32" to allow reduced products of fp32.

    Use ``create``; the constructor takes finished descriptors. Raises ProblemError where a rule is broken.
    """

    direction: str
    x: TensorDescriptor
    w: TensorDescriptor
    y: TensorDescriptor
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    pad_end: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    mode: str = "convolution"
    alpha: float = 1.0
    beta: float = 0.0
    deterministic: bool = False
    compute: str = ""
    layout_hint: tuple[str, str, str] | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        rules.check(self)
        object.__setattr__(self, "alpha", rules.number("alpha", self.alpha))
        object.__setattr__(self, "beta", rules.number("beta", self.beta))
        layouts = rules.joint_layouts(self.x, self.w, self.y)
        for role, layout in zip("xwy", layouts, strict=True):
            object.__setattr__(self, role, self.tensor(role).canonical(layout))
        object.__setattr__(self, "layouts", layouts)

    layouts: tuple[str, str, str] = dataclasses.field(init=False, compare=False, repr=False)
    """Layout of x, w, y: the first one common to all three where there is one, "" for a tensor that is not packed."""

    @classmethod
    def create(
        cls,
        direction: str,
        x: Sequence[int],
        w: Sequence[int],
        y: Sequence[int] | None = None,
        *,
        stride: int | Sequence[int] = 1,
        pad: int | Sequence[Any] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        dtype: object = "fp32",
        layout: str | Sequence[str] = "",
        mode: str = "convolution",
        output_padding: int | Sequence[int] = 0,
        alpha: float = 1.0,
        beta: float = 0.0,
        deterministic: bool = False,
        compute: str = "",
        x_strides: Sequence[int] | None = None,
        w_strides: Sequence[int] | None = None,
        y_strides: Sequence[int] | None = None,
    ) -> ConvProblem:
        """A problem from lengths in logical order.

        ``x``, ``w``: lengths; ``y``: lengths, computed when None. ``stride``, ``dilation``: one number or one an axis.
        ``pad``: one number, one an axis, or (begin, end) an axis. ``layout``: "NCHW", "NHWC", "NCDHW", "NDHWC", one for
        all tensors or one each for x, w, y; ``*_strides`` (elements, logical order) override it. ``dtype``: one for
        all, or a sequence for x, w, y. Raises ProblemError saying which rule is broken, by what value.
        """
        direction, mode = str(direction), rules.mode_name(str(mode))
        (group_count,) = whole_numbers("groups", (groups,))
        x_lengths, w_lengths = rules.lengths_of("x", x), rules.lengths_of("w", w)
        ndim = len(x_lengths) - 2
        steps = rules.per_axis("stride", stride, ndim)
        dilations = rules.per_axis("dilation", dilation, ndim)
        begin, end = rules.pads("pad", pad, ndim)
        if y is None:
            extra = rules.per_axis("output_padding", output_padding, ndim)
            y_lengths = rules.output_lengths(
                x_lengths, w_lengths, steps, begin, end, dilations, groups=group_count, mode=mode, output_padding=extra
            )
        else:
            y_lengths = rules.lengths_of("y", y)
            rules.check_ranks(x_lengths, w_lengths, y_lengths)
        hint = rules.layout_names(layout, ndim)
        tensors = (
            TensorDescriptor.packed(lengths, one, name)
            if strides is None
            else TensorDescriptor(one, lengths, whole_numbers("strides", strides))
            for one, lengths, name, strides in zip(
                rules.dtype_triple(dtype),
                (x_lengths, w_lengths, y_lengths),
                hint,
                (x_strides, w_strides, y_strides),
                strict=True,
            )
        )
        x_tensor, w_tensor, y_tensor = tensors
        return cls(
            direction, x_tensor, w_tensor, y_tensor, steps, begin, end, dilations, group_count, mode, alpha, beta,
            bool(deterministic), str(compute), hint if x_strides is w_strides is y_strides is None else None,
        )  # fmt: skip

    @classmethod
    def from_key(cls, key: str) -> ConvProblem:
        """Inverse of ``key``. Raises ParseError."""
        from hipfind.problem.conv_key import parse_key

        return parse_key(key)

    @classmethod
    def from_miopen_key(cls, key: str) -> ConvProblem:
        """Problem from a MIOpen find-db key, e.g. ``3-14-14-14x14-1280-1-1-9500-0x0-14x14-1x1-0-NCHW-BF16-F``.

        Raises ParseError for text that is not a key, ProblemError for one whose extents contradict each other.
        """
        from hipfind.problem.miopen_key import parse_miopen_key

        return parse_miopen_key(key)

    @classmethod
    def from_driver_command(cls, command: str) -> list[ConvProblem]:
        """Problems of a MIOpenDriver command line: one a direction that ``-F`` asks for. Raises ParseError."""
        from hipfind.problem.driver import parse_command

        return parse_command(command).problems()

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Computed once: look-ups by problem are on the path of every call."""
        return hash(tuple(getattr(self, field.name) for field in dataclasses.fields(self) if field.compare))

    # what Problem asks for ------------------------------------------------------------------------------------------

    @property
    def operation(self) -> str:
        return "conv"

    @property
    def inputs(self) -> tuple[str, ...]:
        return _INPUTS[self.direction]

    @property
    def output(self) -> str:
        return _OUTPUT[self.direction]

    @property
    def roles(self) -> tuple[str, ...]:
        return ("x", "w", "y")

    def tensor(self, role: str) -> TensorDescriptor:
        return {"x": self.x, "w": self.w, "y": self.y}[role]

    @property
    def is_empty(self) -> bool:
        return self.n == 0

    @functools.cached_property
    def flops(self) -> int:
        image = self.y if self.mode == "convolution" else self.x
        return 2 * image.elements * self.w.elements // max(self.w.lengths[0], 1)

    @functools.cached_property
    def min_bytes(self) -> int:
        again = self.tensor(self.output).nbytes if self.reads_output else 0
        return self.x.nbytes + self.w.nbytes + self.y.nbytes + again

    @property
    def reads_output(self) -> bool:
        return self.beta != 0.0

    @property
    def reduction_length(self) -> int:
        p = self.canonical()
        if p.direction == "wrw":
            return p.n * math.prod(p.out_spatial)
        if p.direction == "fwd":
            return p.w.elements // p.k
        # of a filter's taps only one in stride / gcd(stride, dilation) can meet a given pixel
        steps = (stride // math.gcd(stride, dilation) for stride, dilation in zip(p.stride, p.dilation, strict=True))
        meeting = (-(-taps // step) for taps, step in zip(p.filter, steps, strict=True))
        return p.k // p.groups * math.prod(map(min, meeting, p.out_spatial))

    def canonical(self) -> ConvProblem:
        """The equal problem in convolution mode: a transposed convolution is the other data direction of its mirror."""
        return self._canonical

    @functools.cached_property
    def _canonical(self) -> ConvProblem:
        if self.mode == "convolution":
            return self
        direction = {"fwd": "bwd", "bwd": "fwd", "wrw": "wrw"}[self.direction]
        hint = None if self.layout_hint is None else (self.layout_hint[2], self.layout_hint[1], self.layout_hint[0])
        return dataclasses.replace(self, direction=direction, x=self.y, y=self.x, mode="convolution", layout_hint=hint)

    def canonical_roles(self) -> Mapping[str, str]:
        if self.mode == "convolution":
            return {"x": "x", "w": "w", "y": "y"}
        return {"x": "y", "w": "w", "y": "x"}

    def key(self) -> str:
        """Complete key in text form; ``from_key`` inverts it. See conv_key for the fields."""
        return self._key

    @functools.cached_property
    def _key(self) -> str:
        from hipfind.problem.conv_key import encode_key

        return encode_key(self)

    def miopen_key(self) -> str:
        """MIOpen's find-db key, byte for byte. Raises ProblemError for what such a key cannot say."""
        from hipfind.problem.miopen_key import encode_miopen_key

        return encode_miopen_key(self)

    def facts(self) -> Mapping[str, int | str]:
        from hipfind.problem.conv_key import facts_of

        return facts_of(self)

    def reference(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> Float64Array:
        from hipfind.problem.reference import conv_reference

        return conv_reference(self, arrays)

    def reference_at(
        self, arrays: Mapping[str, npt.NDArray[np.generic]], indices: npt.NDArray[np.int64]
    ) -> Float64Array:
        from hipfind.problem.reference import conv_reference_at

        return conv_reference_at(self, arrays, indices)

    def usual_size(self, arrays: Mapping[str, npt.NDArray[Any]]) -> float:
        from hipfind.problem.reference import conv_usual_size

        return conv_usual_size(self, arrays)

    # what solvers ask ------------------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Batch size."""
        return self.x.lengths[0]

    @property
    def c(self) -> int:
        """Channels of x."""
        return self.x.lengths[1]

    @property
    def k(self) -> int:
        """Channels of y."""
        return self.y.lengths[1]

    @property
    def ndim(self) -> int:
        """Spatial dimensions: 2 or 3."""
        return len(self.x.lengths) - 2

    @property
    def in_spatial(self) -> tuple[int, ...]:
        return self.x.lengths[2:]

    @property
    def filter(self) -> tuple[int, ...]:
        return self.w.lengths[2:]

    @property
    def out_spatial(self) -> tuple[int, ...]:
        return self.y.lengths[2:]

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    @property
    def is_packed(self) -> bool:
        return "" not in self.layouts

    @property
    def is_channel_first(self) -> bool:
        """All three tensors are packed NCHW or NCDHW."""
        return self.layouts == (LAYOUTS[self.ndim][0],) * 3

    @property
    def is_channel_last(self) -> bool:
        """All three tensors are packed NHWC or NDHWC, and not also channel-first."""
        return self.layouts == (LAYOUTS[self.ndim][1],) * 3

    @property
    def has_default_scaling(self) -> bool:
        """alpha 1 and beta 0: what most solvers ask for."""
        return self.alpha == 1.0 and self.beta == 0.0
