"""Where an object lies, tasks that copy or move it, and segments added while running."""

import os

import pytest

from mooncake.store import ReplicaStatus, ReplicateConfig, TaskStatus
from sides import MIB


def test_a_stored_object_has_one_complete_memory_replica(store, key):
    store.put(key, b"x" * 300)
    (replica,) = store.get_replica_desc(key)
    assert replica.status == ReplicaStatus.COMPLETE
    assert (replica.is_memory_replica(), replica.is_disk_replica(), replica.is_local_disk_replica()) == (True, False, False)
    descriptor = replica.get_memory_descriptor().buffer_descriptor
    assert descriptor.size == 300
    assert isinstance(descriptor.buffer_address, int)
    assert isinstance(descriptor.transport_endpoint, str) and descriptor.transport_endpoint


def test_another_kind_of_descriptor_raises(store, key):
    store.put(key, b"x")
    (replica,) = store.get_replica_desc(key)
    with pytest.raises(RuntimeError):
        replica.get_disk_descriptor()


def test_the_status_is_read_only(store, key):
    store.put(key, b"x")
    (replica,) = store.get_replica_desc(key)
    with pytest.raises(AttributeError):
        replica.status = ReplicaStatus.FAILED


def test_a_missing_key_has_no_replicas(store, key):
    assert store.get_replica_desc(key) == []
    assert store.get_replica_desc(key=key) == []


def test_batch_descriptors_leave_out_missing_keys(store, new_key):
    there, missing = new_key(), new_key()
    store.put(there, b"x")
    answer = store.batch_get_replica_desc([there, missing])
    # vLLM's tier log uses `.get`.
    assert isinstance(answer, dict) and set(answer) == {there}
    assert answer.get(missing) is None
    assert all(r.is_memory_replica() for r in answer.get(there))
    assert store.batch_get_replica_desc(keys=[]) == {}


def test_descriptors_grant_a_lease(store, key):
    store.put(key, b"x")
    store.batch_get_replica_desc([key])
    assert store.remove(key) == -706


def test_the_endpoint_is_of_the_owner(store, reader, key):
    config = ReplicateConfig()
    config.preferred_segment = store.get_hostname()
    reader.put(key, b"x", config)
    (replica,) = reader.get_replica_desc(key)
    endpoint = replica.get_memory_descriptor().buffer_descriptor.transport_endpoint
    assert endpoint.split(":")[0] == store.get_hostname().split(":")[0]


def test_the_preferred_segment_holds_the_object(own_pool):
    pool = own_pool()
    first, second = pool.open(segment=32 * MIB), pool.open(segment=32 * MIB)
    config = ReplicateConfig()
    for i in range(6):
        config.preferred_segment = (first, second)[i % 2].get_hostname()
        assert first.put(f"k{i}", b"x" * 1000, config) == 0
    assert second.close() == 0
    assert first.batch_is_exist([f"k{i}" for i in range(6)]) == [1, 0] * 3


# ----------------------------------------------------------------------------- tasks


@pytest.mark.differs("copies beyond one replica come with a later release", peer="a task", ours="-1012")
def test_a_copy_task(side, own_pool, until):
    pool = own_pool()
    first, second = pool.open(segment=16 * MIB), pool.open(segment=16 * MIB)
    config = ReplicateConfig()
    config.preferred_segment = first.get_hostname()
    assert first.put("k", b"x" * 100, config) == 0
    task, code = first.create_copy_task("k", [second.get_hostname()])
    if side.is_peer:
        assert code in (0, -600)
        if code == 0:
            until(lambda: first.query_task(task)[0].status in (TaskStatus.SUCCESS, TaskStatus.FAILED), 10, "the task ends")
        return
    assert (tuple(task), code) == ((0, 0), -1012)


@pytest.mark.differs("copies and moves come with a later release", peer="-704", ours="-1012")
def test_tasks_for_a_missing_key(side, store, key):
    for answer in (
        store.create_copy_task(key, [store.get_hostname()]),
        store.create_move_task(key, store.get_hostname(), "other:1"),
        store.create_copy_task(key=key, targets=[store.get_hostname()]),
        store.create_move_task(key=key, source="a:1", target="b:2"),
    ):
        assert isinstance(answer, tuple) and tuple(answer[0]) == (0, 0)
        assert answer[1] in side.pick(ours=(-1012,), peer=(-704, -600))


@pytest.mark.differs("copies and moves come with a later release", peer="-1400", ours="-1012")
def test_an_unknown_task(side, store):
    payload, code = store.query_task(task_id=(1, 2))
    assert payload is None and code == side.pick(ours=-1012, peer=-1400)


def test_a_copy_needs_targets(store, key):
    store.put(key, b"x")
    payload, code = store.create_copy_task(key, [])
    assert tuple(payload) == (0, 0) and code in (-600, -1012)


# ----------------------------------------------------------------------------- segments


@pytest.mark.differs(
    "a node serves the memory it joined with; adding to it comes with a later release",
    peer="a dictionary with ret 0, its ids and the size in steps of 16 MiB",
    ours="ret -1012",
)
def test_memory_can_be_added_while_running(side, own_pool):
    store = own_pool().open(segment=0)
    answer = store.allocate_and_mount_segment(16 * MIB)
    if answer["ret"] == 0:
        assert answer["allocated_size"] >= 16 * MIB and len(answer["segment_ids"]) >= 1
        assert store.put("k", b"v") == 0 and store.get("k") == b"v"
        assert store.unmount_and_free_segment(answer["segment_ids"]) == 0
    else:
        assert not side.is_peer and answer["ret"] == -1012


def test_zero_bytes_cannot_be_added(store):
    assert store.allocate_and_mount_segment(0)["ret"] in (-1, -1012)
    assert store.allocate_and_mount_segment(size=0, protocol="tcp", location="")["ret"] in (-1, -1012)


@pytest.mark.differs(
    "a node serves the memory it joined with; adding to it comes with a later release",
    peer="a dictionary with ret 0 and its ids",
    ours="ret -1012",
)
def test_a_file_can_be_mounted(side, own_pool):
    path = f"/dev/shm/snowskin-test-{os.getpid()}"
    with open(path, "wb") as file:
        file.truncate(16 * MIB)
    try:
        store = own_pool().open(segment=0)
        answer = store.mount_segment(path=path, size=16 * MIB, offset=0, protocol="tcp", location="")
        if answer["ret"] == 0:
            assert store.put("k", b"v") == 0 and store.get("k") == b"v"
            assert store.unmount_segment(answer["segment_ids"], grace_period_seconds=0) == 0
        else:
            assert not side.is_peer and answer["ret"] == -1012
    finally:
        os.unlink(path)


@pytest.mark.parametrize("call", ["unmount_segment", "unmount_and_free_segment"])
def test_unmounting_what_is_not_mounted(store, call):
    assert getattr(store, call)(segment_ids=["1-2"], grace_period_seconds=0) in (-1, -600, -1012)


def test_unmounting_the_local_disk_without_one(store):
    assert store.unmount_local_disk_segment(grace_period_seconds=0) == 0


def test_a_joined_store_has_no_memory_pool_to_allocate_from(store):
    assert store.alloc_from_mem_pool(4096) == 0
