"""Addresses of devices: staged by the driver's copy, never touched by the processor.

The driver is a library built from tests/fake-driver, whose device memory ends the process that touches it.
"""

import shutil
import subprocess

import pytest

import sides

pytestmark = pytest.mark.ours_only("the non-CUDA wheel of the released package has no device support")

SOURCE = sides.REPOSITORY / "tests" / "fake-driver" / "fake_driver.c"

PREPARE = """
import ctypes, json, os, sys
from sides import Memory, pattern
from mooncake.store import MooncakeDistributedStore
driver = ctypes.CDLL(sys.argv[2])
driver.fake_device_alloc.restype = ctypes.c_size_t
driver.fake_device_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int]
driver.fake_device_free.argtypes = [ctypes.c_size_t]
driver.fake_device_peek.argtypes = [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
driver.fake_device_poke.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
driver.fake_managed_alloc.restype = ctypes.c_size_t
driver.fake_managed_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int]
driver.fake_copies.restype = ctypes.c_ulonglong
def peek(address, size):
    room = ctypes.create_string_buffer(size)
    assert driver.fake_device_peek(address, room, size) == 0
    return room.raw
def poke(address, data):
    assert driver.fake_device_poke(address, bytes(data), len(data)) == 0
def say(*answer): print(json.dumps(answer), flush=True)
SIZE = 1 << 20
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0
reader = MooncakeDistributedStore()
assert reader.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", sys.argv[1]) == 0
def device(number=1, of=store, size=SIZE):
    address = driver.fake_device_alloc(size, number)
    if sys.argv[3] == "old-ascend":
        # Old drivers only tell whether the device that is current on this thread can read an address.
        driver.fake_make_current(number)
    assert address and of.register_buffer(address, size) == 0
    return address
"""
CLOSE = """
assert store.close() == 0 and reader.close() == 0
say("closed")
"""


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """The fake driver as each family, by name: (what SNOWSKIN_DRIVER_LIBRARIES says, path)."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed to build the fake driver"
    folder = tmp_path_factory.mktemp("driver")
    made = {}
    for family, options in (("cuda", []), ("ascend", []), ("old-ascend", ["-DFAKE_OLD_ASCEND"])):
        path = folder / f"libfake_{family}.so"
        command = [compiler, "-shared", "-fPIC", "-O1", "-pthread", *options, "-o", str(path), str(SOURCE)]
        subprocess.run(command, check=True)
        made[family] = (f"{family.removeprefix('old-')}:{path}", str(path))
    return made


@pytest.fixture(params=["cuda", "ascend", "old-ascend"])
def run(request, pool, libraries):
    """Runs code with a device of one family, two stores open: the JSON lines it said."""

    def go(code, env=None):
        setting, path = libraries[request.param]
        exit_code, lines = sides.run_python(
            PREPARE + code + CLOSE,
            env={"SNOWSKIN_DRIVER_LIBRARIES": setting, **(env or {})},
            arguments=[pool.master.address, path, request.param],
            seconds=60,
        )
        assert exit_code == 0, f"ended with {exit_code} after {lines}"
        assert lines[-1] == ["closed"]
        return lines[:-1]

    return go


def test_touching_device_memory_would_end_the_process(libraries):
    _, path = libraries["cuda"]
    code, lines = sides.run_python(
        "import ctypes, sys\nd = ctypes.CDLL(sys.argv[1])\nd.fake_device_alloc.restype = ctypes.c_size_t\n"
        "d.fake_device_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int]\n"
        "ctypes.string_at(d.fake_device_alloc(4096, 0), 1)",
        arguments=[path],
    )
    assert code == -11


def test_single_values(run):
    assert run(
        """
a, b = device(), device(of=reader)
data = pattern(300_000)
poke(a, data)
say(store.put_from("dev/one", a, 300_000), reader.get_into("dev/one", b + 64, 400_000), peek(b + 64, 300_000) == data,
    reader.get("dev/one") == data, peek(b, 64) == bytes(64), store.remove("dev/one", True))
"""
    ) == [[0, 300_000, True, True, True, 0]]


def test_batches(run):
    assert run(
        """
