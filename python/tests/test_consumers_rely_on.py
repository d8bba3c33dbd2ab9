"""Answers that the engines' connectors test for, row by row."""

import pytest

from mooncake.store import MooncakeDistributedStore, ReplicateConfig
from sides import MIB, pattern


def test_a_second_setup_of_the_same_object(own_pool):
    pool = own_pool()
    store = pool.open(segment=0)
    assert store.setup(*pool.setup_arguments(segment=0)) == 0


def test_put_of_an_existing_key(store, new_key):
    key, twice = new_key(), new_key()
    assert store.put(key, b"first") == 0
    assert store.put(key, b"second") == 0
    assert store.put_batch([key, twice, twice], [b"third", b"a", b"b"]) == 0
    assert store.get_batch([key, twice]) == [b"first", b"a"]


def test_put_from_unregistered_memory(store, new_key, memory):
    region = memory(4096, b"u" * 4096)
    keys = [new_key() for _ in range(2)]
    assert store.put_from(keys[0], region.address, 100) == 0
    assert store.batch_put_from([keys[1]], [region.address], [100]) == [0]
    assert store.get_batch(keys) == [b"u" * 100] * 2


def test_repeated_registration(store, memory):
    region = memory(4096)
    assert store.register_buffer(region.address, 4096) == 0
    assert store.register_buffer(region.address, 4096) == -600
    assert store.unregister_buffer(region.address) == 0
    assert store.unregister_buffer(region.address) == -600


def test_existence(store, key):
    assert store.is_exist(key) == 0
    store.put(key, b"x")
    assert store.is_exist(key) == 1
    assert store.batch_is_exist([]) == []


def test_batch_get_into_missing_small_and_large(store, new_key, registered):
    key, missing = new_key(), new_key()
    store.put(key, b"12345678")
    a = registered(4096).address
    assert store.batch_get_into([missing, key, key], [a, a, a], [8, 7, 4096]) == [-704, -600, 8]


def test_multi_buffer_reads_of_another_split_short_and_long(store, key, registered):
    store.put(key, pattern(100))
    a = registered(4096).address
    assert store.batch_get_into_multi_buffers([key], [[a, a + 60]], [[60, 40]]) == [100]
    assert store.batch_get_into_multi_buffers([key], [[a, a + 60]], [[60, 39]]) == [-600]
    assert store.batch_get_into_multi_buffers([key], [[a, a + 60]], [[60, 41]]) == [-800]


def test_unequal_list_lengths(store, new_key, registered):
    a = registered(4096).address
    keys = [new_key(), new_key()]
    assert store.batch_put_from(keys, [a], [8, 8]) == [-600, -600]
    assert store.batch_get_into(keys, [a, a], [8]) == [-600, -600]


def test_zero_size_put(store, key):
    assert store.put(key, b"") == -600


def test_missing_values(store, key):
    assert store.get(key) == b""
    assert store.get_buffer(key) is None
    assert store.batch_get_buffer([key]) == [None]


def test_buffer_handle(store, key):
    store.put(key, b"12345")
    (handle,) = store.batch_get_buffer([key])
    view = memoryview(handle)
    assert (view.format, view.readonly, len(view), len(handle), handle.size()) == ("b", False, 5, 5, 5)
    view[0] = 65
    assert bytes(handle) == b"A2345"
    assert store.get(key) == b"12345"


def test_parts_of_three_kinds(store, key):
    assert store.put_parts(key, b"a", bytearray(b"b"), memoryview(b"c")) == 0
    assert store.get(key) == b"abc"


def test_a_pool_full_of_leased_data(own_pool):
    # Leases of a minute: everything stays leased while the pool fills.
    store = own_pool(lease_ms=60_000).open(segment=32 * MIB)
    codes = []
    for i in range(12):
        codes.append(store.put(f"k{i}", pattern(4 * MIB)))
        store.is_exist(f"k{i}")
    assert codes[0] == 0 and codes[-1] == -200
    assert store.get("k0") == pattern(4 * MIB)


def test_remove_leased_forced_and_missing(store, key):
    store.put(key, b"x")
    store.is_exist(key)
    assert store.remove(key) == -706
    assert store.remove(key, force=True) == 0
    assert store.remove(key) == -704


def test_remove_all(store, new_key):
    store.remove_all(force=True)
    free, leased = new_key(), new_key()
    store.put_batch([free, leased], [b"x", b"x"])
    store.is_exist(leased)
    assert store.remove_all() == 1
    assert store.remove_all(force=True) == 1


def test_read_sessions(store, new_key, registered):
    key, missing = new_key(), new_key()
    store.put(key, pattern(100))
    a = registered(4096).address
    assert store.batch_get_session_start([missing]) == [-704]
    assert store.batch_get_session_start([key]) == [0]
    assert store.batch_get_into_multi_buffer_ranges([key], [[a, a + 50]], [[10, 20]], [[0, 80]]) == [30]
    assert store.batch_get_session_end([key]) == 0


def test_wishes_that_cannot_be_met(store, new_key):
    config = ReplicateConfig()
    config.replica_num = 2
    config.preferred_segment = "no.such.node:1"
    assert store.put(new_key(), b"x", config) == 0


