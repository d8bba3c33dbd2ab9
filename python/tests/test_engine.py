"""The transfer engine: one test per row of its methods, the same for our package and the released one."""

import os
import socket
import threading
import time

import pytest

import sides
from sides import MIB, Memory, pattern

engine_module = pytest.importorskip("mooncake.engine")
TransferEngine = engine_module.TransferEngine
TransferNotify = engine_module.TransferNotify
TransferOpcode = engine_module.TransferOpcode

SIZE = 4 * MIB


def new_engine(protocol="tcp"):
    made = TransferEngine()
    assert made.initialize("127.0.0.1", "P2PHANDSHAKE", protocol, "") == 0
    return made


def name_of(engine):
    return f"127.0.0.1:{engine.get_rpc_port()}"


def dead_name():
    return f"127.0.0.1:{sides.free_port()}"


@pytest.fixture(scope="module")
def here():
    return new_engine()


@pytest.fixture(scope="module")
def there():
    return new_engine()


@pytest.fixture
def registered_with():
    """Makes memory registered with an engine."""
    made = []

    def make(engine, size=SIZE, fill=None):
        region = Memory(size, fill)
        assert engine.register_memory(region.address, size) == 0
        made.append((engine, region))
        return region

    yield make
    for engine, region in made:
        engine.unregister_memory(region.address)
        region.free()


class Pair:
    """Registered memory of two engines."""

    def __init__(self, registered_with, here, there):
        self.local = registered_with(here, fill=pattern(SIZE, 1))
        self.remote = registered_with(there, fill=pattern(SIZE, 2))
        self.peer = name_of(there)


@pytest.fixture
def pair(registered_with, here, there):
    return Pair(registered_with, here, there)


def test_opcodes_are_an_enumeration():
    read, write = TransferOpcode.Read, TransferOpcode.Write
    assert (read.name, read.value, int(read), int(write)) == ("Read", 0, 0, 1)
    assert TransferOpcode(1) == write and read != write and read < write
    assert list(TransferOpcode.__members__) == ["Read", "Write"]
    assert TransferEngine.TransferOpcode is TransferOpcode
    assert (engine_module.Read, engine_module.Write) == (read, write)
    assert (str(read), repr(write)) == ("TransferOpcode.Read", "<TransferOpcode.Write: 1>")
    assert len({read, write, TransferOpcode.Read}) == 2


def test_notifications_have_a_name_and_a_text():
    empty, full = TransferNotify(), TransferNotify("n", "m")
    assert (empty.name, empty.msg, full.name, full.msg) == ("", "", "n", "m")
    empty.name, empty.msg = "a", "b"
    assert (empty.name, empty.msg) == ("a", "b")
    assert TransferNotify(name="x", msg="y").msg == "y"
    with pytest.raises(TypeError):
        TransferNotify("only a name")


def test_the_port_is_of_the_range():
    assert 15000 <= new_engine().get_rpc_port() <= 17000


@pytest.mark.parametrize("protocol", ["rdma", "ascend", ""])
def test_a_fabric_that_is_not_there_gives_tcp(protocol):
    assert new_engine(protocol).send_probe(name_of(new_engine())) == 0


def test_protocols_that_are_none():
    assert TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "xgmi", "") == -1


def test_initialize_takes_no_keywords():
    with pytest.raises(TypeError):
        TransferEngine().initialize(
            local_hostname="127.0.0.1", metadata_server="P2PHANDSHAKE", protocol="tcp", device_name=""
        )


def test_initialize_with_the_kind_apart():
    made = TransferEngine()
    assert made.initialize_ext("127.0.0.1", "P2PHANDSHAKE", "tcp", "", "p2p") == 0
    assert made.get_rpc_port() > 0


def test_registration_and_its_numbers(here):
    region = Memory(64 * 1024)
    register = here.register_memory
    assert register(region.address, 8192) == 0
    assert register(region.address, 8192) == -7
    assert register(region.address + 4096, 4096) == -7
    assert register(buffer_addr=region.address + 16384, capacity=4096, location="cpu:0") == 0
    assert register(region.address + 32768, 0) == -1
    assert here.unregister_memory(region.address) == 0
    assert here.unregister_memory(region.address) == -3
    assert here.unregister_memory(12345) == -3
    assert here.unregister_memory(region.address + 16384) == 0
    region.free()


