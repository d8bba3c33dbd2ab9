"""Objects written and read piece by piece, as layers become ready."""

import pytest

from sides import pattern


def write(store, key, size, data, region):
    region[:] = data
    assert store.batch_put_session_start([key], [size]) == [0]
    assert store.batch_put_from_multi_buffer_ranges([key], [[region.address]], [[size]], [[0]]) == [size]
    assert store.batch_put_session_end([key]) == [0]


def test_pieces_become_one_object(store, reader, key, registered):
    region = registered(8192, pattern(8192))
    assert store.batch_put_session_start([key], [3000]) == [0]
    # The last layer may come first.
    for offset in (2000, 0, 1000):
        assert store.batch_put_from_multi_buffer_ranges(
            [key], [[region.address + offset, region.address + offset + 400]], [[400, 600]], [[offset, offset + 400]]
        ) == [1000]
    assert reader.is_exist(key) == 0
    assert store.batch_put_session_end([key]) == [0]
    assert reader.get(key) == pattern(8192)[:3000]


def test_sessions_take_keywords(store, key, registered):
    region = registered(4096, pattern(4096))
    assert store.batch_put_session_start(keys=[key], sizes=[64]) == [0]
    assert store.batch_put_from_multi_buffer_ranges(
        keys=[key], all_buffer_ptrs=[[region.address]], all_sizes=[[64]], all_dst_offsets=[[0]]
    ) == [64]
    assert store.batch_put_session_end(keys=[key]) == [0]
    assert store.batch_get_session_start(keys=[key]) == [0]
    assert store.batch_get_into_multi_buffer_ranges(
        keys=[key], all_buffer_ptrs=[[region.address + 1024]], all_sizes=[[32]], all_src_offsets=[[32]]
    ) == [32]
    assert store.batch_get_session_end(keys=[key]) == 0
    assert region[1024:1056] == pattern(4096)[32:64]


def test_a_key_has_one_session_at_a_time(store, key):
    assert store.batch_put_session_start([key], [64]) == [0]
    assert store.batch_put_session_start([key], [64]) == [-600]
    assert store.batch_put_session_revoke([key]) == [0]
    assert store.batch_put_session_start([key], [64]) == [0]
    assert store.batch_put_session_revoke([key]) == [0]


def test_a_session_on_an_existing_object_says_so(store, key):
    store.put(key, b"there")
    assert store.batch_put_session_start([key], [64]) == [-705]
    assert store.get(key) == b"there"


def test_more_than_was_reserved_is_refused(store, key, registered):
    region = registered(4096)
    assert store.batch_put_session_start([key], [100]) == [0]
    assert store.batch_put_from_multi_buffer_ranges([key], [[region.address]], [[101]], [[0]]) == [-600]
    assert store.batch_put_from_multi_buffer_ranges([key], [[region.address]], [[50]], [[51]]) == [-600]
    assert store.batch_put_session_revoke([key]) == [0]


def test_writing_ending_and_revoking_need_a_session(store, key, registered):
    region = registered(4096)
    assert store.batch_put_from_multi_buffer_ranges([key], [[region.address]], [[8]], [[0]]) == [-600]
    assert store.batch_put_session_end([key]) == [-600]


def test_a_revoked_session_leaves_nothing(store, key, registered):
    region = registered(4096, b"x" * 4096)
    assert store.batch_put_session_start([key], [64]) == [0]
    assert store.batch_put_from_multi_buffer_ranges([key], [[region.address]], [[64]], [[0]]) == [64]
    assert store.batch_put_session_revoke([key]) == [0]
    assert store.is_exist(key) == 0
    assert store.put(key, b"other") == 0
    assert store.get(key) == b"other"


def test_several_keys_stream_side_by_side(store, reader, new_key, registered):
    keys = [new_key(str(i)) for i in range(5)]
    region = registered(8192, pattern(8192))
    assert store.batch_put_session_start(keys, [1000] * 5) == [0] * 5
    for layer in range(2):
        addresses = [[region.address + i * 1000 + layer * 500] for i in range(5)]
        assert store.batch_put_from_multi_buffer_ranges(
            keys, addresses, [[500]] * 5, [[layer * 500]] * 5
        ) == [500] * 5
    assert store.batch_put_session_end(keys) == [0] * 5
    assert reader.get_batch(keys) == [pattern(8192)[i * 1000 : (i + 1) * 1000] for i in range(5)]