a, b = device(), device(of=reader)
poke(a, pattern(SIZE))
keys = [f"dev/b{i}" for i in range(20)]
say(store.batch_put_from(keys, [a + i * 5000 for i in range(20)], [5000] * 20) == [0] * 20)
say(reader.batch_get_into(keys, [b + i * 5000 for i in range(20)], [5000] * 20) == [5000] * 20)
say(peek(b, 100_000) == pattern(SIZE)[:100_000], store.batch_remove(keys, True) == [0] * 20)
"""
    ) == [[True], [True], [True, True]]


def test_layers_of_many_blocks(run):
    assert run(
        """
blocks, layers, size = 16, 8, 1024
a, b = device(), device(of=reader)
poke(a, pattern(SIZE))
keys = [f"dev/m{i}" for i in range(blocks)]
def table(base): return [[base + (l * blocks + i) * size for l in range(layers)] for i in range(blocks)]
sizes = [[size] * layers] * blocks
say(store.batch_put_from_multi_buffers(keys, table(a), sizes) == [0] * blocks)
say(reader.batch_get_into_multi_buffers(keys, table(b), sizes) == [layers * size] * blocks)
total = blocks * layers * size
say(peek(b, total) == pattern(SIZE)[:total], store.batch_remove(keys, True) == [0] * blocks)
"""
    ) == [[True], [True], [True, True]]


def test_one_object_from_host_and_device_memory(run):
    assert run(
        """
a = device()
host = Memory(4096, b"h" * 4096)
assert store.register_buffer(host.address, 4096) == 0
poke(a, b"d" * 4096)
pointers, sizes = [[host.address, a, host.address]], [[100, 200, 50]]
say(store.batch_put_from_multi_buffers(["dev/mix"], pointers, sizes))
say(store.get("dev/mix") == b"h" * 100 + b"d" * 200 + b"h" * 50)
poke(a, bytes(4096)); host[:] = bytes(4096)
say(store.batch_get_into_multi_buffers(["dev/mix"], [[a, host.address]], [[150, 200]]))
say(peek(a, 150) == b"h" * 100 + b"d" * 50, host[0:200] == b"d" * 150 + b"h" * 50, store.remove("dev/mix", True))
"""
    ) == [[[0]], [True], [[350]], [True, True, 0]]


def test_ranges_and_sessions(run):
    assert run(
        """
a = device()
poke(a, pattern(SIZE))
say(store.batch_put_session_start(["dev/s"], [3000]))
for o in (2000, 0, 1000):
    say(store.batch_put_from_multi_buffer_ranges(["dev/s"], [[a + o]], [[1000]], [[o]]))
say(store.batch_put_session_end(["dev/s"]), store.get("dev/s") == pattern(3000))
say(store.batch_get_session_start(["dev/s"]))
say(store.batch_get_into_multi_buffer_ranges(["dev/s"], [[a + 8192]], [[500]], [[2500]]))
say(store.batch_get_session_end(["dev/s"]), peek(a + 8192, 500) == pattern(3000)[2500:])
say(store.get_into_ranges([a], [["dev/s"]], [[[20_000, 30_000]]], [[[1, 2999]]], [[[10, 1]]]))
say(peek(a + 20_000, 10) == pattern(3000)[1:11], peek(a + 30_000, 1) == pattern(3000)[2999:])
say(store.remove("dev/s", True))
"""
    ) == [
        [[0]], [[1000]], [[1000]], [[1000]], [[0], True], [[0]], [[500]], [0, True], [[[[10, 1]]]], [True, True], [0],
    ]


def test_metadata_and_upsert(run):
    assert run(
        """
a = device()
host = Memory(4096, b"META" * 8)
poke(a, b"D" * 100)
say(store.put_from_with_metadata("dev/meta", a, host.address, 100, 8), store.get("dev/meta") == b"METAMETA" + b"D" * 100)
poke(a, b"E" * 300)
say(store.upsert_from("dev/meta", a, 300), store.get("dev/meta") == b"E" * 300)
say(store.batch_upsert_from(["dev/meta"], [a], [200]), store.get("dev/meta") == b"E" * 200, store.remove("dev/meta", True))
"""
    ) == [[0, True], [0, True], [[0], True, 0]]


def test_bytes_go_through_the_drivers_copy(run):
    (counts,) = run(
        """
