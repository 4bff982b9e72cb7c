"""The workspace pool: who may share a buffer with whom, and how much is kept."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import weakref

import numpy as np
import pytest

from hipfind.device.base import Memory
from hipfind.device.host import HostDevice
from hipfind.errors import OutOfMemoryError
from hipfind.invokers.workspace import WorkspacePool


class Counting(HostDevice):
    """A host device that counts its allocations and can be full."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.alive: weakref.WeakSet[Memory] = weakref.WeakSet()
        self.limit = 1 << 40

    def allocate(self, nbytes: int) -> Memory:
        gc.collect()
        if sum(memory.nbytes for memory in self.alive) + nbytes > self.limit:
            raise OutOfMemoryError("full", got=nbytes)
        self.sizes.append(nbytes)
        memory = super().allocate(nbytes)
        self.alive.add(memory)
        return memory


@pytest.fixture
def device():
    return Counting()


@pytest.fixture
def pool(device):
    return WorkspacePool(device)


def test_calls_in_turn_share_one_buffer(device, pool):
    for nbytes in (100, 100, 50, 0, 100):
        with pool.borrow(nbytes) as memory:
            assert memory.nbytes >= nbytes
    assert device.sizes == [100]


def test_calls_at_one_time_never_share(pool):
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(pool.borrow(64)) for _ in range(10)]
        ends = sorted((memory.address, memory.address + memory.nbytes) for memory in taken)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))


def test_streams_do_not_share(device, pool):
    with pool.borrow(64, stream=1) as first:
        pass
    with pool.borrow(64, stream=2) as second:
        pass
    with pool.borrow(64, stream=1) as third:
        assert third is first and third is not second
    assert device.sizes == [64, 64]


def test_a_larger_need_replaces_the_small_buffer_before_it_allocates(device, pool):
    device.limit = 1000
    with pool.borrow(600):
        pass
    with pool.borrow(900) as memory:
        assert memory.nbytes == 900, "both at once would not fit"


def test_the_smallest_that_is_large_enough_is_taken(pool):
    with pool.borrow(1000) as large, pool.borrow(10):
        pass
    with pool.borrow(5) as memory:
        assert memory.nbytes == 10
    with pool.borrow(500) as memory:
        assert memory is large


def test_a_buffer_comes_back_after_an_error(device, pool):
    with pytest.raises(RuntimeError, match="kernel"), pool.borrow(64):
        raise RuntimeError("kernel failed")
    with pool.borrow(64):
        pass
    assert device.sizes == [64]


def test_a_full_device_is_said_and_the_pool_still_works(device, pool):
    device.limit = 100
    with pytest.raises(OutOfMemoryError, match="full"), pool.borrow(101):
        pass
    with pool.borrow(100) as memory:
        assert memory.nbytes == 100


def test_a_burst_of_calls_leaves_few_buffers(device, pool):
    with contextlib.ExitStack() as stack:
        for nbytes in range(1, 21):
            stack.enter_context(pool.borrow(nbytes))
    gc.collect()
    assert len(device.alive) <= 4
    assert max(memory.nbytes for memory in device.alive) == 20, "the largest are kept"


def test_threads_write_to_their_own_bytes(device, pool):
    failures: list[int] = []

    def work(value: int) -> None:
        for _ in range(200):
            with pool.borrow(256) as memory:
                device.set_bytes(memory.address, 256, value)
                if (device.as_numpy(memory, np.uint8, (256,)) != value).any():
                    failures.append(value)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
