"""Values straight from and into the caller's registered memory, and parts of values."""

import pytest

from mooncake.store import ReplicateConfig
from sides import MIB, pattern

# ----------------------------------------------------------------------------- registration


def test_register_and_unregister(store, memory):
    region = memory(4096)
    assert store.register_buffer(region.address, 4096) == 0
    assert store.unregister_buffer(region.address) == 0


def test_registration_takes_keywords(store, memory):
    region = memory(4096)
    assert store.register_buffer(buffer_ptr=region.address, size=4096) == 0
    assert store.unregister_buffer(buffer_ptr=region.address) == 0


def test_null_and_zero_size_are_refused(store, memory):
    assert store.register_buffer(0, 4096) == -600
    assert store.register_buffer(memory(4096).address, 0) == -600


@pytest.mark.parametrize("offset,size", [(0, 16384), (0, 4096), (4096, 4096), (8192, 8192), (-4096, 8192)])
def test_a_region_cannot_be_registered_twice_in_any_part(store, memory, offset, size):
    whole = memory(65536)
    assert store.register_buffer(whole.address + 4096, 16384) == 0
    assert store.register_buffer(whole.address + 4096 + offset, size) == -600
    assert store.unregister_buffer(whole.address + 4096) == 0


def test_neighbouring_regions_are_apart(store, memory):
    whole = memory(16384)
    assert store.register_buffer(whole.address, 8192) == 0
    assert store.register_buffer(whole.address + 8192, 8192) == 0
    assert store.unregister_buffer(whole.address) == 0
    assert store.unregister_buffer(whole.address + 8192) == 0


def test_unregistering_what_is_not_registered(store, memory):
    region = memory(8192)
    assert store.unregister_buffer(region.address) == -600
    assert store.register_buffer(region.address, 8192) == 0
    assert store.unregister_buffer(region.address + 4096) == -600
    assert store.unregister_buffer(region.address) == 0
    assert store.unregister_buffer(region.address) == -600


def test_a_region_can_be_registered_again_after_unregistering(store, memory):
    region = memory(8192)
    for _ in range(5):
        assert store.register_buffer(region.address, 8192) == 0
        assert store.unregister_buffer(region.address) == 0


def test_each_store_has_registrations_of_its_own(store, reader, memory):
    region = memory(8192)
    assert store.register_buffer(region.address, 8192) == 0
    assert reader.register_buffer(region.address, 8192) == 0
    assert store.unregister_buffer(region.address) == 0
    assert reader.unregister_buffer(region.address) == 0


# ----------------------------------------------------------------------------- one key


@pytest.mark.parametrize("size", [1, 8, 4096, 4097, 1_000_003, 8 * MIB])
def test_put_from_then_get_into(store, reader, key, registered, size):
    data = pattern(size, seed=size)
    source, target = registered(size, data), registered(size, of=reader)
    assert store.put_from(key, source.address, size) == 0
    assert reader.get_into(key, target.address, size) == size
    assert target[:size] == data


def test_put_from_copies_before_it_answers(store, key, registered):
    source = registered(4096, b"a" * 4096)
    assert store.put_from(key, source.address, 4096) == 0
    source[:] = b"b" * 4096
    assert store.get(key) == b"a" * 4096


def test_parts_of_a_registered_region_can_be_used(store, key, registered):
    source, target = registered(16384, pattern(16384)), registered(16384)
    assert store.put_from(key, source.address + 100, 5000) == 0
    assert store.get_into(key, target.address + 7, 6000) == 5000
    assert target[7:5007] == pattern(16384)[100:5100]
    assert target[0:7] == bytes(7) and target[5007:16384] == bytes(16384 - 5007)


def test_get_into_more_room_answers_the_true_size(store, key, registered):
    store.put(key, b"12345")
    target = registered(4096, b"-" * 4096)
    assert store.get_into(key, target.address, 4096) == 5
    assert target[0:6] == b"12345-"


