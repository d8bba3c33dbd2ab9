"""Tensors: the header, the plain forms and the names of tensor-parallel shards.

Runs with torch where it can be imported. Ours also takes numpy arrays, so that these rows need no torch.
"""

import struct

import numpy as np
import pytest

from mooncake import store as module
from mooncake.store import ReplicateConfig


try:
    import torch
except ImportError:
    torch = None

HEADER = 304
MAGIC = 0x4D4F4F4E
CODES = {
    "float32": 0, "float64": 1, "int8": 2, "uint8": 3, "int16": 4, "uint16": 5, "int32": 6, "uint32": 7,
    "int64": 8, "uint64": 9, "bool": 10, "float16": 11,
}


@pytest.fixture(params=["numpy", "torch"])
def kind(request, side):
    if request.param == "torch" and torch is None:
        pytest.skip("torch is not installed")
    if request.param == "numpy" and side.is_peer:
        pytest.skip("the released package takes torch tensors only")
    return request.param


@pytest.fixture
def tensor(kind):
    """Makes a tensor with values that tell their place."""

    def make(shape, dtype="float32", seed=0):
        count = int(np.prod(shape, dtype=np.int64)) if shape else 1
        array = (np.arange(count) + seed * 100).astype(dtype).reshape(shape)
        return torch.from_numpy(array.copy()) if kind == "torch" else array

    return make


def values(tensor):
    return np.asarray(tensor)


def same(tensor, wanted):
    found, wanted = values(tensor), values(wanted)
    return found.dtype == wanted.dtype and found.shape == wanted.shape and (found == wanted).all()


def header(data):
    magic, version, size, dtype, ndim, layout, flags, offset, length = struct.unpack_from("<IHHiiIIQQ", data)
    return {
        "magic": magic, "version": version, "size": size, "dtype": dtype, "ndim": ndim, "layout": layout,
        "flags": flags, "offset": offset, "bytes": length,
        "global": list(struct.unpack_from("<8q", data, 40)), "local": list(struct.unpack_from("<8q", data, 104)),
        "axes": struct.unpack_from("<I", data, 168)[0],
    }


# ----------------------------------------------------------------------------- format


def test_a_tensor_is_a_header_and_its_bytes(store, key, tensor):
    value = tensor((2, 3))
    assert store.put_tensor(key, value) == 0
    data = store.get(key)
    assert len(data) == HEADER + 24 and data[:4].hex() == "4e4f4f4d"
    told = header(data)
    assert told == {
        "magic": MAGIC, "version": 1, "size": HEADER, "dtype": 0, "ndim": 2, "layout": 0, "flags": 0,
        "offset": HEADER, "bytes": 24, "global": [2, 3] + [-1] * 6, "local": [2, 3] + [-1] * 6, "axes": 0,
    }
    assert data[HEADER:] == values(value).tobytes()


@pytest.mark.parametrize("dtype", CODES)
def test_every_element_type_has_its_code(store, key, tensor, dtype):
    value = tensor((3, 2), dtype)
    assert store.put_tensor(key, value) == 0
    assert header(store.get(key))["dtype"] == CODES[dtype]
    assert same(store.get_tensor(key), value)


@pytest.mark.parametrize("shape", [(7,), (2, 3), (1, 1, 1), (2, 3, 4, 5), (1, 2, 1, 2, 1, 2, 1, 2)])
def test_shapes_round_trip(store, key, tensor, shape):
    value = tensor(shape)
    assert store.put_tensor(key, value) == 0
    assert same(store.get_tensor(key), value)


def test_a_scalar_comes_back_as_one_element(store, key, tensor):
    assert store.put_tensor(key, tensor(())) == 0
    assert values(store.get_tensor(key)).shape == (1,)


def test_an_empty_tensor_keeps_its_shape(store, key, tensor):
    assert store.put_tensor(key, tensor((0, 4))) == 0
    assert store.get_size(key) == HEADER
    assert values(store.get_tensor(key)).shape == (0, 4)


