"""Leases of registered staging memory, and memory shared with a node's process."""

import threading

import pytest

from mooncake import store as module
from mooncake.store import BufferPool, MooncakeDistributedStore, MooncakeHostMemAllocator
from sides import pattern


@pytest.fixture
def leases(store):
    pool = BufferPool(store)
    yield pool
    pool.close()


def test_a_lease_is_registered_memory(store, leases, key):
    with leases.acquire(5000) as lease:
        assert lease.size == 5000 and lease.ptr > 0
        view = lease.buffer
        view[:] = pattern(5000)
        view.release()
        assert store.put_from(key, lease.ptr, 5000) == 0
    assert store.get(key) == pattern(5000)


def test_two_leases_are_apart(leases):
    first, second = leases.acquire(1000), leases.buffer(1000)
    assert abs(first.ptr - second.ptr) >= 1000
    first.release()
    second.release()


def test_releasing_twice_is_fine_and_the_memory_is_gone(leases):
    lease = leases.acquire(100)
    lease.release()
    lease.release()
    with pytest.raises((RuntimeError, BufferError)):
        lease.buffer
    with pytest.raises(RuntimeError):
        lease.ptr


def test_a_lease_with_views_out_is_not_released(leases):
    lease = leases.acquire(100)
    view = lease.buffer
    with pytest.raises(RuntimeError):
        lease.release()
    view.release()
    lease.release()


def test_zero_bytes_can_be_leased(leases):
    lease = leases.acquire(0)
    assert lease.size == 0
    lease.release()


def test_more_than_the_pool_holds_is_refused(leases):
    with pytest.raises(RuntimeError, match="exceeds pool capacity"):
        leases.acquire(1 << 40)


def test_an_exhausted_pool_refuses_waits_and_times_out(store):
    pool = BufferPool(store, block_on_exhaustion=False)
    held = []
    with pytest.raises(RuntimeError, match="exhausted"):
        for _ in range(1000):
            held.append(pool.acquire(8 << 20))
    with pytest.raises(RuntimeError, match="timed out"):
        pool.acquire(8 << 20, block=True, timeout=0.05)
    with pytest.raises(RuntimeError, match="non-negative"):
        pool.acquire(100, block=True, timeout=-1)
    waiter = []
    thread = threading.Thread(target=lambda: waiter.append(pool.acquire(8 << 20, block=True, timeout=10)))
    thread.start()
    held.pop().release()
    thread.join(10)
    assert len(waiter) == 1
    for lease in held + waiter:
        lease.release()
    pool.close()


def test_a_pool_with_leases_out_does_not_close(store):
    pool = BufferPool(store)
    lease = pool.acquire(100)
    with pytest.raises(RuntimeError, match="active leases"):
        pool.close()
    lease.release()
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="clos"):
        pool.acquire(100)


@pytest.mark.parametrize("alignment", [3, 4, 100])
def test_a_bad_alignment_is_named(store, alignment):
    with pytest.raises(RuntimeError, match="alignment"):
        BufferPool(store, alignment=alignment)


def test_a_pool_needs_a_store_that_is_set_up():
    with pytest.raises(RuntimeError):
        BufferPool(MooncakeDistributedStore())


def test_a_store_without_a_local_buffer_has_no_pool(side, own_pool):
    bare = own_pool().open(segment=0, local_buffer=0)
    with pytest.raises(RuntimeError):
        BufferPool(bare)


def test_prewarming_is_accepted(leases):
    assert leases.prewarm(1024, 2) is None


# ----------------------------------------------------------------------------- shared memory


def test_the_allocator_gives_memory_that_can_be_used(store, key):
    import ctypes

    allocator = MooncakeHostMemAllocator()
    address = allocator.alloc(1 << 20)
    assert address > 0
    ctypes.memmove(address, pattern(1000), 1000)
    assert store.register_buffer(address, 1 << 20) == 0
    assert store.put_from(key, address, 1000) == 0
    assert store.get(key) == pattern(1000)
    assert store.unregister_buffer(address) == 0
    assert allocator.free(address) == 0


def test_freeing_what_was_not_allocated(memory):
    assert MooncakeHostMemAllocator().free(memory(4096).address) == -1


def test_binding_to_a_memory_node_is_harmless():
    assert module.bind_to_numa_node(0) is None
    assert module.bind_to_numa_node(node=4096) is None
