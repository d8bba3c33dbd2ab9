"""The list of what is easily got wrong, one test per entry, in its order."""

import asyncio
import os
import re

import numpy as np
import pytest

import sides
from mooncake import store as module
from mooncake.store import MooncakeDistributedStore, ReplicateConfig, TaskStatus
from sides import MIB


def test_01_only_sessions_tell_that_a_key_exists(store, key):
    store.put(key, b"old")
    assert store.put(key, b"new") == 0 and store.get(key) == b"old"
    assert store.batch_put_session_start([key], [3]) == [-705]


def test_02_reads_grant_leases_and_writes_do_not(store, new_key):
    written, asked = new_key(), new_key()
    store.put_batch([written, asked], [b"x", b"x"])
    store.get_size(asked)
    assert store.batch_remove([written, asked]) == [0, -706]


def test_03_missing_values_are_empty_and_no_keys_give_one_value(store, key):
    assert store.get(key) == b""
    assert store.get_batch([]) == [b""]


def test_04_copying_batches_answer_one_code_and_others_a_list(store, new_key, registered):
    region = registered(64)
    assert store.put_batch([new_key()], [b"x"]) == 0
    assert store.upsert_batch([new_key()], [b"x"]) == 0
    assert store.batch_put_from([new_key()], [region.address], [8]) == [0]
    assert store.batch_upsert_from([new_key()], [region.address], [8]) == [0]
    assert store.batch_remove([new_key()]) == [-704]


def test_05_the_metadata_form_has_the_other_sign(store, registered):
    region = registered(64)
    assert store.put_from_with_metadata("", region.address, region.address + 32, 8, 8) == 600


def test_06_a_value_above_the_local_buffer_is_invalid(own_pool):
    store = own_pool().open(segment=64 * MIB, local_buffer=16 * MIB)
    assert store.put("k", bytes(24 * MIB)) == -600


def test_07_patterns_are_searched_for(store, key):
    store.put(f"a/{key}/b", b"x")
    assert store.remove_by_regex(key) == 1


def test_08_success_is_three_and_failure_two():
    assert (int(TaskStatus.SUCCESS), int(TaskStatus.FAILED)) == (3, 2)


def test_09_setup_needs_seven_arguments_and_names_its_keys(pool, store):
    joined = MooncakeDistributedStore()
    with pytest.raises(TypeError):
        joined.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "")
    assert joined.setup(
        {
            "local_hostname": "127.0.0.1",
            "metadata_server": "P2PHANDSHAKE",
            "master_server_addr": pool.master.address,
            "rdma_devices": "",
            "global_segment_size": 0,
        }
    ) == 0
    joined.close()


def test_10_the_endpoint_names_the_host_of_the_owner(store, key):
    store.put(key, b"x")
    (replica,) = store.get_replica_desc(key)
    endpoint = replica.get_memory_descriptor().buffer_descriptor.transport_endpoint
    assert re.fullmatch(r"127\.0\.0\.1:\d+", endpoint)


def test_11_the_class_can_be_subclassed_and_takes_attributes(pool, store, key):
    class Wrapped(MooncakeDistributedStore):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def put(self, *args, **kwargs):
            self.calls += 1
            return super().put(*args, **kwargs)

    wrapped = Wrapped()
    wrapped.anything = 1
    assert wrapped.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", pool.master.address) == 0
    assert wrapped.put(key.encode(), b"x") == 0 and wrapped.calls == 1
    assert wrapped.get(key) == b"x"
    assert hasattr(wrapped, "_get_pyclient_capsule") and hasattr(store, "_get_pyclient_capsule")
    wrapped.close()


def test_11_the_capsule_tells_whether_there_is_a_client(store):
    assert MooncakeDistributedStore()._get_pyclient_capsule() is None
    assert store._get_pyclient_capsule() is not None


def test_11_the_asynchronous_wrapper_runs_any_method(pool, store, key):
    from mooncake.async_store import MooncakeDistributedStoreAsync

    async def run():
        joined = MooncakeDistributedStoreAsync()
        assert await joined.async_setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 * MIB, "tcp", "", pool.master.address) == 0
        assert await joined.async_put(key, b"awaited") == 0
        assert await joined.async_get(key) == b"awaited"
        assert await joined.async_is_exist(key) == 1
        with pytest.raises(AttributeError):
            await joined.async_no_such_method()
        assert await joined.async_close() == 0

    asyncio.run(run())


