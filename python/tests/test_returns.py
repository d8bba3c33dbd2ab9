"""What a caller gets back: codes, sizes, lists, and which mistakes raise."""

import array
import collections

import numpy as np
import pytest

import sides
from mooncake.store import ReplicateConfig

# ----------------------------------------------------------------------------- shapes


def test_status_calls_answer_zero_or_a_negative_code(store, key):
    assert store.put(key, b"value") == 0
    assert store.remove(key) == 0
    assert store.remove(key) == -704


def test_size_calls_answer_bytes_or_a_negative_code(store, key):
    store.put(key, b"12345")
    assert store.get_size(key) == 5
    assert store.get_size(key + "/missing") == -704


def test_counting_calls_answer_how_many(store, new_key):
    prefix = new_key()
    for i in range(3):
        store.put(f"{prefix}/{i}", b"x")
    assert store.remove_by_regex(f"^{prefix}/") == 3
    assert store.remove_by_regex(f"^{prefix}/") == 0


def test_existence_is_one_or_zero(store, key):
    assert store.is_exist(key) == 0
    store.put(key, b"x")
    assert store.is_exist(key) == 1


def test_bytes_calls_answer_nothing_for_a_missing_key(store, key):
    assert store.get(key) == b""


def test_object_calls_answer_none_for_a_missing_key(store, key):
    assert store.get_buffer(key) is None


def test_list_calls_answer_one_entry_per_key_in_order(store, new_key):
    keys = [new_key(str(i)) for i in range(4)]
    for k in (keys[0], keys[2]):
        store.put(k, b"x")
    answer = store.batch_is_exist(keys)
    assert answer == [1, 0, 1, 0]
    assert type(answer) is list and all(type(code) is int for code in answer)


@pytest.mark.parametrize(
    "call",
    [
        lambda s, k, a: s.batch_put_from(k, [a], [8]),
        lambda s, k, a: s.batch_put_from(k, [a] * 3, [8]),
        lambda s, k, a: s.batch_get_into(k, [a], [8]),
        lambda s, k, a: s.batch_get_into(k, [a] * 3, [8, 8]),
        lambda s, k, a: s.batch_put_from_multi_buffers(k, [[a]], [[8]]),
        lambda s, k, a: s.batch_put_from_multi_buffers(k, [[a]] * 3, [[8], [8, 8], [8]]),
        lambda s, k, a: s.batch_get_into_multi_buffers(k, [[a]], [[8]]),
        lambda s, k, a: s.batch_upsert_from(k, [a], [8]),
        lambda s, k, a: s.batch_put_session_start(k, [8]),
        lambda s, k, a: s.batch_put_from_multi_buffer_ranges(k, [[a]], [[8]], [[0]]),
        lambda s, k, a: s.batch_get_into_multi_buffer_ranges(k, [[a]], [[8]], [[0]]),
    ],
    ids=[
        "put_from", "put_from_sizes", "get_into", "get_into_sizes", "put_multi", "put_multi_inner", "get_multi",
        "upsert_from", "put_session", "put_ranges", "get_ranges",
    ],
)
def test_lists_of_unequal_length_fill_every_entry_with_invalid(store, new_key, registered, call):
    keys = [new_key(str(i)) for i in range(3)]
    region = registered(4096)
    assert call(store, keys, region.address) == [-600] * 3


def test_put_batch_of_unequal_length_is_one_code(store, new_key):
    assert store.put_batch([new_key(), new_key()], [b"one"]) == -600


def test_task_calls_answer_a_pair(store, key):
    assert store.query_task((1, 2))[0] is None
    payload, code = store.create_copy_task(key, [])
    assert tuple(payload) == (0, 0) and code < 0


def test_segment_calls_answer_a_dictionary(store):
    answer = store.mount_segment("/no/such/file", 4096)
    assert isinstance(answer, dict) and answer["ret"] < 0


