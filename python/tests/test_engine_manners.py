"""How transfer engines come, go, fail and come back."""

import subprocess
import sys
import time

import pytest

import sides

pytest.importorskip("mooncake.engine")

# An engine in a process of its own, at the port given, with a region of a pattern.
SERVE = """
import os, sys
from sides import Memory, pattern
from mooncake.engine import TransferEngine
port, size, seed = map(int, sys.argv[1:])
engine = TransferEngine()
host = f"127.0.0.1:{port}" if port else "127.0.0.1"
assert engine.initialize(host, "P2PHANDSHAKE", "tcp", "") == 0
region = Memory(size, pattern(size, seed))
assert engine.register_memory(region.address, size) == 0
print(engine.get_rpc_port(), region.address, flush=True)
sys.stdin.read()
os._exit(0)
"""


class Remote:
    def __init__(self, port=0, size=1 << 20, seed=1):
        self.child = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(port), str(size), str(seed)],
            env={
                **sides.os.environ,
                "PYTHONPATH": str(sides.pathlib.Path(__file__).parent),
                **({"MC_LEGACY_RPC_PORT_BINDING": "1"} if port else {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.port, self.address = map(int, self.child.stdout.readline().split())
        self.name = f"127.0.0.1:{self.port}"

    def end(self, kill=False):
        if kill:
            self.child.kill()
        self.child.stdin.close()
        self.child.wait(10)
        self.child.stdout.close()


@pytest.fixture
def remotes():
    made = []

    def make(*args, **keywords):
        made.append(Remote(*args, **keywords))
        return made[-1]

    yield make
    for each in made:
        each.end(kill=True)


@pytest.fixture
def engine():
    from mooncake.engine import TransferEngine

    made = TransferEngine()
    assert made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return made


@pytest.mark.ours_only("the released package remembers a peer for ever (F12)")
def test_a_peer_that_was_killed_and_started_again_is_found_by_the_first_call(engine, remotes, memory):
    size = 1 << 20
    local = memory(size)
    first = remotes(size=size, seed=1)
    assert engine.transfer_sync_read(first.name, local.address, first.address, size) == 0
    first.end(kill=True)
    begun = time.monotonic()
    assert engine.transfer_sync_read(first.name, local.address, first.address, size) == -1
    assert time.monotonic() - begun < 1
    second = remotes(port=first.port, size=size, seed=2)
    assert second.port == first.port
    begun = time.monotonic()
    assert engine.transfer_sync_read(second.name, local.address, second.address, size) == 0
    assert time.monotonic() - begun < 1
    assert local[:] == sides.pattern(size, 2)
    # The next one is met with what is known of this life.
    second.end(kill=True)
    third = remotes(port=first.port, size=size, seed=3)
    assert engine.transfer_sync_read(third.name, local.address, third.address, size) == 0
    assert local[:] == sides.pattern(size, 3)


@pytest.mark.ours_only("a segmentation fault of the released package")
def test_calls_before_the_set_up_answer_codes(memory):
    from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

    engine = TransferEngine()
    region = memory(4096)
    one = ([region.address], [4096], [64])
    assert engine.get_rpc_port() == 0
    assert engine.register_memory(region.address, 4096) == -1
    assert engine.unregister_memory(region.address) == -1
    assert engine.batch_register_memory([region.address], [4096]) == -1
    assert engine.transfer_sync_read("127.0.0.1:1", region.address, 4096, 64) == -1
    assert engine.batch_transfer_sync_write("127.0.0.1:1", *one) == -1
    assert engine.batch_transfer_sync("h:1", *one, TransferOpcode.Read, TransferNotify()) == -1
    assert engine.batch_transfer_async_read("127.0.0.1:1", *one) == 0
    assert engine.transfer_check_status(7) == -1 and engine.get_batch_transfer_status([7]) == -1
    assert engine.get_notifies() == [] and engine.send_probe("127.0.0.1:1") == -1
    assert engine.get_first_buffer_address("127.0.0.1:1") == 0
    assert engine.allocate_managed_buffer(10) == 0 and engine.free_managed_buffer(10, 10) == -1
    assert engine.initialize("127.0.0.1", "http://127.0.0.1:1/metadata", "tcp", "") == -1
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == -1
    engine.close()
    engine.close()
    assert engine.register_memory(region.address, 4096) == -1


@pytest.mark.ours_only("a child of the released package goes on with its copy of the engine, whose threads are not there")
def test_a_forked_child_sees_a_closed_engine():
    code, lines = sides.run_python(
        """
import json, os, sys
from sides import Memory
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
region = Memory(4096)
assert engine.register_memory(region.address, 4096) == 0
name = f"127.0.0.1:{engine.get_rpc_port()}"
batch = engine.transfer_submit_write(name, region.address, region.address + 2048, 64)
child = os.fork()
if child == 0:
    answers = [engine.get_rpc_port(), engine.send_probe(name), engine.register_memory(region.address + 1, 5),
               engine.transfer_sync_read(name, region.address, region.address, 64),
               engine.get_batch_transfer_status([batch]), engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")]
    fresh = TransferEngine()
    answers.append(fresh.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""))
    answers.append(fresh.send_probe(name))
    del engine, fresh
    print(json.dumps(answers), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(json.dumps([engine.send_probe(name), engine.get_batch_transfer_status([batch])]), flush=True)
""",
        seconds=20,
    )
    assert code == 0
    assert lines == [[0, -1, -1, -1, -1, -1, 0, 0], [0, 0]]


@pytest.mark.ours_only("the released package has no way to close an engine")
def test_a_forked_child_does_not_keep_the_ports():
    code, lines = sides.run_python(
        """
import json, os, socket
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
port = engine.get_rpc_port()
waits, ends = os.pipe()
child = os.fork()
if child == 0:
    os.close(ends)
    os.read(waits, 1)
    os._exit(0)
engine.close()
try:
    socket.create_connection(("127.0.0.1", port), 2)
    answer = "connected"
except OSError as error:
    answer = type(error).__name__
os.close(ends)
os.waitpid(child, 0)
print(json.dumps(answer), flush=True)
""",
        seconds=20,
    )
    assert (code, lines) == (0, ["ConnectionRefusedError"])


ENVIRONMENT = """
import json
from mooncake.engine import TransferEngine
engine = TransferEngine()
answer = engine.initialize("127.0.0.1:15999", "P2PHANDSHAKE", "tcp", "")
print(json.dumps([answer, engine.get_rpc_port()]), flush=True)
"""


@pytest.mark.parametrize(
    "names", [("MC_MIN_RPC_PORT", "MC_MAX_RPC_PORT"), ("MC_MIN_PRC_PORT", "MC_MAX_PRC_PORT")], ids=["spelt", "misspelt"]
)
def test_the_range_of_ports_is_in_the_environment(names):
    _, lines = sides.run_python(ENVIRONMENT, env={names[0]: "18100", names[1]: "18200"})
    answer, port = lines[-1]
    assert answer == 0 and 18100 <= port <= 18200


@pytest.mark.ours_only("the released package does so with metadata servers only")
def test_the_port_of_the_name_is_taken_when_the_environment_asks_for_it():
    _, lines = sides.run_python(ENVIRONMENT, env={"MC_LEGACY_RPC_PORT_BINDING": "1"})
    assert lines == [[0, 15999]]
    _, lines = sides.run_python(ENVIRONMENT)
    assert lines[0][0] == 0 and lines[0][1] != 15999


@pytest.mark.ours_only("whatever the released package makes of such values")
@pytest.mark.parametrize("name", ["MC_MIN_RPC_PORT", "MC_TRANSFER_TIMEOUT", "MC_HANDSHAKE_PORT", "MC_TCP_BIND_ADDRESS"])
def test_values_that_cannot_be_read_have_no_effect(name):
    _, lines = sides.run_python(ENVIRONMENT, env={name: "many"})
    assert lines[0][0] == 0 and 15000 <= lines[0][1] <= 17000


@pytest.mark.parametrize("ending", ["", "del engine", "engine = [engine]; engine.append(engine)", "sys.exit(0)"])
def test_an_engine_does_not_keep_the_interpreter(ending):
    begun = time.monotonic()
    code, _ = sides.run_python(
        f"""
import sys
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
inner = engine.get_engine()
{ending}
"""
    )
    assert code == 0
    assert time.monotonic() - begun < 5


@pytest.mark.ours_only("the released package has no way to close an engine")
def test_closing_ends_transfers_and_frees_the_port(engine, remotes, memory):
    import socket
    import threading

    size = 64 << 20
    remote, local = remotes(size=size), memory(size)
    assert engine.register_memory(local.address, size) == 0
    many = ([local.address] * 200, [remote.address] * 200, [size] * 200)
    answers = []
    blocked = threading.Thread(target=lambda: answers.append(engine.batch_transfer_sync_read(remote.name, *many)))
    blocked.start()
    batch = engine.batch_transfer_async_read(remote.name, *many)
    assert batch > 0 and engine.transfer_check_status(batch) == 0
    port = engine.get_rpc_port()
    begun = time.monotonic()
    engine.close()
    assert time.monotonic() - begun < 5
    blocked.join(5)
    assert answers == [-1]
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 1)


@pytest.mark.ours_only("counters and the strict setting are ours")
def test_strict_buffers_refuse_local_memory_that_is_not_registered(remotes):
    remote = remotes()
    code, lines = sides.run_python(
        """
import json, sys
from sides import Memory
from mooncake.engine import TransferEngine
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") == 0
name, address = sys.argv[1], int(sys.argv[2])
region = Memory(8192)
answers = [engine.transfer_sync_read(name, region.address, address, 64)]
assert engine.register_memory(region.address, 4096) == 0
answers.append(engine.transfer_sync_read(name, region.address, address, 4096))
answers.append(engine.transfer_sync_read(name, region.address + 4000, address, 128))
answers.append(dict(engine.counters())["fabric_fallbacks"])
print(json.dumps(answers), flush=True)
""",
        env={"SNOWSKIN_STRICT_BUFFERS": "1"},
        arguments=[remote.name, remote.address],
    )
    assert (code, lines) == (0, [[-1, 0, -1, 1]])


@pytest.mark.ours_only("the released package registers what is not there, and a copy from it ends the process")
def test_bad_local_addresses_are_codes(engine, remotes):
    remote = remotes()
    for address in (0, 1, 4096, 2**47, 2**64 - 64):
        for sync in (engine.transfer_sync_read, engine.transfer_sync_write):
            assert sync(remote.name, address, remote.address, 64) == -1
        assert engine.register_memory(address, 4096) == -1
        assert engine.read_bytes_from_buffer(address, 64) == b""
        assert engine.write_bytes_to_buffer(address, b"x" * 64, 64) == -1
    assert engine.write_bytes_to_buffer(remote.address, b"x", 2) == -1


MAPPED = """
import ctypes, os, sys
from sides import pattern
from mooncake.engine import TransferEngine
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
name = f"127.0.0.1:{engine.get_rpc_port()}"
MIB = 1 << 20
"""

UNMAPPED = (
    MAPPED
    + """
region = libc.mmap(None, 4 * MIB, 3, 0x22, -1, 0)
assert engine.register_memory(region, 4 * MIB) == 0
assert libc.munmap(region + MIB, 3 * MIB) == 0
print(engine.get_rpc_port(), region, flush=True)
sys.stdin.read()
print("ends well", flush=True)
os._exit(0)
"""
)


def test_memory_that_was_unmapped_is_refused(engine, memory):
    child = subprocess.Popen(
        [sys.executable, "-c", UNMAPPED],
        env={**sides.os.environ, "PYTHONPATH": str(sides.pathlib.Path(__file__).parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port, address = map(int, child.stdout.readline().split())
        name, local = f"127.0.0.1:{port}", memory(4 << 20)
        for sync in (engine.transfer_sync_write, engine.transfer_sync_read):
            for size in (1000, 1 << 20, 3 << 20):
                assert sync(name, local.address, address + (1 << 20), size) == -1
            # It goes on serving what is left.
            assert sync(name, local.address, address, 1 << 20) == 0
        ending, _ = child.communicate(timeout=10)
        assert (child.returncode, ending) == (0, "ends well\n")
    finally:
        child.kill()
        child.wait(10)


@pytest.mark.ours_only("the released package ends the process")
def test_local_memory_that_was_unmapped_is_a_code():
    code, lines = sides.run_python(
        MAPPED
        + """
import json
here, there = (libc.mmap(None, 4 * MIB, 3, 0x22, -1, 0) for _ in range(2))
for region in (here, there):
    assert engine.register_memory(region, 4 * MIB) == 0
alias = f"localhost:{engine.get_rpc_port()}"
assert engine.transfer_sync_write(alias, here, there, 4 * MIB) == 0
assert libc.munmap(here, 4 * MIB) == 0
print(json.dumps([sync(peer, *pair, size)
    for sync in (engine.transfer_sync_write, engine.transfer_sync_read)
    for peer in (name, alias) for pair in ((here, there), (there, here)) for size in (1000, MIB, 4 * MIB)]), flush=True)
os._exit(0)
""",
        seconds=20,
    )
    assert (code, lines) == (0, [[-1] * 24])


def test_read_only_memory_can_be_registered_and_written_from():
    code, lines = sides.run_python(
        MAPPED
        + """
import json
constant, there = libc.mmap(None, MIB, 1, 0x22, -1, 0), libc.mmap(None, MIB, 3, 0x22, -1, 0)
answers = [engine.register_memory(constant, MIB), engine.register_memory(there, MIB)]
ctypes.memset(there, 7, MIB)
answers += [engine.transfer_sync_write(f"localhost:{engine.get_rpc_port()}", constant, there, 1000)]
answers += [ctypes.string_at(there, 1001) == bytes(1000) + bytes([7])]
print(json.dumps(answers), flush=True)
os._exit(0)
""",
        seconds=20,
    )
    assert (code, lines) == (0, [[0, 0, 0, True]])


@pytest.mark.ours_only("the released package ends the process")
def test_read_only_memory_is_not_written():
    code, lines = sides.run_python(
        MAPPED
        + """
import json
constant, here = libc.mmap(None, MIB, 1, 0x22, -1, 0), libc.mmap(None, MIB, 3, 0x22, -1, 0)
assert engine.register_memory(constant, MIB) == 0 and engine.register_memory(here, MIB) == 0
answers = []
for peer in (name, f"localhost:{engine.get_rpc_port()}"):
    answers += [engine.transfer_sync_read(peer, here, constant, 1000), engine.transfer_sync_write(peer, here, constant, 1000)]
    answers += [engine.transfer_sync_read(peer, constant, here, 1000)]
print(json.dumps(answers), flush=True)
os._exit(0)
""",
        seconds=20,
    )
    assert (code, lines) == (0, [[0, -1, -1] * 2])