def test_batches_of_registrations_are_all_or_nothing(here):
    region = Memory(64 * 1024)
    at = [region.address + n * 8192 for n in range(4)]
    register = here.batch_register_memory
    assert register(at, [8192, 8192, 8193, 4096]) == -7
    assert register(at[:2], [8192, 0]) == -1
    assert here.batch_unregister_memory(at) == -3
    assert register(buffer_addresses=at, capacities=[8192] * 4, location="*") == 0
    assert here.batch_unregister_memory([12345]) == -3
    assert here.batch_unregister_memory(at) == 0
    assert here.batch_unregister_memory([]) == 0
    region.free()


@pytest.mark.ours_only("the released package leaves what stands behind an unknown address registered")
def test_what_can_be_unregistered_of_a_list_is(here):
    region = Memory(64 * 1024)
    at = [region.address + n * 8192 for n in range(3)]
    assert here.batch_register_memory(at, [8192] * 3) == 0
    assert here.batch_unregister_memory([at[0], 12345, at[1]]) == -3
    assert here.batch_register_memory(at[:2], [8192] * 2) == 0
    assert here.batch_unregister_memory(at) == 0
    region.free()


def test_single_transfers(here, pair):
    write, read = here.transfer_sync_write, here.transfer_sync_read
    assert read(pair.peer, pair.local.address, pair.remote.address, MIB) == 0
    assert pair.local[:MIB] == pattern(SIZE, 2)[:MIB] and pair.local[MIB:] == pattern(SIZE, 1)[MIB:]
    assert (
        write(
            target_hostname=pair.peer,
            buffer=pair.local.address + 2 * MIB,
            peer_buffer_address=pair.remote.address + 100,
            length=MIB + 1,
            transport_hint="tcp",
        )
        == 0
    )
    wanted = bytearray(pattern(SIZE, 2))
    wanted[100 : 101 + MIB] = pattern(SIZE, 1)[2 * MIB : 3 * MIB + 1]
    assert pair.remote[:] == bytes(wanted)


def test_transfers_by_opcode_with_a_notification(here, there, pair):
    there.get_notifies()
    note = TransferNotify("name", "text")
    sync = here.transfer_sync
    assert sync(pair.peer, pair.local.address, pair.remote.address, 64, TransferOpcode.Write, note) == 0
    assert pair.remote[:64] == pair.local[:64]
    assert sync(pair.peer, pair.local.address, pair.remote.address + 64, 64, opcode=TransferOpcode.Read) == 0
    assert pair.local[:64] == pattern(SIZE, 2)[64:128]
    assert [(n.name, n.msg) for n in there.get_notifies()] == [("name", "text")]
    assert there.get_notifies() == []
    with pytest.raises(TypeError):
        sync(pair.peer, pair.local.address, pair.remote.address, 64, 1)


def lists(pair, count=50, size=3000):
    """Parts of the pair's memory, in another order at the peer."""
    local = [pair.local.address + n * size for n in range(count)]
    remote = [pair.remote.address + (count - 1 - n) * 2 * size for n in range(count)]
    return local, remote, [size] * count


def written(count=50, size=3000):
    """What `lists` writes, seen at the peer."""
    wanted = bytearray(pattern(SIZE, 2))
    for n in range(count):
        at = (count - 1 - n) * 2 * size
        wanted[at : at + size] = pattern(SIZE, 1)[n * size : (n + 1) * size]
    return bytes(wanted)


def test_batches_of_transfers(here, pair):
    local, remote, lengths = lists(pair)
    assert here.batch_transfer_sync_write(pair.peer, local, remote, lengths) == 0
    assert pair.remote[:] == written()
    pair.local[:] = bytes(150_000)
    assert here.batch_transfer_sync_read(pair.peer, tuple(local), remote, lengths, "hint") == 0
    assert pair.local[:150_000] == pattern(SIZE, 1)[:150_000]


