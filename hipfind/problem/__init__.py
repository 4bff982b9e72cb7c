"""WHAT is asked: tensors and problems as frozen values, their keys, and MIOpen's ways to write them. No device."""

from hipfind.problem.base import Problem
from hipfind.problem.conv import ConvProblem
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import TensorDescriptor
from hipfind.problem.upsample import UpsampleProblem

__all__ = ["ConvProblem", "DType", "Problem", "TensorDescriptor", "UpsampleProblem"]