def test_get_into_too_little_room(store, key, registered):
    store.put(key, b"1234567890")
    target = registered(4096, b"-" * 4096)
    assert store.get_into(key, target.address, 9) == -600
    assert target[0:16] == b"-" * 16


def test_get_into_a_missing_key(store, key, registered):
    assert store.get_into(key, registered(64).address, 64) == -704


def test_zero_copy_calls_take_keywords(store, key, registered):
    region = registered(4096, pattern(4096))
    assert store.put_from(key=key, buffer_ptr=region.address, size=64, config=ReplicateConfig()) == 0
    assert store.get_into(key=key, buffer_ptr=region.address + 1024, size=64) == 64
    assert region[1024:1088] == pattern(4096)[:64]


def test_copying_and_zero_copy_calls_see_the_same_values(store, new_key, registered):
    region = registered(8192, pattern(4096))
    copied, direct = new_key(), new_key()
    store.put(copied, pattern(4096))
    store.put_from(direct, region.address, 4096)
    assert store.get(direct) == pattern(4096)
    assert store.get_into(copied, region.address + 4096, 4096) == 4096
    assert region[4096:8192] == pattern(4096)


# ----------------------------------------------------------------------------- batches


def test_batch_put_from_then_batch_get_into(store, reader, new_key, registered):
    size, count = 3000, 50
    keys = [new_key(str(i)) for i in range(count)]
    source, target = registered(size * count, pattern(size * count)), registered(size * count, of=reader)
    offsets = [i * size for i in range(count)]
    assert store.batch_put_from(keys, [source.address + o for o in offsets], [size] * count) == [0] * count
    assert reader.batch_get_into(keys, [target.address + o for o in offsets], [size] * count) == [size] * count
    assert target[: size * count] == source[: size * count]


def test_batch_put_from_answers_zero_for_existing_keys(store, new_key, registered):
    there, fresh = new_key(), new_key()
    store.put(there, b"old")
    region = registered(4096, b"n" * 4096)
    assert store.batch_put_from([there, fresh], [region.address] * 2, [3, 3]) == [0, 0]
    assert store.get_batch([there, fresh]) == [b"old", b"nnn"]


def test_batch_get_into_answers_per_key(store, new_key, registered):
    there, missing, large = new_key(), new_key(), new_key()
    store.put(there, b"12345678")
    store.put(large, b"x" * 100)
    region = registered(4096)
    a = region.address
    assert store.batch_get_into([there, missing, large], [a, a + 1024, a + 2048], [8, 8, 8]) == [8, -704, -600]
    assert region[0:8] == b"12345678"


def test_batches_of_nothing_are_empty(store):
    assert list(store.batch_put_from([], [], [])) == []
    assert list(store.batch_get_into([], [], [])) == []


def test_one_key_twice_in_a_batch_is_stored_once(store, key, registered):
    region = registered(4096, b"a" * 8 + b"b" * 8)
    assert store.batch_put_from([key, key], [region.address, region.address + 8], [8, 8]) == [0, 0]
    assert store.get(key) in (b"a" * 8, b"b" * 8)


# ----------------------------------------------------------------------------- metadata form


def test_metadata_goes_before_the_data(store, key, registered):
    region = registered(4096, b"DATADATA" + bytes(56) + b"META")
    assert store.put_from_with_metadata(key, region.address, region.address + 64, 8, 4) == 0
    assert store.get(key) == b"METADATADATA"


# ----------------------------------------------------------------------------- ranges


@pytest.fixture
def ranged(store, new_key):
    """Two stored values of which parts are read."""
    first, second = new_key("first"), new_key("second")
    store.put(first, bytes(range(100)))
    store.put(second, bytes(range(100, 200)))
    return first, second


