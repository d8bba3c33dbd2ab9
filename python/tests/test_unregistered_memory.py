"""Memory nobody registered: works by copy, is counted and logged once, and can be forbidden."""

import pytest

import sides
from sides import MIB, pattern

OPEN = """
import json, os, sys
from sides import Memory, pattern
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 32 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0
memory = Memory(1 << 20, pattern(1 << 20))
A = memory.address
def say(*answer): print(json.dumps(answer), flush=True)
"""


def test_every_writer_and_reader_takes_it(store, reader, new_key, memory):
    source, target = memory(65536, pattern(65536)), memory(65536)
    a, b = source.address, target.address
    one, two, three = new_key(), new_key(), new_key()
    assert store.put_from(one, a, 1000) == 0
    assert store.batch_put_from([two], [a + 1000], [1000]) == [0]
    assert store.batch_put_from_multi_buffers([three], [[a + 10, a + 5000]], [[100, 200]]) == [0]
    assert reader.get_into(one, b, 1000) == 1000
    assert reader.batch_get_into([two], [b + 1000], [2000]) == [1000]
    assert reader.batch_get_into_multi_buffers([three], [[b + 4000, b + 8000]], [[150, 150]]) == [300]
    data = pattern(65536)
    assert target[0:2000] == data[0:2000]
    assert target[4000:4150] + target[8000:8150] == data[10:110] + data[5000:5200]


def test_large_unregistered_values(store, reader, key, memory):
    size = 12 * MIB + 5
    source, target = memory(size, pattern(size)), memory(size)
    assert store.put_from(key, source.address, size) == 0
    assert reader.get_into(key, target.address, size) == size
    assert target[:size] == source[:size]


def test_a_value_may_lie_half_in_a_registered_region(store, reader, key, memory):
    whole = memory(16384, pattern(16384))
    assert store.register_buffer(whole.address, 8192) == 0
    assert store.put_from(key, whole.address + 4096, 8192) == 0
    assert reader.get(key) == pattern(16384)[4096:12288]
    assert store.unregister_buffer(whole.address) == 0


def test_range_reads_need_registered_memory(store, key, memory):
    store.put(key, b"12345678")
    assert store.get_into_ranges([memory(64).address], [[key]], [[[0]]], [[[0]]], [[[4]]]) == [[[-600]]]


@pytest.mark.ours_only("the released package ends the process")
def test_an_address_that_is_not_mapped_is_an_error_and_no_crash(store, key, registered):
    store.put(key, b"12345678")
    nowhere = 0x10000
    assert store.put_from(key + "/new", nowhere, 4096) == -600
    assert store.batch_put_from([key + "/new"], [nowhere], [4096]) == [-600]
    assert store.batch_put_from_multi_buffers([key + "/new"], [[registered(64).address, nowhere]], [[8, 8]]) == [-600]
    assert store.get_into(key, nowhere, 4096) == -600
    assert store.batch_get_into([key], [nowhere], [4096]) == [-600]
    assert store.batch_get_into_multi_buffers([key], [[nowhere]], [[4096]]) == [-600]
    assert store.is_exist(key + "/new") == 0


@pytest.mark.ours_only("the released package takes any address on TCP")
def test_registering_an_address_that_is_not_mapped_is_refused_by_its_name(store):
    nowhere = 0x10000
    assert store.register_buffer(nowhere, 4096) == -600
    error = store.last_error()
    assert error["code"] == -600
    assert "0x10000" in error["message"] or str(nowhere) in error["message"]


HOLE = """
import ctypes, json, sys
from mooncake.store import MooncakeDistributedStore
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
a = libc.mmap(None, 16384, 3, 0x22, -1, 0)
assert libc.munmap(a + 8192, 8192) == 0
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", sys.argv[1]) == 0
print(json.dumps([store.register_buffer(a, 16384), store.register_buffer(a, 8192)]), flush=True)
store.close()
"""


