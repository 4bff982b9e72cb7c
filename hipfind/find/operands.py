"""Buffers for a Find: random inputs, an output, a poisoned workspace, all on the device, never the user's arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hipfind.device.base import Device, Memory
from hipfind.problem.base import Problem
from hipfind.problem.tensor import TensorDescriptor

_BLOCK = 1_048_573
"""Random values are drawn once and repeated: a prime length, so that the pattern lines up with no stride."""
POISON = 0xFF
"""A byte that makes every float type a NaN."""


class Operands:
    """Device memory for every role of one problem, and the same data as host arrays in logical shape.

    ``allocate``: where the memory comes from, the device itself with None.
    """

    def __init__(
        self, problem: Problem, device: Device, seed: int = 0, allocate: Callable[[int], Memory] | None = None
    ) -> None:
        self.problem = problem
        self.device = device
        self.host: dict[str, npt.NDArray[np.generic]] = {}
        self._packed: dict[str, npt.NDArray[np.generic]] = {}
        self._memory: dict[str, Memory] = {}
        rng = np.random.default_rng(seed)
        block = rng.standard_normal(_BLOCK, dtype=np.float32)
        for role in problem.roles:
            descriptor = problem.tensor(role)
            rolled = np.roll(block, rng.integers(_BLOCK)).astype(descriptor.dtype.numpy)
            # repeated as plain integers: numpy handles its own types many times faster than bf16
            repeated = np.resize(rolled.view(f"u{rolled.itemsize}"), max(span_elements(descriptor), 1))
            values = repeated.view(rolled.dtype)
            self._memory[role] = (allocate or device.allocate)(values.nbytes)
            self.load(role, values)

    def load(self, role: str, values: npt.NDArray[np.generic]) -> None:
        """Give a tensor its data: a flat array in memory order, of ``span_elements`` elements (1 where it has none)."""
        self.device.copy_in(self._memory[role].address, values)
        self._packed[role] = values
        self.host[role] = logical_view(values, self.problem.tensor(role))

    def addresses(self, workspace: Memory | None) -> list[int]:
        """Addresses in role order, the workspace's last (0 without one)."""
        roles = [self._memory[role].address for role in self.problem.roles]
        return [*roles, workspace.address if workspace is not None else 0]

    def poison_output(self) -> None:
        """Make every byte of the output a NaN; with beta not 0 put its first contents back instead."""
        role = self.problem.output
        memory = self._memory[role]
        if self.problem.reads_output:
            self.restore_output()
        else:
            self.device.set_bytes(memory.address, memory.nbytes, POISON)

    def restore_output(self) -> None:
        """Put the output's first contents back (what runs with beta not 0 need before each run)."""
        role = self.problem.output
        self.device.copy_in(self._memory[role].address, self._packed[role])

    def read_output(self) -> npt.NDArray[np.generic]:
        """A host copy of the output in logical shape."""
        role = self.problem.output
        descriptor = self.problem.tensor(role)
        flat = self.device.as_numpy(self._memory[role], descriptor.dtype.numpy, (max(span_elements(descriptor), 1),))
        return logical_view(flat, descriptor)


def span_elements(descriptor: TensorDescriptor) -> int:
    """Elements from the first to the last one, gaps included."""
    return descriptor.span_bytes // descriptor.dtype.itemsize


def logical_view(flat: npt.NDArray[np.generic], descriptor: TensorDescriptor) -> npt.NDArray[np.generic]:
    """A view of a flat buffer with the descriptor's lengths and strides."""
    size = descriptor.dtype.itemsize
    strides = tuple(stride * size for stride in descriptor.strides)
    raw = flat.view(np.uint8)  # numpy hands out no buffer of bf16
    view: npt.NDArray[np.generic] = np.ndarray(descriptor.lengths, flat.dtype, buffer=raw, strides=strides)
    return view