def test_a_transposed_tensor_is_stored_in_its_own_order(store, key, tensor):
    value = tensor((3, 5)).T
    assert store.put_tensor(key, value) == 0
    assert same(store.get_tensor(key), value)


def test_bfloat16_round_trips(store, key):
    if torch is None:
        pytest.skip("torch is not installed")
    value = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    assert store.put_tensor(key, value) == 0
    assert header(store.get(key))["dtype"] == 12
    assert torch.equal(store.get_tensor(key), value)


def test_complex_and_nine_dimensional_tensors_are_refused(store, key, tensor):
    assert store.put_tensor(key, tensor((2,), "complex64")) == -600
    assert store.put_tensor(key, tensor((1,) * 9)) == -600
    assert store.is_exist(key) == 0


@pytest.mark.parametrize("value", [b"bytes", "text", 3, None])
def test_what_is_no_tensor_is_refused(store, key, value):
    assert store.put_tensor(key, value) == -600


# ----------------------------------------------------------------------------- plain forms


def test_a_missing_tensor_is_none(store, new_key):
    assert store.get_tensor(new_key()) is None
    assert store.batch_get_tensor([new_key()]) == [None]


def test_a_value_that_is_no_tensor_is_none(store, key):
    store.put(key, b"not a tensor" * 50)
    assert store.get_tensor(key) is None


@pytest.mark.parametrize("form", ["put_tensor", "pub_tensor", "upsert_tensor", "upsert_pub_tensor"])
def test_every_writer_of_one_tensor(store, new_key, tensor, form):
    value, name = tensor((4, 2)), new_key()
    config = [ReplicateConfig()] if "pub" in form else []
    assert getattr(store, form)(name, value, *config) == 0
    assert same(store.get_tensor(name), value)
    other = tensor((4, 2), seed=1)
    assert getattr(store, form)(name, other, *config) == 0
    assert same(store.get_tensor(name), other if "upsert" in form else value)


@pytest.mark.parametrize("form", ["batch_put_tensor", "batch_pub_tensor", "batch_upsert_tensor", "batch_upsert_pub_tensor"])
def test_every_writer_of_many_tensors(store, new_key, tensor, form):
    keys = [new_key(str(i)) for i in range(3)]
    several = [tensor((2, 2), seed=i) for i in range(3)]
    config = [ReplicateConfig()] if "pub" in form else []
    write = getattr(store, form)
    assert write(keys, several, *config) == [0, 0, 0]
    found = store.batch_get_tensor(keys)
    assert all(same(f, w) for f, w in zip(found, several))
    assert write(keys, several[:2], *config) == [-600] * 3
    assert list(write([], [], *config)) == []
    bad = new_key("bad")
    codes = write([bad, new_key("good")], [b"no tensor", several[0]], *config)
    assert codes[0] == -600 and codes[1] == 0


def test_preferred_segments_must_be_one_per_replica(store, key, tensor):
    config = ReplicateConfig()
    config.preferred_segments = ["a:1", "b:2"]
    assert store.pub_tensor(key, tensor((2,)), config) == -600


def object_bytes(store, new_key, tensor, value):
    """Header and data of a tensor, as the store lays them out."""
    name = new_key("object")
    assert store.put_tensor(name, value) == 0
    return store.get(name)


@pytest.mark.parametrize("form", ["put_tensor_from", "upsert_tensor_from"])
def test_a_tensor_object_from_memory(store, new_key, tensor, registered, form):
    value = tensor((8, 8))
    data = object_bytes(store, new_key, tensor, value)
    region, name = registered(4096, data), new_key()
    assert getattr(store, form)(name, region.address, len(data)) == 0
    assert same(store.get_tensor(name), value)
    assert getattr(store, form)(new_key(), region.address, len(data) - 1) == -600
    assert getattr(store, "batch_" + form)([new_key()], [region.address], [len(data)]) == [0]
    assert getattr(store, "batch_" + form)(
        [new_key(), new_key()], [region.address] * 2, [len(data), len(data) - 4]
    ) == [-600, -600]