# ----------------------------------------------------------------------------- what raises


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.put(None, b"v"),
        lambda s: s.put("k", None),
        lambda s: s.put("k", "text"),
        lambda s: s.put("k", 5),
        lambda s: s.put("k"),
        lambda s: s.put("k", b"v", 3),
        lambda s: s.put("k", b"v", unknown=1),
        lambda s: s.put_batch("k", [b"v"]),
        lambda s: s.put_batch(["k"], ["text"]),
        lambda s: s.get(None),
        lambda s: s.get(5),
        lambda s: s.get_batch("k"),
        lambda s: s.is_exist(1.5),
        lambda s: s.batch_is_exist([None]),
        lambda s: s.batch_is_exist(None),
        lambda s: s.put_from("k", "address", 4),
        lambda s: s.put_from("k", 1.0, 4),
        lambda s: s.batch_put_from(["k"], ["a"], [1]),
        lambda s: s.batch_put_from_multi_buffers(["k"], [1], [[1]]),
        lambda s: s.get_into("k", None, 4),
        lambda s: s.register_buffer("a", 4),
        lambda s: s.remove(None),
        lambda s: s.remove_by_regex(5),
    ],
)
def test_arguments_of_a_wrong_type_raise_type_error(store, call):
    with pytest.raises(TypeError):
        call(store)


@pytest.mark.parametrize("number", [-1, 1 << 64])
@pytest.mark.parametrize(
    "call",
    [
        lambda s, n: s.register_buffer(n, 4096),
        lambda s, n: s.register_buffer(4096, n),
        lambda s, n: s.put_from("k", 4096, n),
        lambda s, n: s.get_into("k", n, 8),
        lambda s, n: s.batch_put_from(["k"], [n], [8]),
        lambda s, n: s.batch_get_into(["k"], [4096], [n]),
        lambda s, n: s.batch_put_from_multi_buffers(["k"], [[4096, n]], [[8, 8]]),
        lambda s, n: s.batch_get_into_multi_buffers(["k"], [[4096]], [[n]]),
    ],
)
def test_numbers_outside_64_bits_raise_instead_of_wrapping(store, number, call):
    with pytest.raises(TypeError):
        call(store, number)


def test_config_of_parts_is_keyword_only(store, key):
    with pytest.raises((TypeError, RuntimeError)):
        store.put_parts(key, b"part", ReplicateConfig())


@pytest.mark.parametrize("writer", ["put_parts", "upsert_parts"])
def test_parts_of_wider_elements_raise_runtime_error(store, key, writer):
    with pytest.raises(RuntimeError):
        getattr(store, writer)(key, array.array("I", [1, 2, 3]))


def test_metadata_form_answers_positive_codes(store, registered):
    region = registered(4096)
    assert store.put_from_with_metadata("", region.address, region.address + 64, 8, 4) == 600


# ----------------------------------------------------------------------------- keys


@pytest.mark.parametrize("text", ["plain", "sl/ash", "blank and\nline", "\u00fcml\u00e4ut-\u6771\u4eac-\U0001f600", "a" * 1000, "%00%", "quo'te\""])
def test_any_text_is_a_key(store, new_key, text):
    name = new_key() + text
    assert store.put(name, text.encode()) == 0
    assert store.get(name) == text.encode()
    assert store.is_exist(name) == 1


def test_bytes_and_text_name_the_same_key(store, key):
    assert store.put(key, b"by text") == 0
    assert store.get(key.encode()) == b"by text"
    assert store.batch_is_exist([key.encode(), key]) == [1, 1]
    assert store.remove(key.encode(), True) == 0


def test_keys_need_not_be_utf8(store, new_key):
    name = new_key().encode() + b"\xff\xfe\x00\x01\n"
    assert store.put(name, b"raw") == 0
    assert store.get(name) == b"raw"
    assert store.is_exist(name) == 1
    assert store.is_exist(name[:-1]) == 0


