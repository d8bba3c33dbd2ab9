"""Thin clients: a node's process on the same machine owns the pool's memory, engines hand it theirs."""

import ctypes

import pytest

import sides
from mooncake.store import MooncakeDistributedStore, MooncakeHostMemAllocator
from sides import MIB, pattern


def start(side, folder):
    """A `mooncake_client` beside a master: (the address thin clients dial, the client's process, the master)."""
    master = sides.Master(side, folder)
    port = sides.free_port()
    node = sides.Process(
        [
            sides.peer_program("mooncake_client"),
            "--host=127.0.0.1",
            f"--port={port}",
            f"--master_server_address={master.address}",
            "--metadata_server=P2PHANDSHAKE",
            "--protocol=tcp",
            "--global_segment_size=256 MB",
        ],
        log=str(folder / "node.log"),
    )
    sides.wait_until(
        lambda: (sides.fetch(master.http + "/get_all_segments") or (0, ""))[1].strip(), 20, "the node has joined"
    )
    return f"127.0.0.1:{port}", node, master


@pytest.fixture(scope="module")
def server(side, tmp_path_factory):
    address, node, master = start(side, tmp_path_factory.mktemp("node"))
    yield address
    node.end()
    master.end()


def connect(server, local_buffer=16 * MIB):
    thin = MooncakeDistributedStore()

    def dialled():
        return thin.setup_dummy(64 * MIB, local_buffer, server) == 0

    sides.wait_until(dialled, 20, f"a thin client reaches {server}")
    return thin


@pytest.fixture(scope="module")
def thin(server):
    client = connect(server)
    yield client
    client.close()


@pytest.fixture(scope="module")
def block(thin):
    """A registered block of shared memory: (address, size)."""
    allocator = MooncakeHostMemAllocator()
    address, size = allocator.alloc(4 * MIB), 4 * MIB
    assert address > 0 and thin.register_buffer(address, size) == 0
    yield address, size
    thin.unregister_buffer(address)
    allocator.free(address)


def write(address, data):
    ctypes.memmove(address, data, len(data))


def test_copying_calls(thin, new_key):
    keys = [new_key(), new_key()]
    assert thin.put(keys[0], pattern(5000)) == 0
    assert thin.put_batch(keys, [b"other", b"second"]) == 0
    assert thin.get_batch(keys) == [pattern(5000), b"second"]
    assert thin.put_parts(new_key(), b"a", b"b") == 0
    assert thin.get_size(keys[0]) == 5000
    assert thin.is_exist(keys[0]) == 1 and thin.batch_is_exist([keys[1], new_key()]) == [1, 0]
    assert thin.get(new_key()) == b"" and thin.get_buffer(new_key()) is None
    assert thin.remove(keys[0], True) == 0 and thin.is_exist(keys[0]) == 0


def test_handles(thin, key):
    assert thin.put(key, pattern(3000)) == 0
    handle = thin.get_buffer(key)
    assert bytes(handle) == pattern(3000) and memoryview(handle).format == "b"
    (again,) = thin.batch_get_buffer([key])
    assert bytes(again) == pattern(3000)


def test_memory_of_the_allocator_is_shared(thin, block, new_key):
    address, _ = block
    one, two, three = new_key(), new_key(), new_key()
    write(address, pattern(65536))
    assert thin.put_from(one, address + 100, 1000) == 0
    assert thin.batch_put_from([two], [address], [2000]) == [0]
    assert thin.batch_put_from_multi_buffers([three], [[address, address + 4096]], [[10, 20]]) == [0]
    assert thin.get(one) == pattern(65536)[100:1100]
    assert thin.get_into(two, address + MIB, 4096) == 2000
    assert ctypes.string_at(address + MIB, 2000) == pattern(65536)[:2000]
    assert thin.batch_get_into([one, new_key()], [address + MIB, address], [1000, 8]) == [1000, -704]
    assert thin.batch_get_into_multi_buffers([three], [[address + MIB, address + 2 * MIB]], [[15, 15]]) == [30]
    assert ctypes.string_at(address + 2 * MIB, 15) == pattern(65536)[4101:4116]


def test_only_whole_blocks_can_be_registered(thin, block, memory):
    address, size = block
    assert thin.register_buffer(address, size) == 0
    assert thin.register_buffer(address + 4096, 4096) == -1
    assert thin.register_buffer(address, 4096) == -1
    assert thin.register_buffer(memory(4096).address, 4096) == -1


def test_foreign_memory_is_refused(thin, key, memory):
    region = memory(4096, b"x" * 4096)
    assert thin.put_from(key, region.address, 8) == -600
    assert thin.batch_put_from([key], [region.address], [8]) == [-600]
    assert thin.is_exist(key) == 0
    thin.put(key, b"12345678")
    assert thin.get_into(key, region.address, 8) == -600


def test_a_thin_client_has_no_name(thin):
    assert thin.get_hostname() == ""


def test_memory_comes_from_the_pool(thin, key):
    address = thin.alloc_from_mem_pool(MIB)
    assert address > 0
    write(address, pattern(100))
    assert thin.register_buffer(address, MIB) == 0
    assert thin.put_from(key, address, 100) == 0
    assert thin.get(key) == pattern(100)


@pytest.mark.differs(
    "our thin client talks to the pool itself, so that these are no harder than for others",
    peer="-600, or the empty form",
    ours="as the released package, or an answer",
)
def test_what_thin_clients_do_not_have(side, thin, key, block):
    thin.put(key, b"x")
    assert thin.batch_put_session_start([key + "/s"], [8]) in ([-600], side.pick(ours=[0], peer=None))
    thin.batch_put_session_revoke([key + "/s"])
    assert len(thin.get_replica_desc(key)) in side.pick(ours=(0, 1), peer=(0,))
    assert list(thin.batch_replica_clear([key])) == []
    assert thin.allocate_and_mount_segment(16 * MIB)["ret"] in (-1, -1012)
    assert thin.get_offload_rpc_read_count() == 0


def test_copying_calls_need_a_local_buffer(server, key):
    bare = connect(server, local_buffer=0)
    assert bare.put(key, b"v") < 0 and bare.get(key) == b""
    bare.close()


def test_objects_are_seen_by_other_thin_clients(thin, server, key):
    other = connect(server)
    assert thin.put(key, b"shared") == 0
    assert other.get(key) == b"shared"
    assert other.close() == 0
    assert thin.get(key) == b"shared"


def test_health_of_a_thin_client(thin):
    assert thin.health_check() == 0


def test_health_tells_that_the_daemon_has_ended(side, tmp_path):
    address, node, master = start(side, tmp_path)
    client = connect(address)
    assert client.health_check() == 0
    node.end()
    sides.wait_until(lambda: client.health_check() == 2, 20, "the lost daemon is noticed")
    client.close()
    master.end()
