"""The fixed vocabulary of reasons for which a solver does not apply, and the answer that carries one."""

from __future__ import annotations

import dataclasses
import enum


class Reason(enum.Enum):
    """Why a solver does not apply. ``value`` is the text that people see."""

    OPERATION = "solves another operation"
    DIRECTION = "solves another direction"
    DTYPE = "dtype not supported"
    DEVICE_DTYPE = "the device has no matrix product of this dtype"
    LAYOUT = "layout not supported"
    NOT_PACKED = "a tensor is not packed"
    GROUPS = "groups not supported"
    PADDING = "padding not supported"
    ASYMMETRIC_PADDING = "asymmetric padding not supported"
    DILATION = "dilation not supported"
    STRIDE = "stride not supported"
    FILTER = "filter size not supported"
    CHANNELS = "number of channels not supported"
    NDIM = "number of spatial dimensions not supported"
    SCALING = "alpha or beta not supported"
    SCALE = "scale of a resize not supported"
    DETERMINISTIC = "not deterministic"
    NO_COMPILER = "no compiler for portable kernels on this device"
    NO_TRITON = "no matrix cores that Triton can be compiled for here"
    TOO_LARGE = "tensor or index larger than supported"
    WORKSPACE_TOO_LARGE = "needs more workspace than the device can have"
    SPECIALIZED = "a specialized solver covers this problem"
    CONFIG = "perf config out of range"
    EMPTY = "the problem is empty"
    NOT_EMPTY = "the problem is not empty"


@dataclasses.dataclass(frozen=True)
class Applicability:
    """Answer of IsApplicable: truthy when the solver applies, else falsy with a reason and a detail."""

    reason: Reason | None = None
    detail: str = ""

    def __bool__(self) -> bool:
        return self.reason is None

    def __str__(self) -> str:
        if self.reason is None:
            return "applicable"
        return f"{self.reason.value} ({self.detail})" if self.detail else self.reason.value


APPLICABLE = Applicability()


def no(reason: Reason, detail: str = "") -> Applicability:
    """Not applicable, for this reason; ``detail`` names the value that decided."""
    return Applicability(reason, detail)
