"""Buffers with margins of NaN on both sides, which tell whether something was written outside (``conv -~``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hipfind.device.base import Device, Memory
from hipfind.find.operands import POISON

MARGIN_BYTES = 1 << 16
"""More than a row of most images; what a kernel reads there is a NaN, which verification then finds in the result."""
FRONT, BACK = 1, 2
"""MIOpenDriver's values of ``--gpubuffer_check``: before the start, after the end."""


class _Inside(Memory):
    """The part of an allocation between its margins."""

    def __init__(self, whole: Memory, nbytes: int) -> None:
        self.whole = whole
        self.address = whole.address + MARGIN_BYTES
        self.nbytes = nbytes


class Guards:
    """Allocates buffers with margins, and looks at the margins of one side afterwards."""

    def __init__(self, device: Device, side: int) -> None:
        self._device = device
        self._side = side
        self._buffers: list[_Inside] = []

    def allocate(self, nbytes: int) -> Memory:
        """As the device's own; what lies around it is NaN."""
        whole = self._device.allocate(nbytes + 2 * MARGIN_BYTES)
        self._device.set_bytes(whole.address, whole.nbytes, POISON)
        self._buffers.append(_Inside(whole, nbytes))
        return self._buffers[-1]

    def broken(self) -> list[int]:
        """Numbers of the buffers, in the order in which they were made, whose margin was written."""
        return [number for number, buffer in enumerate(self._buffers) if (self._margin(buffer) != POISON).any()]

    def _margin(self, buffer: _Inside) -> np.ndarray[Any, np.dtype[np.uint8]]:
        margin = np.empty(MARGIN_BYTES, np.uint8)
        at = buffer.address - MARGIN_BYTES if self._side == FRONT else buffer.address + buffer.nbytes
        self._device.copy_out(margin, at)
        return margin
