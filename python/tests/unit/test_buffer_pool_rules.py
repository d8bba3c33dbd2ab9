"""Leases, with a store that only counts."""

import gc
import threading

import pytest

from snowskin.mooncake.buffer_pool import BufferPool

MIB = 1 << 20


class Store:
    _local_buffer_size = MIB

    def __init__(self):
        self.regions = {}

    def _get_pyclient_capsule(self):
        return self

    def register_buffer(self, address, size):
        self.regions[address] = size
        return 0

    def unregister_buffer(self, address):
        return 0 if self.regions.pop(address, None) else -600

    def last_error(self):
        return None


@pytest.fixture
def store():
    return Store()


def test_a_lease_is_aligned_registered_and_writable(store):
    pool = BufferPool(store)
    with pool.acquire(10) as lease:
        assert lease.ptr % 8388608 == 0
        assert store.regions[lease.ptr] >= 10
        view = lease.buffer
        assert (view.format, len(view), lease.size, view.readonly) == ("B", 10, 10, False)
        view[:] = b"0123456789"
        assert bytes(lease.buffer) == b"0123456789"
        view.release()
    pool.close()
    assert store.regions == {}


def test_memory_that_came_back_is_used_again(store):
    pool = BufferPool(store)
    first = pool.acquire(10)
    address = first.ptr
    first.release()
    first.release()
    with pool.acquire(20) as second:
        assert second.ptr == address
    pool.close()


def test_another_size_class_takes_the_room_of_free_regions(store):
    pool = BufferPool(store, max_bytes=MIB)
    pool.acquire(MIB).release()
    with pool.acquire(10):
        assert sum(store.regions.values()) <= MIB
    pool.close()


def test_a_lease_waits_for_room(store):
    pool = BufferPool(store, max_bytes=MIB)
    held = pool.acquire(MIB)
    with pytest.raises(RuntimeError, match="exhausted"):
        pool.acquire(1, block=False)
    with pytest.raises(RuntimeError, match="timed out"):
        pool.acquire(1, timeout=0.01)
    got = []
    thread = threading.Thread(target=lambda: got.append(pool.acquire(1, timeout=10)))
    thread.start()
    held.release()
    thread.join(10)
    got[0].release()
    pool.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"size": 3 * MIB}, "exceeds pool capacity"), ({"size": 1, "timeout": -1}, "timeout must be non-negative")],
)
def test_what_cannot_be_leased(store, arguments, said):
    pool = BufferPool(store)
    with pytest.raises(RuntimeError, match=said):
        pool.acquire(**arguments)
    pool.close()


def test_views_keep_a_lease(store):
    pool = BufferPool(store)
    lease = pool.acquire(4)
    view = lease.buffer
    part = view[1:2]
    view.release()
    with pytest.raises(RuntimeError, match="views"):
        lease.release()
    with pytest.raises(RuntimeError, match="active leases"):
        pool.close()
    del lease
    gc.collect()
    with pytest.raises(RuntimeError, match="active leases"):
        pool.close()
    part.release()
    pool.close()
    pool.close()


def test_a_closed_lease_and_a_closed_pool(store):
    pool = BufferPool(store)
    lease = pool.acquire(0)
    assert len(lease.buffer) == 0
    lease.release()
    for name in ("ptr", "buffer"):
        with pytest.raises(RuntimeError, match="closed"):
            getattr(lease, name)
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.acquire(1)


@pytest.mark.parametrize("alignment", [0, 3, 4, 24])
def test_alignments_that_are_not_allowed(store, alignment):
    with pytest.raises(RuntimeError, match="alignment"):
        BufferPool(store, alignment=alignment)


def test_a_store_that_cannot_have_a_pool(store):
    store._local_buffer_size = 0
    with pytest.raises(RuntimeError, match="local buffer"):
        BufferPool(store)
    with pytest.raises(RuntimeError, match="initialized"):
        BufferPool(object())


def test_a_refused_registration_is_said(store):
    store.register_buffer = lambda address, size: -600
    pool = BufferPool(store)
    with pytest.raises(RuntimeError, match="-600"):
        pool.acquire(1)
    pool.close()
