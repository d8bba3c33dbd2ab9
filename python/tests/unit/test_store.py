"""`snowskin.Store`, embedded in the process of the test."""

import itertools

import pytest

import snowskin

MIB = 1 << 20
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def store():
    with snowskin.Store("", segment_size="64 MiB") as store:
        yield store


@pytest.fixture
def key(request):
    return f"{request.node.name}/{next(NUMBERS)}"


def test_bytes_come_back(store, key):
    store.put(key, b"value")
    assert store.get(key) == b"value"
    assert store.size(key) == 5
    assert store.exists(key) is True
    assert store.exists([key, key + "?"]) == [True, False]


def test_any_contiguous_memory_is_data(store, key):
    store.put(key, memoryview(bytearray(16)).cast("I"))
    assert store.get(key) == bytes(16)
    with pytest.raises(TypeError):
        store.put(key + "?", "text")


def test_a_taken_key_is_kept_unless_it_is_replaced(store, key):
    store.put(key, b"old")
    with pytest.raises(snowskin.Exists) as caught:
        store.put(key, b"new")
    assert (caught.value.code, caught.value.key) == (-705, key)
    store.put(key, b"new", replace=True)
    assert store.get(key) == b"new"


def test_a_missing_object_has_its_exception(store, key):
    for call in (store.get, store.size, store.remove, lambda k: store.get_into(k, bytearray(1)), store.view):
        with pytest.raises(snowskin.NotFound) as caught:
            call(key)
        assert caught.value.key == key
    assert store.last_error()["code"] == -704


def test_objects_go_into_a_buffer(store, key):
    store.put(key, b"value")
    buffer = bytearray(8)
    assert store.get_into(key, memoryview(buffer)[2:]) == 5
    assert buffer == b"\0\0value\0"
    assert store.get_into(key, buffer, 3) == 2
    assert buffer == b"uevalue\0"
    with pytest.raises(snowskin.Invalid):
        store.get_into(key, bytearray(4))
    with pytest.raises(snowskin.Invalid):
        store.get_into(key, buffer, 6)
    with pytest.raises(TypeError):
        store.get_into(key, bytes(8))


def test_a_view_is_read_only_and_released(store, key):
    store.put(key, b"value")
    with store.view(key) as view:
        assert (bytes(view), view.readonly, view.format) == (b"value", True, "B")


def test_batches_have_one_result_per_key(store, key):
    keys = [f"{key}/{i}" for i in range(3)]
    assert store.put_batch(keys[:2], [b"0", b"1"]) == [None, None]
    again = store.put_batch({keys[0]: b"x", keys[2]: b"2"})
    assert isinstance(again[0], snowskin.Exists) and again[1] is None
    got = store.get_batch([*keys, key])
    assert got[:3] == [b"0", b"1", b"2"] and isinstance(got[3], snowskin.NotFound)
    buffers = [bytearray(1) for _ in range(2)]
    sizes = store.get_into_batch([keys[2], key], buffers)
    assert sizes[0] == 1 and buffers[0] == b"2" and isinstance(sizes[1], snowskin.NotFound)
    removed = store.remove_batch([keys[0], key], force=True)
    assert removed[0] is None and isinstance(removed[1], snowskin.NotFound)
    assert store.put_batch([], []) == [] and store.get_batch([]) == []


def test_lists_of_different_lengths_are_refused(store, key):
    with pytest.raises(snowskin.Invalid):
        store.put_batch([key], [])
    with pytest.raises(snowskin.Invalid):
        store.get_into_batch([key], [])
    with pytest.raises(TypeError):
        store.put_batch([key])


def test_a_lease_protects_and_force_removes(store, key):
    store.put(key, b"v")
    assert store.exists(key)
    with pytest.raises(snowskin.Leased):
        store.remove(key)
    store.remove(key, force=True)
    assert not store.exists(key)


def test_keys_are_listed_by_prefix_beyond_one_page(store, key, monkeypatch):
    monkeypatch.setattr("snowskin.store.LIST_PAGE", 3)
    names = sorted(f"{key}/{i:02}" for i in range(10))
    store.put_batch(names, [b"v"] * 10)
    assert list(store.keys(key)) == names
    assert list(store.keys(key + "/none")) == []
    assert store.remove_all(prefix=key + "/", force=True) == 10


def test_removal_by_expression(store, key):
    store.put_batch([f"{key}/a1", f"{key}/b1"], [b"v", b"v"])
    assert store.remove_all(regex="/a[0-9]$", force=True) == 1
    assert list(store.keys(key)) == [f"{key}/b1"]
    with pytest.raises(snowskin.Invalid):
        store.remove_all(regex="(")
    with pytest.raises(snowskin.Invalid):
        store.remove_all(prefix="a", regex="b")


def test_registered_memory_is_used_until_it_is_closed(store, key):
    memory = bytearray(MIB)
    store.put(key, b"v" * 1000)
    with store.register(memory) as registration:
        assert registration.buffer is memory
        assert store.get_into(key, memory) == 1000
        with pytest.raises(snowskin.Invalid):
            store.register(memory)
    registration.close()
    with store.register(memory):
        pass


def test_what_cannot_be_stored_is_named(store, key):
    for data, wrong in ((b"", "zero"), (bytes(65 * MIB), "never fit")):
        with pytest.raises(snowskin.Invalid, match=wrong):
            store.put(key, data)
    with pytest.raises(snowskin.Invalid, match="key"):
        store.put("", b"v")
    with pytest.raises(snowskin.Invalid, match="timeout"):
        store.get(key, timeout=-1)


def test_stat_counts_objects(store, key):
    store.put(key, b"v")
    found = store.stat()
    assert found["objects"] >= 1 and len(found["nodes"]) == 1


def test_a_closed_store_says_so():
    store = snowskin.Store("", segment_size="16 MiB")
    assert not store.closed
    store.close()
    store.close()
    assert store.closed
    with pytest.raises(snowskin.Invalid, match="closed"):
        store.get("k")


def test_a_master_that_is_not_there_is_named():
    with pytest.raises((snowskin.Unreachable, snowskin.Timeout), match="127.0.0.1:1"):
        snowskin.Store("127.0.0.1:1", timeout=0.5)


def test_the_environment_names_the_master(monkeypatch):
    monkeypatch.setenv("MOONCAKE_MASTER", "127.0.0.1:2")
    monkeypatch.setenv("SNOWSKIN_MASTER", "127.0.0.1:1")
    with pytest.raises(snowskin.Error, match="127.0.0.1:1"):
        snowskin.Store(timeout=0.2)
    monkeypatch.delenv("SNOWSKIN_MASTER")
    with pytest.raises(snowskin.Error, match="127.0.0.1:2"):
        snowskin.Store(timeout=0.2)


def test_a_token_file_that_cannot_be_read_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("SNOWSKIN_TOKEN_FILE", str(tmp_path / "missing"))
    with pytest.raises(OSError, match="missing"):
        snowskin.Store("127.0.0.1:1", timeout=0.2)
