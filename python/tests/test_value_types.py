"""Enums, the write policy, descriptors and handles: what can be read, set, compared and printed."""

import pickle

import pytest

from mooncake import store as module
from mooncake.store import (
    BufferHandle,
    Descriptor,
    ObjectDataType,
    QueryTaskResponse,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    TaskStatus,
    TaskType,
)

ENUMS = [ObjectDataType, SoftPinAction, ReplicaStatus, TaskType, TaskStatus]

# ----------------------------------------------------------------------------- enums


@pytest.mark.parametrize("enum", ENUMS, ids=lambda e: e.__name__)
def test_enum_members_convert_to_int_and_back(enum):
    for name, member in enum.__members__.items():
        assert member.name == name
        assert int(member) == member.value == member.__index__()
        assert enum(member.value) == member
        assert getattr(enum, name) == member


@pytest.mark.parametrize("enum", ENUMS, ids=lambda e: e.__name__)
def test_enum_members_are_hashable_and_distinct(enum):
    members = list(enum.__members__.values())
    assert len({hash(m) for m in members}) == len(set(members)) == len(members)


@pytest.mark.parametrize("enum", ENUMS, ids=lambda e: e.__name__)
def test_enum_members_survive_pickling(enum):
    for member in enum.__members__.values():
        assert pickle.loads(pickle.dumps(member)) == member


@pytest.mark.parametrize("enum", ENUMS, ids=lambda e: e.__name__)
def test_enum_repr_names_class_member_and_value(enum):
    for name, member in enum.__members__.items():
        assert repr(member) == f"<{enum.__name__}.{name}: {member.value}>"


def test_task_status_values_are_not_in_listing_order():
    assert (int(TaskStatus.PENDING), int(TaskStatus.PROCESSING)) == (0, 1)
    assert (int(TaskStatus.FAILED), int(TaskStatus.SUCCESS)) == (2, 3)


@pytest.mark.parametrize("enum", [ObjectDataType, TaskType], ids=lambda e: e.__name__)
def test_enum_members_are_also_exported_flat(enum):
    for name, member in enum.__members__.items():
        assert getattr(module, name) == member


def test_flat_names_that_two_enums_share_belong_to_task_status():
    assert module.FAILED == TaskStatus.FAILED
    assert module.PROCESSING == TaskStatus.PROCESSING
    for name in ("UNDEFINED", "INITIALIZED", "COMPLETE", "REMOVED"):
        assert getattr(module, name) == getattr(ReplicaStatus, name)


def test_soft_pin_actions_are_not_exported_flat():
    assert not any(hasattr(module, name) for name in ("PRESERVE", "ENABLE", "DISABLE"))


# ----------------------------------------------------------------------------- ReplicateConfig

FIELDS = {
    "replica_num": (1, 3),
    "nof_replica_num": (0, 2),
    "dfs_replica_num": (0, 1),
    "soft_pin_action": (SoftPinAction.PRESERVE, SoftPinAction.ENABLE),
    "soft_pin_ttl_ms": (None, 60_000),
    "with_hard_pin": (False, True),
    "preferred_segments": ([], ["a:1", "b:2"]),
    "preferred_segment": ("", "a:1"),
    "preferred_nof_segments": ([], ["n:1"]),
    "prefer_alloc_in_same_node": (False, True),
    "data_type": (ObjectDataType.UNKNOWN, ObjectDataType.KVCACHE),
    "group_ids": (None, ["g", ""]),
}


@pytest.mark.parametrize("field", FIELDS)
def test_config_field_has_its_default_and_can_be_set(field):
    default, other = FIELDS[field]
    config = ReplicateConfig()
    assert getattr(config, field) == default
    setattr(config, field, other)
    assert getattr(config, field) == other
    setattr(config, field, default)
    assert getattr(config, field) == default


def test_configs_do_not_share_state():
    first, second = ReplicateConfig(), ReplicateConfig()
    first.replica_num = 5
    first.group_ids = ["a"]
    assert second.replica_num == 1 and second.group_ids is None


@pytest.mark.parametrize(
    "field,value",
    [
        ("replica_num", "1"),
        ("replica_num", 1.5),
        ("with_hard_pin", "yes"),
        ("preferred_segments", "a"),
        ("preferred_segments", [1]),
        ("preferred_segment", 7),
        ("data_type", "KVCACHE"),
        ("soft_pin_action", "ENABLE"),
        ("group_ids", 3),
        ("group_ids", [1]),
    ],
)
def test_config_refuses_values_of_a_wrong_type(field, value):
    with pytest.raises(TypeError):
        setattr(ReplicateConfig(), field, value)