def test_reading_in_ranges(store, reader, key, registered):
    source, target = registered(4096), registered(4096, of=reader)
    write(store, key, 3000, pattern(3000), source)
    assert reader.batch_get_session_start([key]) == [0]
    assert reader.batch_get_into_multi_buffer_ranges(
        [key], [[target.address, target.address + 2000]], [[100, 50]], [[2900, 0]]
    ) == [150]
    assert target[0:100] == pattern(3000)[2900:]
    assert target[2000:2050] == pattern(3000)[:50]
    assert reader.batch_get_session_end([key]) == 0


def test_a_read_session_on_a_missing_key(store, key):
    assert store.batch_get_session_start([key]) == [-704]


def test_reading_ranges_needs_a_session(store, key, registered):
    store.put(key, b"12345678")
    region = registered(64)
    assert store.batch_get_into_multi_buffer_ranges([key], [[region.address]], [[4]], [[0]]) == [-600]


def test_ranges_past_the_end_are_refused(store, key, registered):
    store.put(key, b"12345678")
    region = registered(64)
    assert store.batch_get_session_start([key]) == [0]
    assert store.batch_get_into_multi_buffer_ranges([key], [[region.address]], [[4]], [[6]]) == [-600]
    assert store.batch_get_session_end([key]) == 0


def test_ending_a_read_session_answers_zero_also_without_one(store, key):
    assert store.batch_get_session_end([key]) == 0


def test_a_read_session_protects_its_object(store, reader, key, registered):
    store.put(key, pattern(1000))
    region = registered(4096, of=reader)
    assert reader.batch_get_session_start([key]) == [0]
    assert store.remove(key) == -706
    assert reader.batch_get_into_multi_buffer_ranges([key], [[region.address]], [[1000]], [[0]]) == [1000]
    assert region[0:1000] == pattern(1000)
    assert reader.batch_get_session_end([key]) == 0


@pytest.mark.differs(
    "the direct linker reads layer after layer for as long as a prefill takes, which may outlast a lease",
    peer="-707, and the session is gone",
    ours="the session renews the lease of its objects",
)
def test_a_read_session_outlasts_a_lease(side, store, reader, new_key, registered, until):
    key, clock = new_key(), new_key("clock")
    store.put(key, pattern(1000))
    region = registered(4096, of=reader)
    assert reader.batch_get_session_start([key]) == [0]
    for _ in range(2):
        # Two leases of another object, one after the other, run out meanwhile.
        store.put(clock, b"x")
        store.is_exist(clock)
        until(lambda: store.remove(clock) == 0, 5, "a lease runs out")
    answer = reader.batch_get_into_multi_buffer_ranges([key], [[region.address]], [[1000]], [[0]])
    assert answer == side.pick(ours=[1000], peer=[-707])
    assert reader.batch_get_session_end([key]) == 0


def test_a_session_ends_once(store, key, registered):
    region = registered(64)
    assert store.batch_put_session_start([key], [8]) == [0]
    assert store.batch_put_from_multi_buffer_ranges([key], [[region.address]], [[8]], [[0]]) == [8]
    assert store.batch_put_session_end([key]) == [0]
    assert store.batch_put_session_end([key]) == [-600]
    assert store.batch_put_session_revoke([key]) == [-600]


def test_what_was_not_written_belongs_to_the_object_too(store, key, registered):
    region = registered(64, b"12345678")
    assert store.batch_put_session_start([key], [100]) == [0]
    assert store.batch_put_from_multi_buffer_ranges([key], [[region.address]], [[8]], [[0]]) == [8]
    assert store.batch_put_session_end([key]) == [0]
    assert store.get_size(key) == 100 and store.get(key)[:8] == b"12345678"


def test_sessions_of_zero_bytes_and_of_no_keys(store, key, registered):
    assert store.batch_put_session_start([key], [0]) == [-600]
    assert (store.batch_put_session_start([], []), store.batch_get_session_start([])) == ([], [])
    assert store.batch_get_session_end([]) == 0
    store.put(key, b"12345678")
    assert store.batch_get_session_start([key, key]) == [0, 0]
    assert store.batch_get_into_multi_buffer_ranges([key], [[]], [[]], [[]]) == [0]
    assert store.batch_get_into_multi_buffer_ranges([key], [[registered(64).address]], [[0]], [[0]]) == [0]
    assert store.batch_get_session_end([key]) == 0
