"""How a process with a store behaves: imports, forks, signals, several stores, crashes."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import sides
from sides import MIB, Memory, pattern

OPEN = """
import json, os, signal, sys, time
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
code = store.setup("127.0.0.1", "P2PHANDSHAKE", 32 << 20, 16 << 20, "tcp", "", sys.argv[1])
assert code == 0, code
"""


@pytest.mark.parametrize(
    "first,second",
    [
        ("mooncake.store", "mooncake.engine"),
        ("mooncake.engine", "mooncake.store"),
        ("mooncake", "mooncake.store"),
        ("numpy", "mooncake.store"),
        ("mooncake.store", "numpy"),
        ("mooncake.store", "asyncio"),
    ],
)
def test_modules_are_imported_in_any_order(first, second):
    code, lines = sides.run_python(
        f"import json, {first}, {second}; from mooncake.store import MooncakeDistributedStore as S; S()\n"
        "print(json.dumps('imported'), flush=True)"
    )
    assert (code, lines) == (0, ["imported"])


def test_the_package_offers_the_buffer_pool():
    import mooncake
    import mooncake.store

    assert mooncake.BufferPool is mooncake.store.BufferPool is mooncake.RegisteredBufferPool


@pytest.mark.ours_only("a promise of ours")
def test_the_import_is_quick():
    script = "import time; t = time.monotonic(); import mooncake.store; print(time.monotonic() - t)"
    best = min(
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout) for _ in range(5)
    )
    assert best < 0.15


def test_importing_says_nothing():
    done = subprocess.run([sys.executable, "-c", "import mooncake.store, mooncake.engine"], capture_output=True, check=True)
    assert done.stdout == b""


def test_several_stores_in_one_process(own_pool):
    pool, other = own_pool(), own_pool()
    first, second = pool.open(segment=16 * MIB), pool.open(segment=16 * MIB)
    apart = other.open(segment=16 * MIB)
    assert first.put("k", b"one pool") == 0
    assert second.get("k") == b"one pool" and apart.get("k") == b""
    assert apart.put("k", b"another") == 0
    assert first.close() == 0
    assert apart.get("k") == b"another" and second.health_check() == 0


def test_stores_come_and_go(own_pool):
    pool = own_pool()
    keeper = pool.open(segment=16 * MIB)
    before = len(os.listdir("/proc/self/fd"))
    for i in range(4):
        store = pool.open(segment=16 * MIB)
        assert store.put(f"k{i}", b"v") == 0
        assert store.close() == 0
    assert keeper.health_check() == 0
    assert len(os.listdir("/proc/self/fd")) < before + 12


def test_fork_then_exec_is_unaffected(store, key):
    # subprocess forks and executes; engines start compilers and workers so.
    assert store.put(key, b"before") == 0
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", "print('child')"], capture_output=True, check=True).stdout
    assert store.get(key) == b"before"


@pytest.mark.ours_only("the released package hangs or crashes in the child")
def test_a_forked_child_sees_a_closed_store(pool):
    code, lines = sides.run_python(
        OPEN
        + """
assert store.put("forked", b"v") == 0
read, write = os.pipe()
child = os.fork()
if child == 0:
    answer = [store.is_exist("forked"), store.put("l", b"v"), store.get("forked").decode(), store.close()]
    os.write(write, json.dumps(answer).encode())
    os._exit(0)
os.close(write)
told = b""
while chunk := os.read(read, 4096):
    told += chunk
_, status = os.waitpid(child, 0)
print(json.dumps([json.loads(told), status, store.get("forked").decode(), store.health_check()]), flush=True)
store.close()
""",
        arguments=[pool.master.address],
        seconds=20,
    )
    assert code == 0
    answer, status, still, health = lines[-1]
    assert status == 0 and answer[0] in (0, -600) and answer[1] < 0 and answer[2] == ""
    assert (still, health) == ("v", 0)


@pytest.mark.ours_only("the released package aborts")
@pytest.mark.parametrize("call", ["store.get('k')", "store.is_exist('k')", "store.put(str(time.monotonic_ns()), b'q')"])
def test_a_process_ends_well_while_daemon_threads_are_in_calls(pool, call):
    # Engines' transfer threads are daemons: the interpreter ends with them inside of a call. It used to
    # end by a segmentation fault, when such a thread wanted the interpreter back.
    code, lines = sides.run_python(
        OPEN
        + f"""
import threading
store.put("k", b"v" * 100)
calling = threading.Semaphore(0)
def work():
    while True:
        {call}
        calling.release()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
for _ in range(200):
    calling.acquire()