def test_batches_by_opcode_with_a_notification(here, there, pair):
    there.get_notifies()
    local, remote, lengths = lists(pair)
    note = TransferNotify("batch", "done")
    batch = here.batch_transfer_sync
    assert batch(pair.peer, local, remote, lengths, TransferOpcode.Write, notify=note, transport_hint="") == 0
    assert pair.remote[:] == written()
    assert [n.msg for n in there.get_notifies()] == ["done"]
    assert batch(pair.peer, local, remote, lengths, TransferOpcode.Read) == 0


def test_lists_of_unequal_lengths_and_of_nothing(here, pair):
    one, two = [pair.local.address], [pair.remote.address] * 2
    for sync in (here.batch_transfer_sync_write, here.batch_transfer_sync_read):
        assert sync(pair.peer, one, two, [1]) == -1
        assert sync(pair.peer, one, [pair.remote.address], [1, 2]) == -1
        assert sync(pair.peer, [], [], []) == 0


def test_addresses_that_the_peer_did_not_register(side, here, pair):
    for address in (4096, pair.remote.address + SIZE - 1, pair.remote.address - 1):
        for sync in (here.transfer_sync_read, here.transfer_sync_write):
            begun = time.monotonic()
            assert sync(pair.peer, pair.local.address, address, 64) == -1
            assert time.monotonic() - begun < side.pick(ours=1, peer=5)
    assert pair.remote[:] == pattern(SIZE, 2) and pair.local[:] == pattern(SIZE, 1)


def test_local_memory_that_is_not_registered(here, pair):
    local = Memory(8192, pattern(8192, 3))
    assert here.transfer_sync_write(pair.peer, local.address, pair.remote.address, 8192) == 0
    assert pair.remote[:8192] == pattern(8192, 3)
    assert here.transfer_sync_read(pair.peer, local.address, pair.remote.address + 8192, 8192) == 0
    assert local[:] == pattern(SIZE, 2)[8192:16384]
    local.free()


def test_a_peer_that_is_not_there(here, pair):
    peer = dead_name()
    begun = time.monotonic()
    one = ([pair.local.address], [pair.remote.address], [64])
    assert here.transfer_sync_write(peer, pair.local.address, pair.remote.address, 64) == -1
    assert here.batch_transfer_sync_read(peer, *one) == -1
    assert here.batch_transfer_async_write(peer, *one) == 0
    assert here.transfer_submit_write(peer, pair.local.address, pair.remote.address, 64) == 0
    assert here.get_first_buffer_address(peer) == 0
    assert time.monotonic() - begun < 2


def test_probes_and_their_numbers(here, there):
    assert here.send_probe(name_of(there)) == 0
    assert here.send_probe(peer_server_name=dead_name()) == -102
    assert here.send_probe("no-such-host.invalid:1") == -101


def test_one_self_is_a_peer(here, registered_with):
    region = registered_with(here, fill=pattern(SIZE, 4))
    assert here.transfer_sync_write(name_of(here), region.address, region.address + MIB, 4096) == 0
    assert region[MIB : MIB + 4096] == region[:4096]
    assert here.get_first_buffer_address(name_of(here)) > 0


def finished(engine, batch, seconds=20):
    deadline = time.monotonic() + seconds
    while True:
        status = engine.transfer_check_status(batch)
        if status or time.monotonic() > deadline:
            return status