@pytest.mark.ours_only("the released package takes any address on TCP")
def test_a_region_of_which_a_part_is_not_mapped_is_refused(pool):
    code, lines = sides.run_python(HOLE, arguments=[pool.master.address])
    assert (code, lines) == (0, [[-600, 0]])


@pytest.mark.ours_only("the released package neither counts nor logs")
def test_copies_are_counted(store, new_key, memory):
    before = store.counters()["unregistered_copies"]
    region = memory(4096)
    for _ in range(3):
        assert store.put_from(new_key(), region.address, 100) == 0
    assert store.counters()["unregistered_copies"] >= before + 3


@pytest.mark.ours_only("there is no strict mode in the released package")
def test_strict_buffers_refuse_it(pool):
    code, lines = sides.run_python(
        OPEN
        + """
say(store.put_from("strict", A, 8), store.is_exist("strict"), store.get_into("x", A, 8))
say(store.last_error()["code"])
assert store.register_buffer(A, 4096) == 0
say(store.put_from("strict", A, 8), store.is_exist("strict"), store.get_into("strict", A + 64, 8))
say(store.put_from("strict2", A + 8192, 8))
store.close()
""",
        env={"SNOWSKIN_STRICT_BUFFERS": "1"},
        arguments=[pool.master.address],
    )
    assert code == 0
    assert lines[0][:2] == [-600, 0] and lines[0][2] in (-600, -704)
    assert lines[2] == [0, 1, 8]
    assert lines[3] == [-600]


GONE = """
import ctypes, json, mmap, os, sys, tempfile
from mooncake.store import MooncakeDistributedStore
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
size = 1 << 20
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 32 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0
with tempfile.TemporaryFile() as file:
    file.truncate(size)
    anonymous, mapped = libc.mmap(None, size, 3, 0x22, -1, 0), libc.mmap(None, size, 3, 1, file.fileno(), 0)
    for nth, (at, go) in enumerate([(anonymous, lambda: libc.munmap(anonymous, size)), (mapped, lambda: file.truncate(0))]):
        assert store.register_buffer(at, size) == 0
        assert store.put_from(f"gone{nth}", at, size) == 0
        assert store.get_into(f"gone{nth}", at, size) == size
        go()
        answers = []
        for n in (size, 1000):
            answers += [store.put_from(f"new{nth}", at, n), store.get_into(f"gone{nth}", at, size)]
        answers += [store.batch_put_from_multi_buffers([f"new{nth}"], [[at, at + 8192]], [[10, 10]])[0]]
        print(json.dumps(answers + [store.is_exist(f"new{nth}"), store.unregister_buffer(at)]), flush=True)
store.close()
"""


@pytest.mark.ours_only("the released package ends the process")
def test_registered_memory_that_was_unmapped_is_an_error_and_no_crash(pool):
    code, lines = sides.run_python(GONE, arguments=[pool.master.address])
    assert (code, lines) == (0, [[-600] * 5 + [0, 0]] * 2)


READ_ONLY = """
import ctypes, json, sys
from mooncake.store import MooncakeDistributedStore
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
with open(sys.argv[2], "rb") as file:
    at = libc.mmap(None, 65536, 1, 2, file.fileno(), 0)
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 32 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0
answers = [store.register_buffer(at, 65536), store.put_from("weights", at, 65536)]
with open(sys.argv[2], "rb") as file:
    answers.append(store.get("weights") == file.read())
if sys.argv[3] == "refused":
    # The released package writes there, which ends the process.
    answers += [store.get_into("weights", at, 65536), "read-only" in store.last_error()["message"]]
answers.append(store.unregister_buffer(at))
print(json.dumps(answers), flush=True)
store.close()
"""


def test_read_only_memory_can_be_registered_and_sent(pool, side, tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(pattern(65536))
    write = side.pick(ours="refused", peer="not tried")
    code, lines = sides.run_python(READ_ONLY, arguments=[pool.master.address, file, write])
    refused = side.pick(ours=[-600, True], peer=[])
    assert (code, lines) == (0, [[0, 0, True, *refused, 0]])
