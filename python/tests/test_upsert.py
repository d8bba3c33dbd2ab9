"""Insert or overwrite."""

import pytest

from mooncake.store import ReplicateConfig
from sides import pattern


def upsert(store, form, key, data, region):
    """Writes by one of the forms and answers its code."""
    region[:] = data
    calls = {
        "upsert": lambda: store.upsert(key, data),
        "upsert_parts": lambda: store.upsert_parts(key, data[:3], data[3:]),
        "upsert_batch": lambda: store.upsert_batch([key], [data]),
        "upsert_from": lambda: store.upsert_from(key, region.address, len(data)),
        "batch_upsert_from": lambda: store.batch_upsert_from([key], [region.address], [len(data)])[0],
    }
    return calls[form]()


FORMS = ["upsert", "upsert_parts", "upsert_batch", "upsert_from", "batch_upsert_from"]


@pytest.mark.parametrize("form", FORMS)
def test_an_absent_key_is_inserted(store, reader, key, registered, form):
    assert upsert(store, form, key, b"fresh value", registered(4096)) == 0
    assert reader.get(key) == b"fresh value"


@pytest.mark.parametrize("form", FORMS)
def test_a_value_of_the_same_size_is_replaced(store, reader, key, registered, form):
    store.put(key, b"old value..")
    assert upsert(store, form, key, b"fresh value", registered(4096)) == 0
    assert reader.get(key) == b"fresh value"
    assert store.get_size(key) == 11


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [5, 3000])
def test_a_value_of_another_size_is_replaced(store, reader, key, registered, form, size):
    store.put(key, pattern(100))
    data = pattern(size, seed=3)
    assert upsert(store, form, key, data, registered(4096)) == 0
    assert reader.get(key) == data
    assert store.get_size(key) == size


def test_many_replacements_in_a_row(store, key):
    for i in range(30):
        data = pattern(500 + 37 * (i % 3), seed=i)
        assert store.upsert(key, data) == 0
        assert store.get(key) == data


def test_a_batch_of_absent_and_existing_keys(store, new_key, registered):
    there, fresh = new_key(), new_key()
    store.put(there, b"old")
    region = registered(4096, b"n" * 4096)
    assert store.batch_upsert_from([there, fresh], [region.address] * 2, [3, 4]) == [0, 0]
    assert store.get_batch([there, fresh]) == [b"nnn", b"nnnn"]
    assert store.upsert_batch([there, fresh], [b"1", b"2"]) == 0
    assert store.get_batch([there, fresh]) == [b"1", b"2"]


def test_upsert_batch_of_unequal_length_is_one_code(store, new_key):
    assert store.upsert_batch([new_key(), new_key()], [b"v"]) == -600


def test_upsert_forms_take_keywords(store, key, registered):
    region = registered(4096, b"v" * 4096)
    config = ReplicateConfig()
    assert store.upsert(key=key, value=b"1", config=config) == 0
    assert store.upsert_parts(key, b"2", b"3", config=config) == 0
    assert store.upsert_batch(keys=[key], values=[b"4"], config=config) == 0
    assert store.upsert_from(key=key, buffer_ptr=region.address, size=5, config=config) == 0
    assert store.batch_upsert_from(keys=[key], buffer_ptrs=[region.address], sizes=[6], config=config) == [0]
    assert store.get(key) == b"v" * 6


def test_the_old_value_is_not_read_after_the_answer(store, reader, key):
    # A reader that knows where the old version lay must not be served from there.
    store.put(key, b"a" * 4096)
    assert reader.get(key) == b"a" * 4096
    assert store.upsert(key, b"b" * 4096) == 0
    assert reader.get(key) == b"b" * 4096


def test_an_unfinished_write_is_pre_empted(store, reader, key):
    assert store.batch_put_session_start([key], [4096]) == [0]
    assert reader.upsert(key, b"at once") == 0
    assert reader.get(key) == b"at once"
    store.batch_put_session_revoke([key])


def test_a_hard_pin_stays(store, key):
    config = ReplicateConfig()
    config.with_hard_pin = True
    assert store.put(key, b"pinned", config) == 0
    assert store.upsert(key, b"pinned still") == 0
    assert store.get(key) == b"pinned still"