def test_a_tensor_into_memory_aliases_it(store, key, tensor, registered):
    value = tensor((8, 8))
    store.put_tensor(key, value)
    region = registered(4096)
    found = store.get_tensor_into(key, region.address, 4096)
    assert same(found, value)
    region[HEADER : HEADER + 4] = struct.pack("<f", 123.0)
    assert values(found).reshape(-1)[0] == 123.0


def test_tensors_into_memory_too_small_or_missing(store, key, tensor, registered):
    region = registered(4096)
    assert store.get_tensor_into(key, region.address, 4096) is None
    store.put_tensor(key, tensor((8, 8)))
    assert store.get_tensor_into(key, region.address, HEADER + 10) is None


def test_many_tensors_into_memory(store, new_key, tensor, registered):
    keys, several = [new_key("a"), new_key("b")], [tensor((4,)), tensor((5,), seed=1)]
    store.batch_put_tensor(keys, several)
    region = registered(8192)
    addresses = [region.address, region.address + 4096]
    found = store.batch_get_tensor_into(keys + [new_key("missing")], addresses + [region.address + 2048], [1024] * 3)
    assert same(found[0], several[0]) and same(found[1], several[1]) and found[2] is None
    assert store.batch_get_tensor_into(keys, addresses[:1], [1024]) == [-600, -600]


def test_cuda_forms_are_refused_without_cuda(store, key, tensor):
    assert store.get_tensor_into_cuda(key, tensor((2,))) in (-600, -1012)
    assert store.batch_get_tensor_into_cuda([key], [tensor((2,))]) in ([-600], [-1012])


# ----------------------------------------------------------------------------- tensor-parallel names


def test_a_tensor_is_stored_as_shards_of_all_ranks(store, new_key, tensor):
    value, base = tensor((8, 6)), new_key()
    assert store.put_tensor_with_tp(base, value, tp_rank=0, tp_size=2, split_dim=1) == 0
    assert store.is_exist(base) == 0
    assert store.batch_is_exist([f"{base}_tp_0", f"{base}_tp_1", f"{base}_tp_2"]) == [1, 1, 0]
    for rank in range(2):
        shard = store.get_tensor_with_tp(base, tp_rank=rank, tp_size=2, split_dim=1)
        assert (values(shard) == values(value)[:, rank * 3 : rank * 3 + 3]).all()
    shards = store.batch_get_tensor_with_tp([base], tp_rank=1, tp_size=2)
    assert (values(shards[0]) == values(value)[:, 3:]).all()


def test_one_rank_is_the_plain_form(store, new_key, tensor):
    value, base = tensor((4, 4)), new_key()
    assert store.put_tensor_with_tp(base, value) == 0
    assert store.is_exist(base) == 1
    assert same(store.get_tensor_with_tp(base), value)


def test_uneven_splits_are_refused(store, key, tensor):
    assert store.put_tensor_with_tp(key, tensor((7, 3)), tp_size=2, split_dim=0) == -600


@pytest.mark.parametrize("form", ["batch_put_tensor_with_tp", "batch_pub_tensor_with_tp"])
def test_batches_of_shards(store, new_key, tensor, form):
    bases, several = [new_key("a"), new_key("b")], [tensor((4, 2)), tensor((2, 2), seed=1)]
    assert getattr(store, form)(base_keys=bases, tensors_list=several, tp_rank=0, tp_size=2, split_dim=0) == [0, 0]
    found = store.batch_get_tensor_with_tp(base_keys=bases, tp_rank=1, tp_size=2)
    assert (values(found[0]) == values(several[0])[2:]).all()
    assert (values(found[1]) == values(several[1])[1:]).all()


def test_publishing_shards_takes_a_config(store, key, tensor):
    assert store.pub_tensor_with_tp(key, tensor((4,)), config=ReplicateConfig(), tp_rank=0, tp_size=2, split_dim=0) == 0
    assert store.is_exist(f"{key}_tp_1") == 1