a = device()
before = driver.fake_copies()
say(store.put_from("dev/c", a, 4096), driver.fake_copies() > before, store.counters()["device_bytes_out"] >= 0,
    store.remove("dev/c", True))
"""
    )
    assert counts == [0, True, True, 0]


def test_a_failing_copy_is_a_code_and_stores_nothing(run):
    first, second, third = run(
        """
a = device()
driver.fake_fail_next(700)
say(store.put_from("dev/fail", a, 4096), store.is_exist("dev/fail"))
say(store.put_from("dev/fail", a, 4096))
driver.fake_fail_next(700)
say(store.get_into("dev/fail", a, 4096), store.remove("dev/fail", True))
"""
    )
    assert first == [-800, 0]
    assert second == [0]
    assert third == [-800, 0]


def test_an_address_that_is_neither_mapped_nor_a_devices_is_named(run):
    (answer,) = run(
        """
code = store.register_buffer(0x10000, 4096)
error = store.last_error()
say(code, error["code"], "0x10000" in error["message"] or "65536" in error["message"])
"""
    )
    assert answer == [-600, -600, True]


def test_memory_that_was_freed_under_a_registration_is_a_code(run):
    (answer,) = run(
        """
a = device()
assert driver.fake_device_free(a) == 0
say(store.put_from("dev/gone", a, 4096), store.is_exist("dev/gone"), store.unregister_buffer(a))
"""
    )
    assert answer[0] in (-600, -800) and answer[1:] == [0, 0]


def test_registering_again_after_unregistering(run):
    assert run(
        """
a = driver.fake_device_alloc(SIZE, 2)
driver.fake_make_current(2)
say([store.register_buffer(a, SIZE), store.register_buffer(a, SIZE), store.register_buffer(a + 4096, 4096)],
    [store.unregister_buffer(a), store.unregister_buffer(a), store.register_buffer(a, SIZE)])
"""
    ) == [[[0, -600, -600], [0, -600, 0]]]


def test_a_transfer_engine_moves_device_memory(run):
    assert run(
        """
from mooncake.engine import TransferEngine
one, two = TransferEngine(), TransferEngine()
assert one.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
assert two.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
a, b = driver.fake_device_alloc(SIZE, 1), driver.fake_device_alloc(SIZE, 1)
driver.fake_make_current(1)
assert one.register_memory(a, SIZE) == 0 and two.register_memory(b, SIZE) == 0
poke(a, pattern(SIZE))
peer = f"127.0.0.1:{two.get_rpc_port()}"
say(one.transfer_sync_write(peer, a, b + 4096, 200_000), peek(b + 4096, 200_000) == pattern(SIZE)[:200_000])
poke(b, b"z" * 1000)
say(one.batch_transfer_sync_read(peer, [a, a + 8192], [b, b + 500], [500, 500]), peek(a + 8192, 500) == b"z" * 500)
say(one.unregister_memory(a), two.unregister_memory(b))
"""
    ) == [[0, True], [0, True], [0, 0]]


def test_a_store_uses_device_memory_registered_with_an_engine(run):
    assert run(
        """
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "ascend", "") == 0
a = driver.fake_device_alloc(SIZE, 0)
driver.fake_make_current(0)
assert engine.register_memory(a, SIZE) == 0
poke(a, pattern(SIZE))
shared = MooncakeDistributedStore()
code = shared.setup(local_hostname=f"127.0.0.1:{engine.get_rpc_port()}", metadata_server="P2PHANDSHAKE",
    global_segment_size=16 << 20, local_buffer_size=16 << 20, protocol="ascend", rdma_devices="",
    master_server_addr=sys.argv[1], engine=engine.get_engine())
say(code)
say(shared.batch_put_from_multi_buffers(["dev/te"], [[a, a + 4096]], [[100, 200]]))
say(shared.batch_get_into_multi_buffers(["dev/te"], [[a + 8192, a + 9000]], [[100, 200]]))
say(peek(a + 8192, 100) == pattern(SIZE)[:100], peek(a + 9000, 200) == pattern(SIZE)[4096:4296])
say(shared.remove("dev/te", True), shared.close(), engine.unregister_memory(a))
"""
    ) == [[0], [[0]], [[300]], [True, True], [0, 0, 0]]