@pytest.mark.differs(
    "the length of a key is bounded, so that one request cannot fill the directory",
    peer="keys of 1 MiB work",
    ours="-400 above 65,535 bytes",
)
def test_long_keys(side, store, new_key):
    fits = new_key() + "k" * 60_000
    assert store.put(fits, b"v") == 0 and store.get(fits) == b"v"
    huge = new_key() + "k" * sides.MIB
    code = store.put(huge, b"v")
    assert code == side.pick(ours=-400, peer=0)
    assert store.is_exist(huge) == side.pick(ours=-400, peer=1)


@pytest.mark.parametrize(
    "call",
    [
        lambda s, a: s.put("", b"v"),
        lambda s, a: s.put_batch([""], [b"v"]),
        lambda s, a: s.put_parts("", b"v"),
        lambda s, a: s.put_from("", a, 8),
        lambda s, a: s.batch_put_from([""], [a], [8])[0],
        lambda s, a: s.batch_put_from_multi_buffers([""], [[a]], [[8]])[0],
        lambda s, a: s.upsert("", b"v"),
    ],
    ids=["put", "put_batch", "put_parts", "put_from", "batch_put_from", "multi", "upsert"],
)
def test_an_empty_key_cannot_be_written(store, registered, call):
    assert call(store, registered(4096).address) == -600


@pytest.mark.differs(
    "an empty key is an error of the caller in every call",
    peer="a missing key: -704, 0 from existence",
    ours="-600",
)
def test_an_empty_key_is_asked_for(side, store, registered):
    a = registered(64).address
    missing = side.pick(ours=-600, peer=-704)
    assert store.get("") == b"" and store.get_buffer("") is None
    assert (store.get_size(""), store.remove(""), store.get_into("", a, 8)) == (missing,) * 3
    assert store.is_exist("") == side.pick(ours=-600, peer=0)
    assert store.batch_get_into([""], [a], [8]) == [missing]


# ----------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    "value", [b"bytes", bytearray(b"bytearray"), memoryview(b"view"), memoryview(bytearray(b"writable"))[2:6]]
)
def test_values_are_any_contiguous_bytes(store, key, value):
    assert store.put(key, value) == 0
    assert store.get(key) == bytes(value)


@pytest.mark.differs(
    "a value is all of its bytes; the released package counts elements and stores a part",
    peer="as many bytes as the exporter has elements",
    ours="nbytes of contiguous data",
)
def test_values_of_wider_elements(side, store, key):
    value = array.array("I", [0x01020304] * 6)
    assert store.put(key, value) == 0
    assert len(store.get(key)) == side.pick(ours=24, peer=6)


@pytest.mark.differs(
    "storing other bytes than those of the view would be silent corruption",
    peer="the first bytes of the underlying memory",
    ours="the bytes of the view",
)
def test_values_with_strides(side, store, key):
    assert store.put(key, memoryview(b"abcdef")[::2]) == 0
    assert store.get(key) == side.pick(ours=b"ace", peer=b"abc")


@pytest.mark.parametrize("writer", ["put", "upsert"])
def test_empty_values_are_refused_by_copying_writers(store, key, writer):
    assert getattr(store, writer)(key, b"") == -600
    assert store.is_exist(key) == 0


@pytest.mark.parametrize("writer", ["put_from", "upsert_from"])
def test_zero_bytes_from_memory_store_nothing(store, key, registered, writer):
    region = registered(4096)
    assert getattr(store, writer)(key, region.address, 0) == 0
    assert store.is_exist(key) == 0


@pytest.mark.parametrize("writer", ["put_parts", "upsert_parts"])
def test_empty_parts_store_nothing(store, key, writer):
    assert getattr(store, writer)(key, b"", bytearray()) == 0
    assert store.is_exist(key) == 0


def test_zero_bytes_in_a_batch_are_refused_for_that_key(store, new_key, registered):
    region = registered(4096, b"x" * 4096)
    keys = [new_key("a"), new_key("b")]
    assert store.batch_put_from(keys, [region.address] * 2, [0, 8]) == [-600, 0]
    assert store.batch_is_exist(keys) == [0, 1]


