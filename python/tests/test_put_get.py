"""The copying calls: put, parts, batches, get, sizes and existence, and the leases they grant."""

import pytest

from mooncake.store import ReplicateConfig
from sides import MIB, pattern


@pytest.mark.parametrize("size", [1, 2, 63, 4096, 4097, 65_536, 1_000_003, 4 * MIB])
def test_put_then_get_gives_the_bytes(store, reader, key, size):
    data = pattern(size, seed=size)
    assert store.put(key, data) == 0
    assert store.get(key) == data
    assert reader.get(key) == data
    assert store.get_size(key) == size


def test_put_takes_keywords(store, key):
    assert store.put(key=key, value=b"named", config=ReplicateConfig()) == 0
    assert store.get(key) == b"named"


def test_a_reader_without_memory_can_write(reader, store, key):
    assert reader.put(key, b"from the consumer") == 0
    assert store.get(key) == b"from the consumer"


@pytest.mark.parametrize("writer", ["put", "put_batch", "put_parts", "put_from", "batch_put_from", "multi"])
def test_writing_an_existing_key_answers_zero_and_keeps_the_data(store, key, registered, writer):
    assert store.put(key, b"first") == 0
    region = registered(4096, b"other" * 100)
    calls = {
        "put": lambda: store.put(key, b"other"),
        "put_batch": lambda: store.put_batch([key], [b"other"]),
        "put_parts": lambda: store.put_parts(key, b"oth", b"er"),
        "put_from": lambda: store.put_from(key, region.address, 5),
        "batch_put_from": lambda: store.batch_put_from([key], [region.address], [5])[0],
        "multi": lambda: store.batch_put_from_multi_buffers([key], [[region.address]], [[5]])[0],
    }
    assert calls[writer]() == 0
    assert store.get(key) == b"first"


# ----------------------------------------------------------------------------- parts


def test_parts_are_joined(store, key):
    assert store.put_parts(key, b"abc", bytearray(b"def"), memoryview(b"ghi")) == 0
    assert store.get(key) == b"abcdefghi"


def test_parts_take_a_config_by_keyword(store, key):
    assert store.put_parts(key, b"header", b"body", config=ReplicateConfig()) == 0
    assert store.get(key) == b"headerbody"


def test_empty_parts_between_others_are_left_out(store, key):
    assert store.put_parts(key, b"", b"a", b"", b"b") == 0
    assert store.get(key) == b"ab"


# ----------------------------------------------------------------------------- batches


def test_put_batch_answers_one_code(store, new_key):
    keys = [new_key(str(i)) for i in range(8)]
    values = [pattern(100 + i, seed=i) for i in range(8)]
    assert store.put_batch(keys, values) == 0
    assert store.get_batch(keys) == values


def test_put_batch_of_nothing_is_fine(store):
    assert store.put_batch([], []) == 0


def test_the_first_of_two_values_for_one_key_wins(store, key):
    assert store.put_batch([key, key], [b"first", b"second"]) == 0
    assert store.get(key) == b"first"


def test_get_batch_gives_nothing_for_missing_keys(store, new_key):
    there, missing = new_key(), new_key()
    store.put(there, b"here")
    assert store.get_batch([there, missing, there]) == [b"here", b"", b"here"]


def test_get_batch_of_nothing_is_one_empty_value(store):
    assert store.get_batch([]) == [b""]


def test_a_large_batch_round_trips(store, reader, new_key):
    keys = [new_key(str(i)) for i in range(1000)]
    values = [pattern(64 + i % 7, seed=i) for i in range(1000)]
    assert store.put_batch(keys, values) == 0
    assert reader.get_batch(keys) == values
    assert store.batch_is_exist(keys) == [1] * 1000


# ----------------------------------------------------------------------------- handles


def test_get_buffer_gives_a_handle_with_the_bytes(store, key):
    data = pattern(100_000)
    store.put(key, data)
    handle = store.get_buffer(key)
    assert handle.size() == len(data) and bytes(handle) == data


def test_batch_get_buffer_gives_none_for_missing_keys(store, new_key):
    there, missing = new_key(), new_key()
    store.put(there, b"here")
    first, second, third = store.batch_get_buffer([there, missing, there])
    assert bytes(first) == bytes(third) == b"here"
    assert second is None


def test_batch_get_buffer_of_nothing_is_empty(store):
    assert store.batch_get_buffer([]) == []


