"""The numerics check and the logged command of a plan's runs: an invoker that is looked at.

Only plans made while a setting asks for it have one, so that the others pay nothing. The check waits for the stream and
copies every tensor to the host: it is for looking for faults. Bits as MIOpen's MIOPEN_CHECK_NUMERICS.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from hipfind import settings
from hipfind.device.base import Device
from hipfind.errors import NumericsError, NumericsWarning
from hipfind.find.calls import command_of, print_command
from hipfind.find.operands import logical_view, span_elements
from hipfind.invokers.invoker import Addresses, Invoker
from hipfind.problem.base import Problem
from hipfind.problem.tensor import TensorDescriptor

_log = logging.getLogger("hipfind.numerics")

_INFO, _WARN, _RAISE = settings.NUMERICS["info"], settings.NUMERICS["warn"], settings.NUMERICS["raise"]


@dataclasses.dataclass(frozen=True)
class TensorStats:
    """What one tensor holds. ``min``, ``max`` and ``mean`` are of its finite elements, nan without any."""

    elements: int
    zeros: int
    nans: int
    infs: int
    min: float
    max: float
    mean: float

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> TensorStats:
        """Of a host array of any dtype and strides."""
        values = array.astype(np.float64)
        finite = values[np.isfinite(values)]
        nans = int(np.isnan(values).sum())
        least, most, mean = (finite.min(), finite.max(), finite.mean()) if finite.size else (math.nan,) * 3
        return cls(
            values.size, int((finite == 0).sum()), nans, values.size - finite.size - nans,
            float(least), float(most), float(mean),
        )  # fmt: skip

    @property
    def is_abnormal(self) -> bool:
        """True where there is a NaN or an Inf."""
        return bool(self.nans or self.infs)

    def __str__(self) -> str:
        return (
            f"elements={self.elements} zeros={self.zeros} nans={self.nans} infs={self.infs}"
            f" min={self.min:.6g} max={self.max:.6g} mean={self.mean:.6g}"
        )


def watched(invoker: Invoker, problem: Problem, device: Device) -> Invoker:
    """The invoker itself, or one that does what the settings ``log_cmd`` and ``check_numerics`` ask for at each run.

    ``problem`` is the caller's own, whose roles are named; the invoker is its canonical problem's.
    """
    current = settings.current()
    bits = current.check_numerics & (_INFO | _WARN | _RAISE)
    command = command_of(problem, invoker.solution.solver_id) if current.log_cmd else ""
    return _Watched(invoker, problem, device, bits, command) if bits or command else invoker


class _Watched(Invoker):
    """An invoker that prints its command before each run and checks the tensors after it."""

    __slots__ = ("_bits", "_command", "_device", "_tensors", "_where")

    def __init__(self, invoker: Invoker, problem: Problem, device: Device, bits: int, command: str) -> None:
        super().__init__(invoker.solution, invoker._runs)
        self._device = device
        self._bits = bits
        self._command = command
        self._where = f"solver={invoker.solution.solver_id} problem={problem.key()} device={device.name}"
        canonical, mapping = problem.canonical(), problem.canonical_roles()
        self._tensors: list[tuple[str, int, TensorDescriptor]] = [
            (_name(problem, role), canonical.roles.index(mapping[role]), problem.tensor(role))
            for role in (*problem.inputs, problem.output)
        ]

    def run(self, addresses: Addresses, stream: int = 0) -> None:
        if self._command:
            print_command("Run", self._command)
        super().run(addresses, stream)
        if self._bits:
            self._device.synchronize(stream)
            self._judge(addresses)

    def _judge(self, addresses: Addresses) -> None:
        abnormal = []
        for name, stats in self._looked_at(addresses):
            if self._bits & _INFO:
                _log.info("%s %s %s", name, stats, self._where)
            if stats.is_abnormal:
                abnormal.append(f"{name} {stats}")
        if not abnormal:
            return
        found = f"NaN or Inf after a run: {'; '.join(abnormal)}; {self._where}"
        if self._bits & _RAISE:
            raise NumericsError(found, remedy="an input that holds them passes them on, else the result is wrong")
        if self._bits & _WARN:
            warnings.warn(found, NumericsWarning, stacklevel=2)

    def _looked_at(self, addresses: Addresses) -> Iterator[tuple[str, TensorStats]]:
        for name, place, descriptor in self._tensors:
            flat = np.empty(span_elements(descriptor), descriptor.dtype.numpy)
            if flat.size:
                self._device.copy_out(flat, addresses[place])
            yield name, TensorStats.of(logical_view(flat, descriptor))


def _name(problem: Problem, role: str) -> str:
    return f"output {role}" if role == problem.output else f"input {role}"