@pytest.mark.parametrize("field", ["replica_num", "nof_replica_num", "dfs_replica_num", "soft_pin_ttl_ms"])
@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_config_refuses_counts_outside_an_unsigned_64_bit_number(field, value):
    with pytest.raises(TypeError):
        setattr(ReplicateConfig(), field, value)


def test_config_refuses_unknown_attributes():
    with pytest.raises(AttributeError):
        ReplicateConfig().replicas = 2


def test_config_has_no_soft_pin_flag_any_more():
    assert not hasattr(ReplicateConfig(), "with_soft_pin")


def test_config_takes_no_arguments():
    with pytest.raises(TypeError):
        ReplicateConfig(2)


def test_config_text_is_one_line_with_the_replica_count():
    config = ReplicateConfig()
    config.replica_num = 7
    text = str(config)
    assert isinstance(text, str) and "7" in text and "\n" not in text


def test_config_text_lists_the_fields_in_order():
    text = str(ReplicateConfig())
    order = ["replica_num", "soft_pin_action", "soft_pin_ttl_ms", "with_hard_pin", "preferred_segments", "data_type"]
    places = [text.index(name) for name in order]
    assert places == sorted(places)
    assert "default" in text


# ----------------------------------------------------------------------------- what writers make of it


def put_with(store, key, **fields):
    config = ReplicateConfig()
    for name, value in fields.items():
        setattr(config, name, value)
    return store.put(key, b"some bytes", config)


def test_two_replicas_with_one_segment_are_best_effort(store, key):
    assert put_with(store, key, replica_num=2) == 0
    assert store.get(key) == b"some bytes"


def test_no_replica_of_any_kind_is_refused(store, key):
    assert put_with(store, key, replica_num=0) == -600
    assert store.is_exist(key) == 0


def test_nof_replicas_are_refused_where_there_are_none(store, key):
    assert put_with(store, key, nof_replica_num=1) == -600


@pytest.mark.differs(
    "there is no DFS tier here, and an unsupported call says so by its own code",
    peer="-1601",
    ours="-1012",
)
def test_dfs_replicas_are_refused_where_there_are_none(side, store, key):
    assert put_with(store, key, dfs_replica_num=1) == side.pick(ours=-1012, peer=-1601)


def test_soft_pin_time_needs_the_enable_action(store, key):
    assert put_with(store, key, soft_pin_ttl_ms=1000) == -600
    assert put_with(store, key, soft_pin_ttl_ms=1000, soft_pin_action=SoftPinAction.ENABLE) == 0


def test_soft_pin_time_above_the_maximum_is_refused(store, key):
    assert put_with(store, key, soft_pin_ttl_ms=2 * 86_400_000, soft_pin_action=SoftPinAction.ENABLE) == -600


def test_soft_pin_without_a_time_uses_the_masters(store, key):
    assert put_with(store, key, soft_pin_action=SoftPinAction.ENABLE) == 0


def test_hard_pin_is_accepted(store, key):
    assert put_with(store, key, with_hard_pin=True) == 0
    assert store.remove(key, True) == 0


def test_unknown_preferred_segments_do_not_fail_the_write(store, new_key):
    assert put_with(store, new_key(), preferred_segment="no.such.node:1") == 0
    assert put_with(store, new_key(), preferred_segments=["no.such.node:1", "another:2"]) == 0


def test_known_preferred_segment_is_used(store, key):
    assert put_with(store, key, preferred_segment=store.get_hostname()) == 0
    assert store.get(key) == b"some bytes"


@pytest.mark.parametrize("writer", ["put", "put_batch", "put_parts", "put_from", "batch_put_from", "upsert"])
def test_allocation_in_one_node_is_asked_of_the_multi_buffer_writer(store, key, registered, writer):
    config = ReplicateConfig()
    config.prefer_alloc_in_same_node = True
    region = registered(4096, b"x" * 4096)
    calls = {
        "put": lambda: store.put(key, b"v", config),
        "put_batch": lambda: store.put_batch([key], [b"v"], config),
        "put_parts": lambda: store.put_parts(key, b"v", config=config),
        "put_from": lambda: store.put_from(key, region.address, 16, config),
        "batch_put_from": lambda: store.batch_put_from([key], [region.address], [16], config)[0],
        "upsert": lambda: store.upsert(key, b"v", config),
    }
    assert calls[writer]() == -600


