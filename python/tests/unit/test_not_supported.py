"""What is named and not there says so, in its own shape."""

import pytest

import snowskin
from snowskin.mooncake import engine, parallel, store


@pytest.mark.parametrize(
    ("call", "empty"),
    [
        (lambda s: s.create_copy_task("k", ["a"]), lambda code: ((0, 0), code)),
        (lambda s: s.create_move_task("k", "a", "b"), lambda code: ((0, 0), code)),
        (lambda s: s.query_task((1, 2)), lambda code: (None, code)),
        (lambda s: s.mount_segment("f", 1), lambda code: {"ret": code, "segment_ids": []}),
        (
            lambda s: s.allocate_and_mount_segment(1),
            lambda code: {"ret": code, "segment_ids": [], "allocated_size": 0},
        ),
        (lambda s: s.unmount_segment(["1-2"]), lambda code: code),
        (lambda s: s.unmount_and_free_segment(["1-2"]), lambda code: code),
        (lambda s: s.batch_replica_clear(["k"]), lambda code: []),
        (lambda s: s.put_tensor_with_parallelism("k", None, parallelism=object()), lambda code: code),
        (lambda s: s.upsert_tensor_with_parallelism_from("k", 1, 2, writer_partition=object()), lambda code: code),
        (
            lambda s: s.batch_put_tensor_with_parallelism(["a", "b"], [1, 2], [object(), object()]),
            lambda code: [code, code],
        ),
        (lambda s: s.get_tensor_with_parallelism("k", target("shard")), lambda code: None),
        (lambda s: s.batch_get_tensor_with_parallelism(["k"], [target("full")]), lambda code: [None]),
    ],
)
@pytest.mark.parametrize(("is_open", "code"), [(True, -1012), (False, -600)])
def test_methods_answer_in_their_own_shape(call, empty, is_open, code):
    asked = store.MooncakeDistributedStore()
    asked._is_open = is_open
    assert call(asked) == empty(code)
    assert asked.last_error()["code"] == code


def target(mode):
    wanted = parallel.ReadTarget()
    wanted.mode = mode
    return wanted


def test_malformed_parallel_calls_are_600():
    asked = store.MooncakeDistributedStore()
    asked._is_open = True
    both = {"parallelism": object(), "writer_partition": object()}
    assert asked.put_tensor_with_parallelism("k", None, **both) == -600
    assert asked.batch_put_tensor_with_parallelism(["a", "b"], [1]) == [-600, -600]
    assert asked.batch_get_tensor_with_parallelism(["a"], []) == [-600]
    assert asked.batch_get_tensor_with_parallelism_into(["a"], [1], []) == [-600]


def test_requests_of_parallel_calls():
    wanted = parallel.ReadTarget()
    assert (wanted.mode, wanted.parallelism) == ("as_stored", None)
    wanted.mode = "SHARD"
    assert wanted.mode == "shard"
    with pytest.raises(RuntimeError):
        wanted.mode = "half"
    axes = parallel.TensorParallelism()
    axes.axes.append(1)
    assert axes.axes == []
    axes.axes = [parallel.ParallelAxis()]
    assert (axes.axes[0].kind, axes.axes[0].size, axes.axes[0].split_dim) == ("", 1, None)


def test_special_stores_raise():
    with pytest.raises(snowskin.NotSupported):
        store.EngramStore(0, store.EngramStoreConfig())
    with pytest.raises(snowskin.NotSupported):
        store.get_alloc_func_addr()
    assert store.MooncakeDistributedNoFRegister().real_register("n", 1, "a", 2, 3, 4, "m") == -1012


def test_remote_calls_of_the_engine_module():
    interface = engine.create_rpc_client()
    assert isinstance(interface, engine.CoroRPCInterface)
    assert interface.initialize() is False and interface.send_data("a", b"v") == -1012
    assert engine.SharedSegment.supported() is False
    with pytest.raises(snowskin.NotSupported):
        engine.SharedSegment.create("n", 1, 1, 0)