def test_12_keyword_names_are_part_of_the_interface(store, new_key, registered):
    region, name = registered(4096), new_key()
    a = region.address
    assert store.put_from(key=name, buffer_ptr=a, size=8) == 0
    assert store.batch_put_from(keys=[new_key()], buffer_ptrs=[a], sizes=[8]) == [0]
    assert store.batch_get_into(keys=[name], buffer_ptrs=[a], sizes=[8]) == [8]
    assert store.batch_is_exist(keys=[name]) == [1]
    assert store.remove_by_regex(regex_pattern="no such key") == 0
    assert store.batch_remove(keys=[name], force=True) == [0]
    assert store.remove_all(force=False) >= 0


def test_13_handles_are_signed_and_leases_unsigned(store, key):
    store.put(key, b"x" * 10)
    assert memoryview(store.get_buffer(key)).format == "b"
    pool = module.BufferPool(store)
    lease = pool.acquire(100)
    view = lease.buffer
    assert (view.format, view.readonly, view.nbytes) == ("B", False, 100)
    view.release()
    lease.release()
    pool.close()


@pytest.mark.differs("a failed set-up must not end the engine", peer="a segmentation fault", ours="-600")
def test_14_a_store_that_was_not_set_up_does_not_crash(side):
    code, lines = sides.run_python(
        "import json; from mooncake.store import MooncakeDistributedStore as S; s = S()\n"
        "print(json.dumps([s.is_exist('k'), s.put('k', b'v'), s.get_size('k')]), flush=True)"
    )
    if side.is_peer:
        assert code < 0 and not lines
    else:
        assert code == 0 and lines == [[-600, -600, -600]]


def test_15_the_lease_is_the_masters(store, key, until):
    store.put(key, b"x")
    store.is_exist(key)
    assert store.remove(key) == -706
    until(lambda: store.remove(key) == 0, 3, f"a lease of {sides.LEASE_MS} ms runs out")


def test_16_a_host_without_a_port_gets_one_of_the_range(store):
    host, port = store.get_hostname().rsplit(":", 1)
    assert host == "127.0.0.1" and 12300 <= int(port) <= 14300


def test_17_an_object_can_be_set_up_again_after_close(own_pool):
    pool = own_pool()
    store = pool.open(segment=16 * MIB)
    store.put("k", b"x")
    assert store.close() == 0
    assert store.setup(*pool.setup_arguments(segment=16 * MIB)) == 0
    assert store.is_exist("k") == 0


@pytest.mark.parametrize("number", [-1, 1 << 64, 1 << 70])
def test_18_numbers_outside_64_bits_raise(store, number):
    for call in (
        lambda: store.register_buffer(number, 8),
        lambda: store.get_into("k", number, 8),
        lambda: store.batch_get_into(["k"], [number], [8]),
        lambda: store.batch_put_from_multi_buffers(["k"], [[number]], [[8]]),
        lambda: store.setup("127.0.0.1", "P2PHANDSHAKE", number, 0, "tcp", "", "127.0.0.1:1"),
        lambda: setattr(ReplicateConfig(), "replica_num", number),
    ):
        with pytest.raises(TypeError):
            call()


def test_20_tensor_headers_and_shard_names_are_what_others_expect(side, store, key):
    try:
        import torch

        value = torch.arange(8, dtype=torch.int32).reshape(4, 2)
    except ImportError:
        if side.is_peer:
            pytest.skip("torch is not installed")
        value = np.arange(8, dtype=np.int32).reshape(4, 2)
    assert store.put_tensor_with_tp(key, value, tp_size=2) == 0
    data = store.get(f"{key}_tp_1")
    assert data[:8].hex() == "4e4f4f4d01003001" and len(data) == 304 + 16
    assert data[304:] == np.arange(4, 8, dtype=np.int32).tobytes()


def test_numpy_integers_are_addresses_and_sizes(store, key, registered):
    # Engines compute addresses with numpy and hand over what comes out.
    region = registered(4096, b"n" * 4096)
    assert store.put_from(key, np.uint64(region.address), np.int64(64)) == 0
    assert store.get_into(key, int(np.uint64(region.address)), 64) == 64


def test_environment_is_left_alone(store):
    before = dict(os.environ)
    MooncakeDistributedStore().close()
    assert dict(os.environ) == before