print("true", flush=True)
""",
        arguments=[pool.master.address],
        seconds=20,
    )
    assert (code, lines) == (0, [True])


def test_closing_twice_is_fine(own_pool):
    store = own_pool().open(segment=16 * MIB)
    assert (store.close(), store.close()) == (0, 0)


@pytest.mark.ours_only("a use after close ends the process with the released package")
def test_closing_during_transfers_answers_codes(own_pool):
    pool = own_pool()
    owner, store = pool.open(segment=64 * MIB), pool.open(segment=0)
    size = 8 * MIB
    region = Memory(size, pattern(size))
    assert store.register_buffer(region.address, size) == 0
    assert store.put_from("k", region.address, size) == 0
    answers, started = [], threading.Event()

    def read():
        while True:
            answers.append(store.get_into("k", region.address, size))
            started.set()
            if answers[-1] < 0:
                return

    readers = [threading.Thread(target=read) for _ in range(4)]
    for t in readers:
        t.start()
    assert started.wait(10)
    began = time.monotonic()
    assert store.close() == 0
    assert time.monotonic() - began < 5
    for t in readers:
        t.join(5)
    assert not any(t.is_alive() for t in readers)
    assert set(answers) <= {size, -600, -702, -704, -800, -900, -901}
    assert owner.health_check() == 0
    region.free()


def test_a_store_that_is_not_closed_does_not_keep_the_interpreter(pool):
    began = time.monotonic()
    code, lines = sides.run_python(
        OPEN + "store.put('left', b'v'); print(json.dumps('end'), flush=True)\n", arguments=[pool.master.address]
    )
    assert (code, lines) == (0, ["end"])
    assert time.monotonic() - began < 12


def segments(pool):
    return sides.fetch(pool.master.http + "/get_all_segments")[1].split()


@pytest.fixture
def joined(own_pool):
    """A process with an open store that waits: (pool, process, name of its segment)."""
    pool = own_pool()
    ended = []
    process = sides.Process(
        [sys.executable, "-c", OPEN + "print(json.dumps(store.get_hostname()), flush=True)\ntime.sleep(60)", pool.master.address]
    )
    ended.append(process)
    import json

    name = json.loads(process.line(20))
    assert name in segments(pool)
    yield pool, process, name
    process.end(signal.SIGKILL)


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
@pytest.mark.differs(
    "a node whose sockets were reset is gone, and readers should not wait for a time-out",
    peer="the node is listed until client_ttl (10 s) has run out",
    ours="retired within 2 s",
)
def test_the_master_retires_a_process_that_died(side, joined, with_signal):
    pool, process, name = joined
    assert process.end(with_signal) == -with_signal
    if side.is_peer:
        assert name in segments(pool)
        return
    sides.wait_until(lambda: name not in segments(pool), 2, f"{name} is retired")


def test_ctrl_c_reaches_a_python_loop(pool):
    # A library that takes signals over would make an engine unstoppable.
    process = sides.Process(
        [
            sys.executable,
            "-c",
            # A process that was started in the background may begin with the signal ignored.
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            + OPEN
            + "try:\n    print('ready', flush=True)\n"
            "    while True: store.is_exist('k'); time.sleep(0.001)\n"
            "except KeyboardInterrupt:\n    store.close(); sys.exit(7)\n",
            pool.master.address,
        ]
    )
    assert process.line(20) == "ready"
    assert process.end(signal.SIGINT) == 7


@pytest.mark.differs(
    "what lived in a dead process is a miss, at once and for everybody",
    peer="existence answers 1 until client_ttl has run out",
    ours="existence answers 0 within 2 s",
)
def test_what_a_dead_process_held_is_a_miss(side, joined):
    pool, process, name = joined
    reader = pool.open(segment=0)
    # The only segment of the pool is that of the other process.
    assert reader.put("held", pattern(MIB)) == 0
    assert reader.get("held") == pattern(MIB)
    process.end(signal.SIGKILL)
    began = time.monotonic()
    assert reader.get("held") == b""
    assert time.monotonic() - began < 10
    if side.is_peer:
        assert reader.is_exist("held") == 1
        return
    sides.wait_until(lambda: reader.is_exist("held") == 0, 2, "the object is gone")
    assert reader.batch_get_buffer(["held"]) == [None]
    assert reader.put("held", b"v") == -200


@pytest.mark.ours_only("the released package waits for its RPC deadline of 30 s, call by call")
def test_a_frozen_master_costs_one_deadline(own_pool):
    pool = own_pool()
    store = pool.open(segment=16 * MIB)
    assert store.put("k", b"v") == 0
    pid = pool.master.process.child.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        sides.wait_until(lambda: sides.stopped(pid), 5, "the master stands still")
        began = time.monotonic()
        first = store.is_exist("k")
        assert time.monotonic() - began < 5.5 and first in (0, -901, -900)
        began = time.monotonic()
        for _ in range(20):
            assert store.is_exist("k") == 0
        assert time.monotonic() - began < 1
        assert store.health_check() == 2
    finally:
        os.kill(pid, signal.SIGCONT)
    sides.wait_until(lambda: store.is_exist("k") == 1, 10, "the store asks the master again")
    assert store.get("k") == b"v"


@pytest.mark.ours_only("the released package leaves it to the caller")
def test_unregistering_waits_for_transfers_under_way(own_pool):
    pool = own_pool()
    pool.open(segment=64 * MIB)
    store = pool.open(segment=0)
    size = 16 * MIB
    region = Memory(size, pattern(size))
    assert store.register_buffer(region.address, size) == 0
    assert store.put_from("k", region.address, size) == 0
    started, answers = threading.Event(), []

    def read():
        started.set()
        for _ in range(20):
            answers.append(store.get_into("k", region.address, size))

    reader = threading.Thread(target=read)
    reader.start()
    assert started.wait(10)
    assert store.unregister_buffer(region.address) == 0
    reader.join(30)
    # Before it the reads were direct, after it they are copies; none was cut short.
    assert answers == [size] * 20 and region[:size] == pattern(size)
    assert store.unregister_buffer(region.address) == -600
    region.free()
