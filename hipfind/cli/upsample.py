"""``hipfind upsample``: find, immediate and explain for bilinear 2D resizing and its gradient."""

from __future__ import annotations

import functools
from typing import Any

import click

from hipfind.cli.explain import explain_options, run_explain
from hipfind.cli.find import find_options, run_find
from hipfind.cli.immediate import immediate_options, run_immediate
from hipfind.cli.options import AnyFunction
from hipfind.problem.tensor import LAYOUTS
from hipfind.problem.upsample import DIRECTIONS, UpsampleProblem

_DTYPES = ("fp32", "fp16", "bf16", "fp64")


@click.group("upsample", no_args_is_help=False)
def upsample() -> None:
    """Find, rank or explain the solvers of bilinear 2D resizing or its gradient (upsample_bilinear2d, its backward).

    A problem is named by the size of the image and that of the resized one, or by its scale. What was measured is kept
    in the perf DB and seen by `hipfind db`, as for convolutions; `hipfind find --key` takes these problems' keys too.
    """


def upsample_options(function: AnyFunction) -> AnyFunction:
    """The problem by its sizes; the function gets ``problems``, a list of one."""

    @click.option("--direction", type=click.Choice(DIRECTIONS), default="bwd", show_default=True,
                  help="fwd: y from x; bwd: dx from dy")  # fmt: skip
    @click.option("--batchsize", "-n", metavar="INT", type=int, default=1, show_default=True, help="batch size")
    @click.option("--in_channels", "-c", metavar="INT", type=int, default=3, show_default=True, help="channels")
    @click.option("--in_h", "-H", metavar="INT", type=int, required=True, help="height of the image: of x, dx")
    @click.option("--in_w", "-W", metavar="INT", type=int, required=True, help="width of the image: of x, dx")
    @click.option("--out_h", metavar="INT", type=int, help="height of the resized image: of y, dy")
    @click.option("--out_w", metavar="INT", type=int, help="width of the resized image: of y, dy")
    @click.option(
        "--scale",
        metavar="FLOAT",
        type=float,
        multiple=True,
        help="scale factor that the forward pass used, given twice for height and width; sizes follow from it",
    )
    @click.option("--align_corners", is_flag=True, help="centres of the corner pixels coincide")
    @click.option("--layout", "-I", type=click.Choice(LAYOUTS[2], case_sensitive=False), default="NCHW",
                  show_default=True, help="layout of both tensors")  # fmt: skip
    @click.option("--dtype", type=click.Choice(_DTYPES), default="fp32", show_default=True, help="Element type.")
    @click.option("--deterministic", is_flag=True, help="Leave out solvers whose sums have no fixed order.")
    @functools.wraps(function)
    def call(
        direction: str,
        batchsize: int,
        in_channels: int,
        in_h: int,
        in_w: int,
        out_h: int | None,
        out_w: int | None,
        scale: tuple[float, ...],
        align_corners: bool,
        layout: str,
        dtype: str,
        deterministic: bool,
        **arguments: Any,
    ) -> Any:
        if (out_h is None) != (out_w is None) or (out_h is None and not scale):
            raise click.UsageError("the resized image is named by --out_h and --out_w, or by --scale")
        problem = UpsampleProblem.create(
            direction,
            (batchsize, in_channels, in_h, in_w),
            None if out_h is None or out_w is None else (batchsize, in_channels, out_h, out_w),
            align_corners=align_corners,
            scales=scale[0] if len(scale) == 1 else scale or None,
            dtype=dtype,
            layout=layout.upper(),
            deterministic=deterministic,
        )
        return function(problems=[problem], **arguments)

    return call


@upsample.command("find")
@upsample_options
@find_options
def find(**arguments: Any) -> int:
    """Find the fastest solver of a resize or its gradient: measure what the perf DB does not know, and store it."""
    return run_find(**arguments)


@upsample.command("immediate")
@upsample_options
@immediate_options
def immediate(**arguments: Any) -> int:
    """Rank solutions of a resize or its gradient without running anything: by the perf DB, else by expected time."""
    return run_immediate(**arguments)


@upsample.command("explain")
@upsample_options
@explain_options
def explain(**arguments: Any) -> None:
    """Explain the solvers' part in a resize or its gradient: applicable or why not, estimate, workspace, DB record."""
    run_explain(**arguments)