def test_shards_into_memory(store, new_key, tensor, registered):
    value, base = tensor((4, 2)), new_key()
    store.put_tensor_with_tp(base, value, tp_size=2)
    region = registered(8192)
    found = store.get_tensor_with_tp_into(base, region.address, 1024, tp_rank=1, tp_size=2)
    assert (values(found) == values(value)[2:]).all()
    found = store.batch_get_tensor_with_tp_into([base], [region.address + 4096], [1024], tp_rank=0, tp_size=2)
    assert (values(found[0]) == values(value)[:2]).all()


def test_shards_from_memory(store, new_key, tensor, registered):
    value, base = tensor((4, 2)), new_key()
    data = object_bytes(store, new_key, tensor, value)
    region = registered(4096, data)
    assert store.put_tensor_with_tp_from(base, region.address, len(data), tp_rank=0, tp_size=2, split_dim=0) == 0
    assert (values(store.get_tensor_with_tp(base, tp_rank=1, tp_size=2)) == values(value)[2:]).all()


# ----------------------------------------------------------------------------- niche forms


def parallelism(*axes):
    """A TensorParallelism of (kind, rank, size, further fields) each."""
    made = module.TensorParallelism()
    listed = []
    for kind, rank, size, fields in axes:
        axis = module.ParallelAxis()
        axis.kind, axis.rank, axis.size = kind, rank, size
        for name, value in fields.items():
            setattr(axis, name, value)
        listed.append(axis)
    made.axes = listed
    return made


def test_a_tensor_without_parallelism_is_stored_as_it_is(store, new_key, tensor):
    value, names = tensor((4, 2)), [new_key(str(i)) for i in range(3)]
    assert store.put_tensor_with_parallelism(names[0], value) == 0
    assert store.batch_put_tensor_with_parallelism([names[1]], [value]) == [0]
    assert store.upsert_tensor_with_parallelism(names[2], value) == 0
    assert all(same(store.get_tensor_with_parallelism(n), value) for n in names)
    assert all(same(v, value) for v in store.batch_get_tensor_with_parallelism(names))


@pytest.mark.differs(
    "one product's weight synchronisation; no serving engine calls it",
    peer='shards and a manifest',
    ours="-1012 and None; the plain form, without parallelism, is there",
)
def test_one_axis_stores_the_local_shard_and_a_manifest(side, store, new_key, tensor):
    value, name = tensor((4, 6)), new_key()
    if not side.is_peer:
        axis = parallelism(("tp", 0, 2, {"split_dim": 1}))
        assert store.put_tensor_with_parallelism(name, value, parallelism=axis) == -1012
        target = module.ReadTarget()
        target.mode = "shard"
        target.parallelism = axis
        assert store.get_tensor_with_parallelism(name, target) is None
        return
    for rank in range(2):
        shard = value[:, rank * 3 : rank * 3 + 3]
        axis = parallelism(("tp", rank, 2, {"split_dim": 1}))
        assert store.put_tensor_with_parallelism(name, shard, parallelism=axis) == 0
    assert store.batch_is_exist([f"{name}_tp_0", f"{name}_tp_1", f"{name}__parallelism_manifest", name]) == [1, 1, 1, 0]
    assert store.get_size(f"{name}__parallelism_manifest") == 96
    target = module.ReadTarget()
    target.mode = "shard"
    target.parallelism = parallelism(("tp", 1, 2, {"split_dim": 1}))
    assert (values(store.get_tensor_with_parallelism(name, target)) == values(value)[:, 3:]).all()
    target = module.ReadTarget()
    target.mode = "full"
    target.parallelism = parallelism(("tp", 0, 2, {"split_dim": 1}))
    assert same(store.get_tensor_with_parallelism(name, target), value)


