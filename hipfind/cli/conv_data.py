"""The files of ``hipfind conv``: tensors as plain bytes under MIOpenDriver's names, and kept reference results.

A tensor's file holds its elements in memory order, with no head. Reference results are written as fp32 (fp64 for fp64
problems), as MIOpenDriver does. Source of the names: MIOpen's ``driver/conv_driver.hpp``, ``driver/util_file.hpp``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hipfind.errors import DataFileError, ParseError
from hipfind.problem.base import Float64Array, Problem
from hipfind.problem.conv import ConvProblem
from hipfind.problem.driver import DriverCommand
from hipfind.problem.dtypes import DType
from hipfind.problem.tensor import TensorDescriptor

Array = npt.NDArray[Any]

_LOADED = {"x": ("in_data", "d"), "w": ("weights", "e"), "y": ("dout_data", "D")}
_DUMPED = {"x": "dump_in.bin", "w": "dump_wei.bin", "y": "dump_dout.bin"}
_RESULTS = {"fwd": "dump_fwd_out", "bwd": "dump_bwd_din", "wrw": "dump_bwd_dwei"}
_KEPT = {"fwd": "conv_fwd_out", "bwd": "conv_bwd_dat", "wrw": "conv_bwd_wei"}


def refuse_unread_files(command: DriverCommand, problems: Sequence[ConvProblem]) -> None:
    """Raise ParseError for a file of a tensor that no direction asked for reads."""
    read = {role for problem in problems for role in problem.inputs}
    for role, (long, short) in _LOADED.items():
        if command.values[long] and role not in read:
            raise ParseError(f"--{long} (-{short}) is a file for {'d' if role == 'y' else ''}{role}, which the"
                             " directions asked for do not read", got=str(command.values[long]))  # fmt: skip


def load_inputs(command: DriverCommand, problem: ConvProblem) -> dict[str, Array]:
    """Flat data, in memory order, of each input that the command names a file for. Raises DataFileError."""
    return {
        role: _read(str(command.values[_LOADED[role][0]]), problem.tensor(role))
        for role in problem.inputs
        if command.values[_LOADED[role][0]]
    }


def _read(path: str, descriptor: TensorDescriptor) -> Array:
    try:
        raw = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DataFileError(f"the file of tensor data cannot be read: {error.strerror}", got=path) from error
    if raw.nbytes != descriptor.span_bytes:
        needed = f"{descriptor.span_bytes} bytes of {descriptor.dtype.value} for lengths {descriptor.lengths}"
        raise DataFileError(f"{path} must hold {needed}", got=f"{raw.nbytes} bytes")
    return raw.view(descriptor.dtype.numpy)


def dump_inputs(problem: ConvProblem, arrays: Mapping[str, Array]) -> list[str]:
    """Write each input, in logical shape by the problem's own role; returns the files' names. Raises DataFileError."""
    names = []
    for role in problem.inputs:
        names.append(_DUMPED[role])
        _write(Path(names[-1]), in_memory_order(arrays[role], problem.tensor(role)))
    return names


def dump_results(problem: ConvProblem, output: Array, reference: Float64Array | None) -> list[str]:
    """Write the output, and the reference where there is one; returns the files' names. Raises DataFileError."""
    stem, descriptor = _RESULTS[problem.direction], problem.tensor(problem.output)
    names = [f"{stem}_gpu.bin"]
    _write(Path(names[0]), in_memory_order(output, descriptor))
    if reference is not None:
        names.append(f"{stem}_cpu.bin")
        dtype = np.float64 if descriptor.dtype is DType.FP64 else np.float32
        _write(Path(names[1]), in_memory_order(reference, descriptor).astype(dtype))
    return names


def in_memory_order(array: Array, descriptor: TensorDescriptor) -> Array:
    """A contiguous copy with the axes in the order in which they lie in the descriptor's memory."""
    order = sorted(range(array.ndim), key=lambda axis: (-descriptor.strides[axis], axis))
    return np.ascontiguousarray(array.transpose(order))


def kept_reference(folder: str, problem: Problem, arrays: Mapping[str, Array]) -> Float64Array:
    """The float64 reference of the problem for these inputs: from the folder, else computed and put there.

    A file's name holds a digest of the problem and the data, so that other data never get its result (MIOpen's cache
    relies on its seed). Raises DataFileError where the folder cannot be written.
    """
    shape = problem.tensor(problem.output).lengths
    path = Path(folder) / f"{_KEPT[problem.direction]}_{_digest(problem, arrays)}.f64"
    if path.is_file():
        values = np.fromfile(path, np.float64)
        if values.size == np.prod(shape, dtype=np.int64):
            return values.reshape(shape)
    reference = problem.reference(arrays)
    _write(path, np.ascontiguousarray(reference))
    return reference


def _digest(problem: Problem, arrays: Mapping[str, Array]) -> str:
    digest = hashlib.sha256(problem.key().encode())
    for role in problem.inputs:
        digest.update(np.ascontiguousarray(arrays[role]).tobytes())
    return digest.hexdigest()[:24]


def _write(path: Path, values: Array) -> None:
    """Write all or nothing: a reader in another process never sees a part."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(values.tobytes())
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise DataFileError(f"the file of tensor data cannot be written: {error.strerror}", got=str(path)) from error
