"""hipfind: a MIOpen-style solver framework for convolutions.

A problem goes in; solvers say whether they apply and how fast they expect to be; the find engine times their
solutions on the device and keeps the winners in a sqlite perf DB; immediate mode answers without running anything.

Public names are loaded at first use, so that ``import hipfind`` costs nothing to a program that may not need it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import hipfind.find as _find_package
from hipfind.version import VERSION

# Importing a subpackage binds its name here, once. Having happened, it cannot hide the function of the same name later.
del _find_package
globals().pop("find", None)

logging.getLogger("hipfind").addHandler(logging.NullHandler())  # silent until the program asks for the log

if TYPE_CHECKING:
    from hipfind.find.api import devices, explain, find, immediate, plan
    from hipfind.find.oneshot import (
        conv,
        conv_bwd_data,
        conv_bwd_weights,
        upsample_bilinear2d,
        upsample_bilinear2d_backward,
    )
    from hipfind.find.plan import Plan
    from hipfind.find.report import Candidate, Choice, FindReport, Outcome, Source
    from hipfind.perfdb.store import PerfDb
    from hipfind.problem import ConvProblem, DType, TensorDescriptor, UpsampleProblem

__version__ = VERSION

_HOMES = {
    "hipfind.find.api": ("devices", "explain", "find", "immediate", "plan"),
    "hipfind.find.oneshot": (
        "conv",
        "conv_bwd_data",
        "conv_bwd_weights",
        "upsample_bilinear2d",
        "upsample_bilinear2d_backward",
    ),
    "hipfind.find.plan": ("Plan",),
    "hipfind.find.report": ("Candidate", "Choice", "FindReport", "Outcome", "Source"),
    "hipfind.perfdb.store": ("PerfDb",),
    "hipfind.problem": ("ConvProblem", "DType", "TensorDescriptor", "UpsampleProblem"),
}

__all__ = [
    "Candidate",
    "Choice",
    "ConvProblem",
    "DType",
    "FindReport",
    "Outcome",
    "PerfDb",
    "Plan",
    "Source",
    "TensorDescriptor",
    "UpsampleProblem",
    "conv",
    "conv_bwd_data",
    "conv_bwd_weights",
    "devices",
    "explain",
    "find",
    "immediate",
    "plan",
    "upsample_bilinear2d",
    "upsample_bilinear2d_backward",
]


def __getattr__(name: str) -> Any:
    import importlib

    for module, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
