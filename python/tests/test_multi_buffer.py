"""Objects gathered from, and scattered into, many pieces of memory: how engines move their layers."""

import pytest

from mooncake.store import ReplicateConfig
from sides import pattern


def pieces(region, sizes, gap=0):
    """Addresses of consecutive pieces of a region."""
    addresses, offset = [], 0
    for size in sizes:
        addresses.append(region.address + offset)
        offset += size + gap
    return addresses


def test_an_object_is_the_concatenation_of_its_pieces(store, key, registered):
    sizes = [10, 4000, 1, 989]
    region = registered(16384, pattern(16384))
    assert store.batch_put_from_multi_buffers([key], [pieces(region, sizes, gap=100)], [sizes]) == [0]
    wanted, offset = b"", 0
    for size in sizes:
        wanted += pattern(16384)[offset : offset + size]
        offset += size + 100
    assert store.get(key) == wanted


def test_pieces_are_filled_in_order(store, reader, key, registered):
    data = pattern(5000)
    store.put(key, data)
    region = registered(16384, of=reader)
    sizes = [1, 2000, 2999]
    addresses = pieces(region, sizes, gap=50)
    assert reader.batch_get_into_multi_buffers([key], [addresses], [sizes]) == [5000]
    assert region[0:1] == data[:1]
    assert region[51:2051] == data[1:2001]
    assert region[2101:5100] == data[2001:]
    assert region[1:51] == bytes(50) and region[2051:2101] == bytes(50)


def test_pieces_of_several_regions_and_any_order(store, reader, key, registered):
    one, two = registered(4096, b"1" * 4096), registered(4096, b"2" * 4096)
    assert store.batch_put_from_multi_buffers([key], [[two.address, one.address, two.address]], [[3, 2, 1]]) == [0]
    assert reader.get(key) == b"222112"


def test_layers_of_many_blocks(store, reader, new_key, registered):
    blocks, layers, size = 40, 16, 512
    keys = [new_key(str(b)) for b in range(blocks)]
    total = blocks * layers * size
    source, target = registered(total, pattern(total)), registered(total, of=reader)

    def table(region):
        # Layer-major memory: a block's pieces lie far apart.
        return [[region.address + (layer * blocks + b) * size for layer in range(layers)] for b in range(blocks)]

    sizes = [[size] * layers] * blocks
    assert store.batch_put_from_multi_buffers(keys, table(source), sizes) == [0] * blocks
    assert reader.batch_get_into_multi_buffers(keys, table(target), sizes) == [layers * size] * blocks
    assert target[:total] == source[:total]


def test_another_split_of_the_same_total(store, key, registered):
    region = registered(8192, pattern(8192))
    store.batch_put_from_multi_buffers([key], [[region.address]], [[100]])
    target = registered(8192)
    assert store.batch_get_into_multi_buffers([key], [pieces(target, [30, 30, 40])], [[30, 30, 40]]) == [100]
    assert target[0:100] == pattern(8192)[:100]


def test_too_little_room_is_refused(store, key, registered):
    store.put(key, b"x" * 100)
    region = registered(4096)
    assert store.batch_get_into_multi_buffers([key], [pieces(region, [50, 49])], [[50, 49]]) == [-600]


def test_more_room_than_the_object_needs_is_refused(store, key, registered):
    store.put(key, pattern(100))
    region = registered(4096)
    assert store.batch_get_into_multi_buffers([key], [pieces(region, [60, 60])], [[60, 60]]) == [-800]


def test_answers_are_per_key(store, new_key, registered):
    there, missing = new_key(), new_key()
    store.put(there, b"x" * 10)
    region = registered(4096)
    a = region.address
    assert store.batch_get_into_multi_buffers([there, missing], [[a], [a + 100]], [[10], [10]]) == [10, -704]


def test_existing_keys_answer_zero(store, new_key, registered):
    there, fresh = new_key(), new_key()
    store.put(there, b"old")
    region = registered(4096, b"n" * 4096)
    assert store.batch_put_from_multi_buffers([there, fresh], [[region.address]] * 2, [[3]] * 2) == [0, 0]
    assert store.get_batch([there, fresh]) == [b"old", b"nnn"]


def test_only_this_writer_takes_the_same_node_wish(store, key, registered):
    config = ReplicateConfig()
    config.prefer_alloc_in_same_node = True
    config.preferred_segment = store.get_hostname()
    region = registered(4096, b"v" * 4096)
    assert store.batch_put_from_multi_buffers([key], [[region.address]], [[16]], config) == [0]
    answer = store.batch_get_into_multi_buffers([key], [[region.address]], [[16]], prefer_alloc_in_same_node=True)
    assert answer == [16]


def test_multi_buffer_calls_take_keywords(store, key, registered):
    region = registered(4096, b"v" * 4096)
    assert store.batch_put_from_multi_buffers(
        keys=[key], all_buffer_ptrs=[[region.address]], all_sizes=[[16]], config=ReplicateConfig()
    ) == [0]
    assert store.batch_get_into_multi_buffers(
        keys=[key], all_buffer_ptrs=[[region.address]], all_sizes=[[16]], prefer_alloc_in_same_node=False
    ) == [16]


def test_group_ids_are_one_per_key(store, new_key, registered):
    region = registered(4096, b"v" * 4096)
    config = ReplicateConfig()
    config.group_ids = ["a", "b"]
    keys = [new_key(str(i)) for i in range(3)]
    assert store.batch_put_from_multi_buffers(keys, [[region.address]] * 3, [[8]] * 3, config) == [-600] * 3
    config.group_ids = ["a", "b", ""]
    assert store.batch_put_from_multi_buffers(keys, [[region.address]] * 3, [[8]] * 3, config) == [0] * 3


def test_no_keys_give_no_answers(store):
    assert list(store.batch_put_from_multi_buffers([], [], [])) == []
    assert list(store.batch_get_into_multi_buffers([], [], [])) == []


def test_an_object_of_no_pieces_is_refused(store, key, registered):
    a = registered(64).address
    assert store.batch_put_from_multi_buffers([key], [[]], [[]]) == [-600]
    assert store.is_exist(key) == 0
    assert store.batch_put_from_multi_buffers([key], [[a, a]], [[8, 0]]) == [0]
    assert store.get_size(key) == 8