@pytest.mark.differs(
    "one product's weight synchronisation; no serving engine calls it",
    peer='partitions and a manifest',
    ours="-1012 and None; the plain form, without parallelism, is there",
)
def test_a_writers_partition_is_cut_from_the_full_tensor(side, store, new_key, tensor):
    value, name = tensor((4, 6)), new_key()

    class Partition:
        def __init__(self, rank):
            self.rank, self.size, self.split_dim = rank, 2, 0

    if not side.is_peer:
        assert store.put_tensor_with_parallelism(name, value, writer_partition=Partition(0)) == -1012
        return
    for rank in range(2):
        assert store.put_tensor_with_parallelism(name, value, writer_partition=Partition(rank)) == 0
    assert store.batch_is_exist(
        [f"{name}__writer_0of2_sd0", f"{name}__writer_1of2_sd0", f"{name}__writer_manifest"]
    ) == [1, 1, 1]
    target = module.ReadTarget()
    target.mode = "full"
    assert same(store.get_tensor_with_parallelism(name, target), value)


def test_parallelism_and_writers_partition_exclude_each_other(store, key, tensor):
    class Partition:
        rank, size, split_dim = 0, 2, 0

    axis = parallelism(("tp", 0, 2, {"split_dim": 0}))
    code = store.put_tensor_with_parallelism(key, tensor((4,)), parallelism=axis, writer_partition=Partition())
    assert code == -600


@pytest.mark.parametrize(
    "axes",
    [
        [("tp", 2, 2, {"split_dim": 0})],
        [("tp", 0, 2, {})],
        [("dp", 0, 2, {"split_dim": 0})],
        [("ep", 0, 2, {})],
        [("tp", 0, 2, {"split_dim": 0}), ("tp", 0, 2, {"split_dim": 0})],
        [("other", 0, 1, {})],
    ],
)
@pytest.mark.differs(
    "one product's weight synchronisation; no serving engine calls it",
    peer='-600',
    ours="-1012 and None; the plain form, without parallelism, is there",
)
def test_axes_that_make_no_sense_are_refused(side, store, key, tensor, axes):
    code = store.put_tensor_with_parallelism(key, tensor((4, 2)), parallelism=parallelism(*axes))
    assert code == side.pick(ours=-1012, peer=-600)


def test_safetensors_round_trip(side, store, new_key, tensor, tmp_path):
    pytest.importorskip("safetensors")
    value, name = tensor((3, 4)), new_key()
    store.put_tensor(name, value)
    path = str(tmp_path / "one.safetensors")
    assert store.save_tensor_to_safetensor(name, path) == 0
    assert store.save_tensor_to_safetensor(new_key("missing"), path) == -1100
    other = new_key("loaded")
    assert same(store.load_tensor_from_safetensor(other, path), value)
    assert same(store.get_tensor(other), value)


# ----------------------------------------------------------------------------- private helpers of other modules


def test_serialisation_gives_header_address_and_owner(tensor):
    value = tensor((2, 3))
    head, address, length, owner = module._serialize_tensor(value)
    assert module._tensor_metadata_size() == HEADER == len(head)
    import ctypes

    assert length == 24 and ctypes.string_at(address, length) == values(value).tobytes()
    assert owner is not None
    assert same(module._deserialize_tensor(bytes(head) + values(value).tobytes()), value)


def test_serialisation_refuses_what_it_cannot_read(tensor):
    with pytest.raises(ValueError):
        module._serialize_tensor("text")
    for data in (b"", b"short", bytes(HEADER), bytes(400)):
        with pytest.raises(ValueError):
            module._deserialize_tensor(data)


def test_a_damaged_header_is_not_a_tensor(store, new_key, tensor):
    data = bytearray(object_bytes(store, new_key, tensor, tensor((2, 3))))
    for place, change in ((0, 1), (4, 1), (6, 1), (8, 99), (32, 1), (104, 1)):
        broken, name = bytearray(data), new_key(str(place))
        broken[place] = (broken[place] + change) & 0xFF
        assert store.put(name, bytes(broken)) == 0
        assert store.get_tensor(name) is None, f"byte {place} changed"