def test_ranges_of_several_keys_go_into_several_buffers(store, ranged, registered):
    first, second = ranged
    one, two = registered(4096), registered(4096)
    answer = store.get_into_ranges(
        [one.address, two.address],
        [[first, second], [second]],
        [[[0, 50], [100]], [[7]]],
        [[[10, 90], [0]], [[99]]],
        [[[5, 10], [20]], [[1]]],
    )
    assert answer == [[[5, 10], [20]], [[1]]]
    assert one[0:5] == bytes(range(10, 15))
    assert one[50:60] == bytes(range(90, 100))
    assert one[100:120] == bytes(range(100, 120))
    assert two[7:8] == bytes([199])
    assert one[5:50] == bytes(45) and one[120:4096] == bytes(4096 - 120)


def test_ranges_take_keywords(store, ranged, registered):
    region = registered(64)
    answer = store.get_into_ranges(
        buffer_ptrs=[region.address],
        all_keys=[[ranged[0]]],
        all_dst_offsets=[[[0]]],
        all_src_offsets=[[[1]]],
        all_sizes=[[[2]]],
    )
    assert answer == [[[2]]] and region[0:2] == bytes([1, 2])


def test_ranges_of_unequal_top_level_lists_are_all_refused(store, ranged, registered):
    region = registered(64)
    for pointers, keys in ((2, 1), (1, 2)):
        answer = store.get_into_ranges(
            [region.address] * pointers, [[ranged[0]]] * keys, [[[0]]] * keys, [[[0]]] * keys, [[[1]]] * keys
        )
        codes = [code for per_buffer in answer for per_key in per_buffer for code in per_key]
        assert codes and set(codes) == {-600}


def test_ranges_of_unequal_inner_lists_are_refused_for_that_key(store, ranged, registered):
    first, second = ranged
    region = registered(4096)
    answer = store.get_into_ranges(
        [region.address], [[first, second]], [[[0, 8], [16]]], [[[0], [0]]], [[[4, 4], [4]]]
    )
    assert answer == [[[-600, -600], [4]]]


def test_no_fragments_for_a_key_give_no_results(store, ranged, registered):
    first, second = ranged
    region = registered(4096)
    answer = store.get_into_ranges([region.address], [[first, second]], [[[], [0]]], [[[], [0]]], [[[], [4]]])
    assert answer == [[[], [4]]]


def test_ranges_past_the_end_of_the_object_are_refused(store, ranged, registered):
    first, second = ranged
    region = registered(4096)
    answer = store.get_into_ranges(
        [region.address], [[first, second]], [[[0], [64]]], [[[95], [0]]], [[[6], [4]]]
    )
    assert answer == [[[-600], [4]]]


def test_ranges_past_the_end_of_the_buffer_are_refused(store, ranged, registered):
    region = registered(4096)
    answer = store.get_into_ranges([region.address], [[ranged[0]]], [[[4090]]], [[[0]]], [[[10]]])
    assert answer == [[[-600]]]


def test_ranges_of_a_missing_key_leave_the_others_alone(store, ranged, key, registered):
    region = registered(4096)
    answer = store.get_into_ranges(
        [region.address], [[key, ranged[1]]], [[[0, 8], [16]]], [[[0, 0], [0]]], [[[4, 4], [4]]]
    )
    assert answer == [[[-704, -704], [4]]]
    assert region[16:20] == bytes(range(100, 104))


def test_ranges_into_unregistered_memory_are_refused(store, ranged, memory):
    region = memory(4096)
    answer = store.get_into_ranges([region.address], [[ranged[0]]], [[[0]]], [[[0]]], [[[4]]])
    assert answer == [[[-600]]]
    assert region[0:4] == bytes(4)


@pytest.mark.differs(
    "zero bytes are an error of the caller everywhere",
    peer="0",
    ours="-600",
)
def test_a_range_of_zero_bytes(side, store, ranged, registered):
    region = registered(64)
    answer = store.get_into_ranges([region.address], [[ranged[0]]], [[[0]]], [[[0]]], [[[0]]])
    assert answer == side.pick(ours=[[[-600]]], peer=[[[0]]])


def test_ranges_of_nothing(store, registered):
    assert store.get_into_ranges([], [], [], [], []) == []
    assert store.get_into_ranges([registered(64).address], [[]], [[]], [[]], [[]]) == [[]]