def test_the_largest_value_of_a_copying_write_fits_the_local_buffer(own_pool):
    store = own_pool().open(segment=64 * sides.MIB, local_buffer=16 * sides.MIB)
    assert store.put("fits", sides.pattern(12 * sides.MIB)) == 0
    assert store.get_size("fits") == 12 * sides.MIB
    assert store.put("too large", bytes(20 * sides.MIB)) == -600
    assert store.is_exist("too large") == 0


# ----------------------------------------------------------------------------- what counts as a list or a number

SEQUENCES = {
    "tuple": tuple,
    "numpy unsigned": lambda values: np.array(values, dtype=np.uint64),
    "numpy signed": lambda values: np.array(values, dtype=np.int64),
    "array": lambda values: array.array("Q", values),
    "deque": collections.deque,
}


@pytest.mark.parametrize("kind", SEQUENCES)
def test_addresses_and_sizes_come_in_any_sequence(store, new_key, registered, kind):
    make, region = SEQUENCES[kind], registered(4096, b"s" * 4096)
    a = region.address
    keys = (new_key(), new_key())
    assert store.batch_put_from(keys, make([a, a + 8]), make([8, 16])) == [0, 0]
    assert store.batch_get_into(keys, make([a + 64, a + 128]), make([8, 16])) == [8, 16]
    name = new_key()
    assert store.batch_put_from_multi_buffers([name], [make([a, a + 8])], [make([8, 8])]) == [0]
    assert store.batch_get_into_multi_buffers([name], [make([a + 64, a + 100])], [make([10, 6])]) == [16]


@pytest.mark.parametrize("kind", [np.uint64, np.int64, type("Own", (int,), {})])
def test_addresses_and_sizes_are_anything_that_counts(store, key, registered, kind):
    region = registered(4096, b"n" * 4096)
    assert store.put_from(key, kind(region.address), kind(64)) == 0
    assert store.get_into(key, kind(region.address), kind(64)) == 64


@pytest.mark.parametrize("value", [np.arange(6, dtype=np.uint8), np.arange(6, dtype=np.int8), np.arange(6, dtype=np.uint8).reshape(2, 3)])
def test_arrays_of_bytes_are_values(store, key, value):
    assert store.put(key, value) == 0
    assert store.get(key) == bytes(range(6))


@pytest.mark.parametrize("force,gone", [(True, True), (1, True), (np.bool_(True), True), (False, False), (0, False), (None, False)])
def test_flags_are_anything_with_a_truth(store, key, force, gone):
    store.put(key, b"x")
    store.is_exist(key)
    assert store.remove(key, force) == (0 if gone else -706)


def test_a_text_is_no_flag(store, key):
    with pytest.raises(TypeError):
        store.remove(key, "yes")


@pytest.mark.differs(
    "keys are read without a copy while other Python threads run, so they must not change",
    peer="a key",
    ours="TypeError: str or bytes",
)
def test_a_bytearray_as_a_key(side, store, key):
    if side.is_peer:
        assert store.put(bytearray(key.encode()), b"x") == 0
        assert store.get(key) == b"x"
        return
    with pytest.raises(TypeError):
        store.put(bytearray(key.encode()), b"x")


def test_a_key_that_is_no_text_raises(store):
    with pytest.raises(TypeError):
        store.put("\ud800", b"v")


def test_a_task_is_a_pair(store):
    with pytest.raises(TypeError):
        store.query_task((1,))
    assert store.query_task([1, 2])[0] is None


def test_results_compare_as_engines_compare_them(store, key):
    # `code == 0`, `code < 0` and `if code` all occur.
    store.put(key, b"x")
    assert store.is_exist(key) == 1 and not store.put(key, b"y") and store.remove(key + "/missing") < 0