@pytest.mark.parametrize("data_type", list(ObjectDataType.__members__.values()), ids=lambda t: t.name)
def test_data_type_is_advisory(store, key, data_type):
    assert put_with(store, key, data_type=data_type) == 0
    assert store.get(key) == b"some bytes"


def test_group_ids_must_be_one_per_key(store, new_key):
    one, two = new_key(), new_key()
    assert put_with(store, one, group_ids=["g", "h"]) == -600
    assert put_with(store, one, group_ids=[]) == -600
    assert put_with(store, one, group_ids=["g"]) == 0
    config = ReplicateConfig()
    config.group_ids = ["g"]
    assert store.put_batch([new_key(), two], [b"1", b"2"], config) == -600
    config.group_ids = ["g", ""]
    assert store.put_batch([new_key(), two], [b"1", b"2"], config) == 0


def test_group_membership_cannot_change(store, key):
    assert put_with(store, key, group_ids=["first"]) == 0
    config = ReplicateConfig()
    config.group_ids = ["second"]
    assert store.upsert(key, b"other bytes", config) == -600
    assert store.get(key) == b"some bytes"


def test_one_config_object_serves_many_calls(store, new_key):
    # vLLM assigns the group ids of each request to the same object.
    config = ReplicateConfig()
    for group in ("a", "b", "c"):
        config.group_ids = [group]
        assert store.put(new_key(), group.encode(), config) == 0
        assert config.group_ids == [group]


# ----------------------------------------------------------------------------- descriptors and handles


def test_descriptor_can_be_made_and_filled():
    descriptor = Descriptor()
    descriptor.size = 4096
    descriptor.buffer_address = 0x7000
    descriptor.transport_endpoint = "host:1"
    assert (descriptor.size, descriptor.buffer_address, descriptor.transport_endpoint) == (4096, 0x7000, "host:1")
    assert "4096" in repr(descriptor) and "host:1" in repr(descriptor)


def test_task_response_is_read_only():
    response = QueryTaskResponse()
    assert len(response.id) == len(response.assigned_client) == 2
    assert isinstance(response.message, str)
    for field in ("id", "type", "status", "created_at_ms_epoch", "last_updated_at_ms_epoch", "message"):
        with pytest.raises(AttributeError):
            setattr(response, field, getattr(response, field))


@pytest.mark.parametrize("name", ["BufferHandle", "ReplicaDescriptor", "MemoryDescriptor", "DiskDescriptor"])
def test_results_cannot_be_made_by_the_caller(name):
    with pytest.raises(TypeError):
        getattr(module, name)()


def test_handle_exports_writable_signed_bytes(store, key):
    store.put(key, bytes(range(200)))
    handle = store.get_buffer(key)
    assert isinstance(handle, BufferHandle)
    view = memoryview(handle)
    assert (view.ndim, view.itemsize, view.format, view.readonly, view.nbytes) == (1, 1, "b", False, 200)
    assert handle.size() == len(handle) == 200
    assert bytes(handle) == bytes(range(200))


def test_handle_has_an_address(store, key):
    import ctypes

    store.put(key, b"seen through the address")
    handle = store.get_buffer(key)
    assert ctypes.string_at(handle.ptr(), handle.size()) == b"seen through the address"


def test_handle_outlives_the_object(store, key):
    store.put(key, b"still here")
    handle = store.get_buffer(key)
    assert store.remove(key, True) == 0
    assert bytes(handle) == b"still here"


def test_memoryview_outlives_the_handle(store, key):
    store.put(key, b"kept by the view")
    view = memoryview(store.get_buffer(key))
    assert bytes(view) == b"kept by the view"


def test_parallel_types_have_their_fields():
    axis = module.ParallelAxis()
    assert (axis.kind, axis.rank, axis.size, axis.split_dim, axis.expert_id, axis.stage_id) == ("", 0, 1, None, None, None)
    axis.kind, axis.rank, axis.size, axis.split_dim = "tp", 1, 2, 0
    parallelism = module.TensorParallelism()
    assert list(parallelism.axes) == []
    parallelism.axes = [axis]
    assert [a.kind for a in parallelism.axes] == ["tp"]


def test_read_target_mode_is_checked():
    target = module.ReadTarget()
    assert target.mode == "as_stored" and target.parallelism is None
    target.mode = "FULL"
    assert target.mode == "full"
    with pytest.raises(RuntimeError):
        target.mode = "sideways"
