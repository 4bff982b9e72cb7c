"""Large outputs: memory comes back when nothing uses it any more, never before."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hipfind.device.host_outputs import LEAST_BYTES, MOST_IDLE_BYTES, OutputMemory

FP32 = np.dtype(np.float32)
LENGTH = LEAST_BYTES // 4


def test_memory_is_used_again() -> None:
    memory = OutputMemory()
    first = memory.empty((2, LENGTH), FP32)
    address = first.ctypes.data
    assert first.shape == (2, LENGTH) and first.dtype == FP32 and first.flags.c_contiguous and first.flags.writeable
    assert memory.idle_bytes == 0
    del first
    assert memory.idle_bytes == 2 * LEAST_BYTES
    again = memory.empty((2 * LENGTH,), FP32)
    assert again.ctypes.data == address
    assert memory.idle_bytes == 0


@pytest.mark.parametrize("keep", [
    lambda array: array[1:],
    lambda array: array.T,
    lambda array: array.reshape(-1)[5:7].view(np.uint8)[::2],
    lambda array: memoryview(array),
    lambda array: np.asarray(array.transpose(1, 0))[3],
    lambda array: np.from_dlpack(array),
])  # fmt: skip
def test_a_view_keeps_the_memory(keep) -> None:  # type: ignore[no-untyped-def]
    memory = OutputMemory()
    array = memory.empty((4, LENGTH), FP32)
    array[:] = 3
    view = keep(array)
    del array
    assert memory.idle_bytes == 0
    other = memory.empty((4, LENGTH), FP32)
    other[:] = 7
    assert not np.any(np.asarray(view) == 7)
    del view
    assert memory.idle_bytes == 4 * LEAST_BYTES


def test_a_much_larger_block_is_not_spent_on_a_small_output() -> None:
    memory = OutputMemory()
    memory.empty((8, LENGTH), FP32)
    small = memory.empty((2, LENGTH), FP32)
    assert memory.idle_bytes == 8 * LEAST_BYTES
    assert small.nbytes == 2 * LEAST_BYTES


def test_idle_memory_has_a_limit() -> None:
    memory = OutputMemory()
    arrays = [memory.empty((12, LENGTH), FP32) for _ in range(MOST_IDLE_BYTES // LEAST_BYTES // 12 + 3)]
    newest = arrays[-1].ctypes.data
    while arrays:
        del arrays[0]
    assert MOST_IDLE_BYTES - 12 * LEAST_BYTES < memory.idle_bytes <= MOST_IDLE_BYTES
    found = {memory.empty((12, LENGTH), FP32).ctypes.data for _ in range(1)}
    arrays = [memory.empty((12, LENGTH), FP32) for _ in range(MOST_IDLE_BYTES // LEAST_BYTES // 12)]
    found |= {array.ctypes.data for array in arrays}
    assert newest in found  # what lay idle longest went first


def test_small_and_empty_outputs_are_plain() -> None:
    memory = OutputMemory()
    for shape in ((LENGTH - 1,), (0, LENGTH), ()):
        array = memory.empty(shape, FP32)
        assert array.shape == shape and array.base is None


def test_too_much_memory_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        OutputMemory().empty((1 << 60,), FP32)


def test_threads_never_share() -> None:
    memory = OutputMemory()
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(60):
            array = memory.empty((LENGTH + 64 * (turn % 3),), FP32)
            array[::512] = number
            if np.any(array[::512] != number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
