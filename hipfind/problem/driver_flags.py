"""MIOpenDriver's flags for a convolution, as data: the command line parser and ``hipfind conv`` are both built from it.

Names, short names and defaults are MIOpen's (``driver/conv_driver.hpp``, with the flags that newer versions added).
Depth flags count for ``--spatial_dim 3`` only; lists made by tools hold any value there for 2D problems.
"""

from __future__ import annotations

import dataclasses

from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import LAYOUTS

BASES: dict[str, DType] = {
    "conv": DType.FP32,
    "convfp32": DType.FP32,
    "convfp16": DType.FP16,
    "convbfp16": DType.BF16,
    "convint8": DType.INT8,
    "convfp64": DType.FP64,
}
"""Base argument (first word after the program's name) -> dtype of x and w. MIOpen has no convfp64."""

_LAYOUT_NAMES = ("", *(name for names in LAYOUTS.values() for name in names))


@dataclasses.dataclass(frozen=True)
class Flag:
    """One flag of the command line. The default's type is the value's type: int or str."""

    long: str
    short: str
    default: int | str
    help: str
    choices: tuple[int | str, ...] = ()
    """Every legal value; empty where any value is."""
    least: int | None = None
    """Smallest legal number, where there is one."""
    only: str = ""
    """Why hipfind takes nothing but the default; "" where other values are taken."""

    @property
    def kind(self) -> type[int] | type[str]:
        return type(self.default)

    @property
    def is_layout(self) -> bool:
        """True for a memory layout, which may be given in lower case."""
        return self.choices == _LAYOUT_NAMES


_NO_VECTOR = "vectorized layouts (NCHWc, CHWNc) are not supported"
_NO_CAST = "fp8 and bf8 casts are not supported"
_NO_BIAS = "a bias is not part of a convolution problem"

_PROBLEM = (
    Flag("spatial_dim", "_", 2, "spatial dimensions: 2 or 3", choices=(2, 3)),
    Flag("batchsize", "n", 100, "batch size"),
    Flag("in_channels", "c", 3, "channels of x"),
    Flag("in_d", "!", 32, "input depth (3D)"),
    Flag("in_h", "H", 32, "input height"),
    Flag("in_w", "W", 32, "input width"),
    Flag("out_channels", "k", 32, "channels of y"),
    Flag("fil_d", "@", 3, "filter depth (3D)"),
    Flag("fil_h", "y", 3, "filter height"),
    Flag("fil_w", "x", 3, "filter width"),
    Flag("conv_stride_d", "#", 1, "stride along the depth (3D)"),
    Flag("conv_stride_h", "u", 1, "stride along the height"),
    Flag("conv_stride_w", "v", 1, "stride along the width"),
    Flag("pad_d", "$", 0, "zero padding on both sides of the depth (3D)"),
    Flag("pad_h", "p", 0, "zero padding on both sides of the height"),
    Flag("pad_w", "q", 0, "zero padding on both sides of the width"),
    Flag("pad_val", "r", 0, "value of the padding", only="padding is by zeros"),
    Flag("dilation_d", "^", 1, "dilation of the filter depth (3D)"),
    Flag("dilation_h", "l", 1, "dilation of the filter height"),
    Flag("dilation_w", "j", 1, "dilation of the filter width"),
    Flag("trans_output_pad_d", "%", 0, "extra output depth of a transposed convolution (3D)"),
    Flag("trans_output_pad_h", "Y", 0, "extra output height of a transposed convolution"),
    Flag("trans_output_pad_w", "X", 0, "extra output width of a transposed convolution"),
    Flag("group_count", "g", 1, "number of groups", least=1),
    Flag("mode", "m", "conv", "conv, or trans for a transposed convolution", choices=("conv", "trans")),
    Flag(
        "pad_mode",
        "z",
        "default",
        "default: the pads given; same or valid: pads computed as MIOpen does",
        choices=("default", "same", "valid"),
    ),
    Flag(
        "forw",
        "F",
        0,
        "direction: 1 forward, 2 backward data, 4 backward weights, sums, 0 all",
        choices=tuple(range(8)),
    ),
    Flag("in_layout", "I", "", "layout of x (channel-first by default)", choices=_LAYOUT_NAMES),
    Flag("fil_layout", "f", "", "layout of w (channel-first by default)", choices=_LAYOUT_NAMES),
    Flag("out_layout", "O", "", "layout of y (channel-first by default)", choices=_LAYOUT_NAMES),
    Flag("math_type", "M", 1, "0: fp32 products may be rounded to tf32; 1: full precision", choices=(0, 1)),
    Flag("tensor_vect", "Z", 0, "vectorized layout", only=_NO_VECTOR),
    Flag("vector_length", "L", 1, "length of a vectorized layout's vector", only=_NO_VECTOR),
    Flag("in_cast_type", "U", "-1", "type to cast x to", only=_NO_CAST),
    Flag("out_cast_type", "T", "-1", "type to cast y to", only=_NO_CAST),
    Flag("wei_cast_type", "R", "-1", "type to cast w to", only=_NO_CAST),
    Flag("bias", "b", 0, "add a bias", only=_NO_BIAS),
    Flag("in_bias", "a", "", "file with the bias", only=_NO_BIAS),
)

_RUN = (
    Flag("iter", "i", 10, "timed iterations", least=1),
    Flag("verify", "V", 1, "1: compare with a reference"),
    Flag("verification_cache", "C", "", "folder that keeps reference results from run to run"),
    Flag("time", "t", 0, "1: print the device time"),
    Flag(
        "wall", "w", 0, "1: print the wall-clock time too; 2: the same, since all runs are warmed up", choices=(0, 1, 2)
    ),
    Flag("search", "s", 0, "1: tune tunable solvers"),
    Flag("printconv", "P", 1, "1: print the problem"),
    Flag("dump_output", "o", 0, "1: write the tensors to dump_*.bin here"),
    Flag("in_data", "d", "", "file with x, plain elements in memory order"),
    Flag("weights", "e", "", "file with w, plain elements in memory order"),
    Flag("dout_data", "D", "", "file with dy, plain elements in memory order"),
    Flag("solution", "S", "-1", "-1: Find; 0: fastest in immediate mode; else the solver's id or name"),
    Flag("gpualloc", "G", 0, "1: make the inputs on the device"),
    Flag("gpubuffer_check", "~", 0, "1, 2: look for writes before, after the buffers", choices=(0, 1, 2)),
    Flag("init_output_nan", "N", 0, "1: fill the outputs with NaN before the run, which is always done"),
    Flag(
        "tuning_policy",
        "&",
        0,
        "what Find does about perf configs, by MIOpen's numbers 1 to 5; 0: as HIPFIND_FIND_ENFORCE says",
        choices=tuple(range(6)),
    ),
    Flag("use_hip_graph", "J", 0, "1: replay the run as a recorded graph (GPUs)"),
)

FLAGS: tuple[Flag, ...] = _PROBLEM + _RUN
"""Every flag; those that describe the problem before those that say how to run it."""
PROBLEM_FLAGS: tuple[Flag, ...] = _PROBLEM