def test_handles_are_given_back_when_dropped(store, key):
    # Ten times the local buffer passes through handles of which one lives at a time.
    data = pattern(8 * MIB)
    store.put(key, data)
    for _ in range(40):
        handle = store.get_buffer(key)
        assert handle is not None and handle.size() == len(data)
        del handle


# ----------------------------------------------------------------------------- existence, sizes and leases


def test_existence_of_nothing_is_empty(store):
    assert store.batch_is_exist([]) == []


def test_existence_of_many(store, new_key):
    keys = [new_key(str(i)) for i in range(64)]
    for k in keys[::3]:
        store.put(k, b"x")
    assert store.batch_is_exist(keys) == [1 if i % 3 == 0 else 0 for i in range(64)]
    assert store.batch_is_exist(keys=tuple(keys[:2])) == [1, 0]


def test_size_of_a_missing_key(store, key):
    assert store.get_size(key) == -704


def test_writing_grants_no_lease(store, key):
    store.put(key, b"x")
    assert store.remove(key) == 0


@pytest.mark.parametrize("reading", ["is_exist", "get", "get_size", "get_buffer", "get_replica_desc", "batch_is_exist", "get_batch", "get_into"])
def test_reading_grants_a_lease_that_runs_out(store, key, memory, until, reading):
    store.put(key, b"leased")
    calls = {
        "batch_is_exist": lambda: store.batch_is_exist([key]),
        "get_batch": lambda: store.get_batch([key]),
        "get_into": lambda: store.get_into(key, memory(64).address, 64),
    }
    calls.get(reading, lambda: getattr(store, reading)(key))()
    assert store.remove(key) == -706
    until(lambda: store.remove(key) == 0, 5, "the lease runs out")


@pytest.mark.differs(
    "a put session keeps its pieces in the writer's memory and takes room in the pool at its end",
    peer='get_size answers -703',
    ours='get_size answers -704: the pool does not know the key yet',
)
def test_a_key_under_construction_is_not_seen(side, store, reader, key):
    assert store.batch_put_session_start([key], [4096]) == [0]
    assert reader.is_exist(key) == 0
    assert reader.get(key) == b""
    assert reader.get_size(key) == side.pick(ours=-704, peer=-703)
    assert store.batch_put_session_revoke([key]) == [0]


@pytest.mark.differs(
    "a put session keeps its pieces in the writer's memory and takes room in the pool at its end",
    peer='0, and nothing is stored',
    ours="0, and the put wins; the session's end answers 0 and changes nothing",
)
def test_a_put_beside_one_under_construction_answers_zero(side, store, reader, key):
    assert store.batch_put_session_start([key], [4096]) == [0]
    assert reader.put(key, b"beside") == 0
    assert reader.is_exist(key) == side.pick(ours=1, peer=0)
    if side.is_peer:
        assert store.batch_put_session_revoke([key]) == [0]
        assert reader.put(key, b"beside") == 0
    else:
        assert store.batch_put_session_end([key]) == [0]
    assert store.get(key) == b"beside"


def test_a_full_pool_evicts_what_nobody_reads(own_pool, until):
    store = own_pool().open(segment=64 * MIB)
    data = pattern(4 * MIB)
    for i in range(40):
        until(lambda i=i: store.put(f"k{i}", data) == 0, 10, f"room for k{i}")
    assert store.get("k39") == data
    assert 0 < sum(store.batch_is_exist([f"k{i}" for i in range(40)])) < 40


def test_a_pool_full_of_hard_pinned_objects_has_no_space(own_pool):
    store = own_pool().open(segment=32 * MIB)
    config = ReplicateConfig()
    config.with_hard_pin = True
    codes = [store.put(f"k{i}", pattern(4 * MIB), config) for i in range(12)]
    assert codes[0] == 0 and codes[-1] == -200
    assert store.get("k0") == pattern(4 * MIB)


@pytest.mark.differs(
    "what can never fit is an error of the caller, at once and evicting nothing; -200 invites a retry",
    peer="-200",
    ours="-600 with the largest size in last_error()",
)
def test_a_value_larger_than_the_pool_has_no_space(side, own_pool, memory):
    store = own_pool().open(segment=16 * MIB)
    region = memory(32 * MIB)
    assert store.register_buffer(region.address, region.size) == 0
    code = store.put_from("k", region.address, region.size)
    assert code == side.pick(ours=-600, peer=-200)
    assert store.is_exist("k") == 0
    store.unregister_buffer(region.address)
