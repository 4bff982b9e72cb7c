"""hipfind: a MIOpen-style solver framework for convolutions.

A problem goes in; solvers say whether they apply and how fast they expect to be; the find engine times their solutions
on the device and keeps the winners in a sqlite perf DB; immediate mode answers without running anything.
"""

from hipfind.find.api import conv, conv_bwd_data, conv_bwd_weights, devices, explain, find, immediate, plan
from hipfind.find.plan import Plan
from hipfind.find.report import Candidate, Choice, FindReport, Outcome, Source
from hipfind.perfdb.store import PerfDb
from hipfind.problem import ConvProblem, DType, TensorDescriptor
from hipfind.version import VERSION

__version__ = VERSION

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
    "conv",
    "conv_bwd_data",
    "conv_bwd_weights",
    "devices",
    "explain",
    "find",
    "immediate",
    "plan",
]
