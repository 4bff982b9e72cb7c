"""The Python find API: find, immediate, plan, explain, and the one-shot convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipfind.device.base import Device
from hipfind.device.devices import DeviceInfo, list_devices
from hipfind.find import engine
from hipfind.find import immediate as immediate_mode
from hipfind.find.plan import Plan, make_plan
from hipfind.find.report import Choice, Explanation, FindReport
from hipfind.find.session import session_for
from hipfind.problem.base import Problem
from hipfind.problem.conv import ConvProblem
from hipfind.problem.tensor import TensorDescriptor

DeviceLike = str | Device | None


def find(
    problem: Problem,
    mode: str | None = None,
    workspace_limit: int | None = None,
    device: DeviceLike = None,
    verify: str | None = None,
    on_progress: engine.OnProgress | None = None,
) -> FindReport:
    """Find the fastest solver: measures what the perf DB does not know yet, and stores it.

    ``mode``: "normal", "fast", "hybrid", "dynamic_hybrid" or MIOpen's number; None takes the setting.
    ``workspace_limit`` in bytes; a result under a limit that excluded somebody is not stored. ``verify``: "first",
    "always", "off".
    ``on_progress`` is called with a Progress for each step.
    """
    return engine.find(
        problem,
        session_for(device),
        mode=mode,
        workspace_limit=workspace_limit,
        verify=verify,
        on_progress=on_progress,
    )


def immediate(problem: Problem, workspace_limit: int | None = None, device: DeviceLike = None) -> list[Choice]:
    """Ranked solutions without running anything: from the perf DB, else by expected time."""
    return list(immediate_mode.immediate(problem, session_for(device), workspace_limit))


def plan(
    problem: Problem,
    mode: str | None = None,
    solver: str | None = None,
    workspace_limit: int | None = None,
    device: DeviceLike = None,
) -> Plan:
    """The best known solution, built and ready to call with arrays.

    Without ``mode`` immediate mode chooses and nothing is measured; with one, a Find of that mode chooses. ``solver``
    forces a solver by id.
    """
    return make_plan(problem, session_for(device), mode=mode, solver=solver, workspace_limit=workspace_limit)


def explain(problem: Problem, device: DeviceLike = None) -> list[Explanation]:
    """Every solver: whether it applies or why not, WTI, expected time, workspace, and its DB record."""
    return list(immediate_mode.explain(problem, session_for(device)))


def devices() -> tuple[DeviceInfo, ...]:
    """What can run here, and why the others cannot."""
    return list_devices()


def conv(
    x: Any,
    w: Any,
    stride: int | Sequence[int] = 1,
    pad: int | Sequence[Any] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    out: Any = None,
    device: DeviceLike = None,
) -> Any:
    """y = conv(x, w). x: [N, C, *in], w: [K, C/groups, *filter], 2D or 3D; returns y: [N, K, *out] of x's kind.

    y takes x's memory layout (channels-last when x is). Raises ProblemError, ArrayError.
    """
    xd, wd = TensorDescriptor.of(x), TensorDescriptor.of(w)
    layout = _layout_of(xd, wd)
    problem = ConvProblem.create(
        "fwd", xd.lengths, wd.lengths, stride=stride, pad=pad, dilation=dilation, groups=groups,
        dtype=(xd.dtype, wd.dtype, xd.dtype), layout=layout, x_strides=xd.strides, w_strides=wd.strides,
    )  # fmt: skip
    return make_plan(problem, session_for(device))(x, w, out=out)


def conv_bwd_data(
    dy: Any,
    w: Any,
    x_shape: Sequence[int],
    stride: int | Sequence[int] = 1,
    pad: int | Sequence[Any] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    out: Any = None,
    device: DeviceLike = None,
) -> Any:
    """dx of y = conv(x, w). dy: [N, K, *out], w: [K, C/groups, *filter]; returns dx with lengths ``x_shape``."""
    yd, wd = TensorDescriptor.of(dy), TensorDescriptor.of(w)
    problem = ConvProblem.create(
        "bwd", x_shape, wd.lengths, yd.lengths, stride=stride, pad=pad, dilation=dilation, groups=groups,
        dtype=(yd.dtype, wd.dtype, yd.dtype), layout=_layout_of(yd, wd), w_strides=wd.strides, y_strides=yd.strides,
    )  # fmt: skip
    return make_plan(problem, session_for(device))(dy, w, out=out)


def conv_bwd_weights(
    dy: Any,
    x: Any,
    w_shape: Sequence[int],
    stride: int | Sequence[int] = 1,
    pad: int | Sequence[Any] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    out: Any = None,
    device: DeviceLike = None,
) -> Any:
    """dw of y = conv(x, w). dy: [N, K, *out], x: [N, C, *in]; returns dw with lengths ``w_shape``."""
    yd, xd = TensorDescriptor.of(dy), TensorDescriptor.of(x)
    problem = ConvProblem.create(
        "wrw", xd.lengths, w_shape, yd.lengths, stride=stride, pad=pad, dilation=dilation, groups=groups,
        dtype=(xd.dtype, xd.dtype, yd.dtype), layout=_layout_of(xd, yd), x_strides=xd.strides, y_strides=yd.strides,
    )  # fmt: skip
    return make_plan(problem, session_for(device))(dy, x, out=out)


def _layout_of(first: TensorDescriptor, second: TensorDescriptor) -> str:
    """Layout of a tensor that hipfind makes: the first one common to both, else the first one's, else channel-first."""
    both = [name for name in first.layouts() if name in second.layouts()]
    names = both or first.layouts()
    return names[0] if names else ""