def test_group_ids_of_another_length(store, new_key, registered):
    config = ReplicateConfig()
    config.group_ids = ["one"]
    a = registered(4096).address
    assert store.batch_put_from([new_key(), new_key()], [a, a], [8, 8], config) == [-600, -600]


def test_config_fields():
    config = ReplicateConfig()
    for field in (
        "replica_num", "with_hard_pin", "preferred_segment", "preferred_segments", "prefer_alloc_in_same_node",
        "data_type", "group_ids", "soft_pin_action", "soft_pin_ttl_ms", "nof_replica_num", "preferred_nof_segments",
        "dfs_replica_num",
    ):
        assert hasattr(config, field), field


# ----------------------------------------------------------------------------- beyond the table


def test_results_are_plain_lists_of_plain_ints(store, new_key, registered):
    # vLLM's embedding store takes anything else for a client it must never trust again.
    there, missing = new_key(), new_key()
    a = registered(4096, b"x" * 4096).address
    put = store.batch_put_from_multi_buffers([there], [[a, a + 24]], [[24, 100]])
    got = store.batch_get_into([there, missing], [a, a], [200, 200])
    for answer in (put, got, store.batch_is_exist([there, missing])):
        assert type(answer) is list and all(type(code) is int for code in answer)
    assert got[0] == 124 and got[1] == -704


def test_codes_of_failed_puts_are_among_those_known(own_pool):
    store = own_pool(lease_ms=60_000).open(segment=16 * MIB)
    for i in range(8):
        store.put(f"k{i}", pattern(4 * MIB))
        store.is_exist(f"k{i}")
    from sides import Memory

    region = Memory(4 * MIB)
    assert store.register_buffer(region.address, region.size) == 0
    (code,) = store.batch_put_from_multi_buffers(["more"], [[region.address]], [[region.size]])
    assert code in {-200, -703, -704, -705, -900, -901, -1700}
    assert store.unregister_buffer(region.address) == 0
    region.free()


def test_a_smaller_object_succeeds_with_its_true_size(store, key, registered):
    # LMCache reads the last, shorter chunk into a full one.
    store.put(key, b"y" * 100)
    assert store.batch_get_into([key], [registered(4096).address], [4096]) == [100]


def test_keys_of_the_ascend_connector(store, new_key, registered):
    a = registered(65536, pattern(65536)).address
    digest = "ab" * 32
    keys = [
        f"{new_key('model')}@pcp0@dcp0@head_or_tp_rank:0@pp_rank:0@group:{g}@cache_role:kv@cache_family:{f}@{digest}"
        for g, f in enumerate(("default", "c1", "c4", "c128", "mixed"))
    ]
    pointers = [[a, a + 8192, a + 16384] for _ in keys]
    sizes = [[4096, 1024, 512] for _ in keys]
    assert store.batch_put_from_multi_buffers(keys, pointers, sizes) == [0] * len(keys)
    assert store.batch_is_exist(keys) == [1] * len(keys)
    assert store.batch_get_into_multi_buffers(keys, pointers, sizes) == [4096 + 1024 + 512] * len(keys)


def test_warm_up_of_a_connector(store, key):
    value = bytes(4096)
    assert store.put(key, value) == 0
    assert store.is_exist(key) == 1
    assert store.get(key) == value


@pytest.mark.parametrize("name", ["group_ids", "session_ids"])
@pytest.mark.differs(
    "the newest SGLang tags its events with session_ids where the class has them",
    peer="group_ids only",
    ours="group_ids, and session_ids accepted",
)
def test_features_are_probed_by_attribute(side, name):
    if name == "group_ids" or not side.is_peer:
        assert hasattr(ReplicateConfig, name) and hasattr(ReplicateConfig(), name)
    else:
        assert not hasattr(ReplicateConfig(), name)


def test_an_engines_registration_serves_the_store(own_pool):
    # vllm-ascend registers with the transfer engine only and hands that engine to the store.
    from mooncake.engine import TransferEngine
    from sides import Memory

    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    region = Memory(MIB, pattern(MIB))
    assert engine.register_memory(region.address, MIB) == 0
    pool = own_pool()
    store = MooncakeDistributedStore()
    pool.stores.append(store)
    code = store.setup(
        local_hostname=f"127.0.0.1:{engine.get_rpc_port()}",
        metadata_server="P2PHANDSHAKE",
        global_segment_size=32 * MIB,
        local_buffer_size=16 * MIB,
        protocol="tcp",
        rdma_devices="",
        master_server_addr=pool.master.address,
        engine=engine.get_engine(),
    )
    assert code == 0
    a = region.address
    assert store.batch_put_from_multi_buffers(["k"], [[a, a + 4096]], [[100, 200]]) == [0]
    assert store.batch_get_into_multi_buffers(["k"], [[a + 8192, a + 9000]], [[150, 150]]) == [300]
    wanted = pattern(MIB)[:100] + pattern(MIB)[4096:4296]
    assert region[8192:8342] == wanted[:150] and region[9000:9150] == wanted[150:]
    store.close()
    assert engine.unregister_memory(a) == 0