def test_batches_that_run_beside_their_caller(registered_with):
    here = new_engine()
    pair = Pair(registered_with, here, new_engine())
    local, remote, lengths = lists(pair)
    for begin in (
        lambda: here.batch_transfer_async_write(pair.peer, local, remote, lengths),
        lambda: here.batch_transfer_async_read(pair.peer, local, remote, lengths, "hint"),
        lambda: here.batch_transfer_async(pair.peer, local, remote, lengths, TransferOpcode.Write),
        lambda: here.batch_transfer_async(
            target_hostname=pair.peer,
            buffers=local,
            peer_buffer_addresses=remote,
            lengths=lengths,
            opcode=TransferOpcode.Read,
            transport_hint="",
        ),
    ):
        batch = begin()
        assert batch > 0
        # What is read must have been written.
        assert here.get_batch_transfer_status([batch]) == 0
    batch = here.transfer_submit_write(pair.peer, local[0], remote[0], lengths[0])
    assert finished(here, batch) == 1
    assert here.get_batch_transfer_status([]) == 0
    assert pair.remote[:] == written()


@pytest.mark.ours_only("the released package tells the end of the first request (F1) and follows any number (F11)")
def test_a_batch_has_one_status_and_its_number_ends_with_it(here, there, registered_with):
    size = 96 * MIB
    local, remote = registered_with(here, size), registered_with(there, size, pattern(size, 5))
    batch = here.batch_transfer_async_read(
        name_of(there),
        [local.address, local.address + 4096],
        [remote.address, remote.address + 4096],
        [4096, size - 4096],
    )
    assert 0 < batch < 1 << 63
    assert finished(here, batch) == 1
    assert local[:] == remote[:]
    assert here.transfer_check_status(batch) == -1
    for number in (0, 1, batch, 2**63, 2**64 - 1):
        assert here.transfer_check_status(number) == -1
        assert here.get_batch_transfer_status([number]) == -1


def test_the_first_buffer_of_a_peer(here, registered_with):
    assert here.get_first_buffer_address(name_of(new_engine())) == 0
    fresh = new_engine()
    first = registered_with(fresh, 8192)
    registered_with(fresh, 8192)
    assert here.get_first_buffer_address(name_of(fresh)) == first.address


def test_buffers_of_the_engine(here, pair):
    for length in (1, 8192, 300_000):
        buffer = here.allocate_managed_buffer(length)
        assert buffer > 0
        data = (b"a\0b" * length)[:length]
        assert here.write_bytes_to_buffer(buffer, data, length) == 0
        assert here.read_bytes_from_buffer(buffer, length) == data
        assert here.transfer_sync_write(pair.peer, buffer, pair.remote.address, length) == 0
        assert pair.remote[:length] == data
        assert here.free_managed_buffer(buffer, length) == 0


def test_the_rest_of_the_methods(here, there):
    assert '"cpu:0"' in here.get_local_topology() and here.get_local_topology(device_name="x")
    assert here.warmup_efa_segment(name_of(there)) == 0
    assert here.get_engine_ptr() != there.get_engine_ptr() != 0
    assert isinstance(here.get_engine(), engine_module.InnerTransferEngine)


@pytest.mark.parametrize("wrong", [-1, 2**64, "text", 1.5, None])
def test_arguments_that_are_no_addresses_raise(here, wrong):
    with pytest.raises(TypeError):
        here.register_memory(wrong, 4096)
    with pytest.raises(TypeError):
        here.batch_transfer_sync_write("127.0.0.1:1", [wrong], [4096], [64])


def test_ten_threads_share_an_engine(here, pair):
    part = SIZE // 10
    answers = []

    def work(number):
        for _ in range(20):
            at = number * part
            answers.append(
                here.transfer_sync_write(pair.peer, pair.local.address + at, pair.remote.address + at, part)
            )

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [0] * 200
    assert pair.remote[: part * 10] == pair.local[: part * 10]


def test_the_interpreter_is_free_while_a_transfer_waits(here):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        name = f"127.0.0.1:{silent.getsockname()[1]}"
        waiting = threading.Thread(target=here.send_probe, args=(name,))
        waiting.start()
        turns = 0
        while waiting.is_alive() and turns < 1000:
            turns += 1
        assert turns == 1000
        # The peer hangs up, so that the call need not last its time.
        silent.accept()[0].close()
        waiting.join(20)
        assert not waiting.is_alive()


def test_the_environment_is_left_alone(here):
    before = dict(os.environ)
    new_engine()
    assert dict(os.environ) == before
