"""Tensors in the store: whole ones, and the shards of tensor parallelism.

A tensor is stored as its header (`tensor_header`) and its contiguous data. Arrays of numpy are always accepted,
tensors of torch as well; reads give torch tensors when torch can be imported, else numpy arrays. Tensors on a device
are copied to the host first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._native import MooncakeStoreBase, ReplicateConfig
from ..errors import FILE_NOT_FOUND, INVALID_PARAMS, NOT_SUPPORTED, OBJECT_NOT_FOUND
from .arrays import HostTensor, NoLibrary, copied, cut, host_tensor, is_tensor, memory_at, read_own, tensor_of
from .tensor_header import (
    AXIS_KINDS,
    DIMS_MAX,
    HEADER_SIZE,
    SHARD,
    Axis,
    Header,
    MalformedHeader,
    unpack,
)

Key = str | bytes

DEFAULT_CONFIG = ReplicateConfig()


def shard_key(key: Key, rank: int) -> Key:
    """The key of one shard of tensor parallelism."""
    suffix = f"_tp_{rank}"
    return key + suffix.encode() if isinstance(key, bytes) else key + suffix


class TensorMethods(MooncakeStoreBase):
    """Tensor methods of the compatible store. Codes and None as everywhere; `last_error()` says more."""

    # -- whole tensors ---------------------------------------------------------------------------------------------

    def put_tensor(self, key: Key, tensor: Any) -> int:
        """Stores a tensor. 0, or a code: -600 for what is no tensor of a known element type."""
        return self._write(key, tensor, None, self._put_parts)

    def pub_tensor(self, key: Key, tensor: Any, config: ReplicateConfig = DEFAULT_CONFIG) -> int:
        """As `put_tensor`, with a config."""
        return self._write(key, tensor, config, self._put_parts)

    def upsert_tensor(self, key: Key, tensor: Any) -> int:
        """Stores a tensor in the place of what is there. 0, or a code."""
        return self._write(key, tensor, None, self._upsert_parts)

    def upsert_pub_tensor(self, key: Key, tensor: Any, config: ReplicateConfig = DEFAULT_CONFIG) -> int:
        """As `upsert_tensor`, with a config."""
        return self._write(key, tensor, config, self._upsert_parts)

    def batch_put_tensor(self, keys: Sequence[Key], tensors_list: Sequence[Any]) -> list[int]:
        """`put_tensor` for each key; one code per key."""
        return self._write_all(keys, tensors_list, None, self._put_parts)

    def batch_pub_tensor(
        self, keys: Sequence[Key], tensors_list: Sequence[Any], config: ReplicateConfig = DEFAULT_CONFIG
    ) -> list[int]:
        """`pub_tensor` for each key; one code per key."""
        return self._write_all(keys, tensors_list, config, self._put_parts)

    def batch_upsert_tensor(self, keys: Sequence[Key], tensors_list: Sequence[Any]) -> list[int]:
        """`upsert_tensor` for each key; one code per key."""
        return self._write_all(keys, tensors_list, None, self._upsert_parts)

    def batch_upsert_pub_tensor(
        self, keys: Sequence[Key], tensors_list: Sequence[Any], config: ReplicateConfig = DEFAULT_CONFIG
    ) -> list[int]:
        """`upsert_pub_tensor` for each key; one code per key."""
        return self._write_all(keys, tensors_list, config, self._upsert_parts)

    def get_tensor(self, key: Key) -> Any:
        """The tensor in memory of its own, or None."""
        data = self.get(key)
        if not data:
            return None
        return self._owned(key, data)

    def batch_get_tensor(self, keys: Sequence[Key]) -> list[Any]:
        """`get_tensor` for each key."""
        if not keys:
            return []
        found = self.get_batch(keys)
        return [self._owned(key, data) if data else None for key, data in zip(keys, found)]

    # -- tensors that lie in memory as they are stored ---------------------------------------------------------------

    def put_tensor_from(self, key: Key, buffer_ptr: int, size: int) -> int:
        """Stores header and data that lie at `buffer_ptr`; `size` must be exactly theirs."""
        if self._header_at(key, buffer_ptr, size) is None:
            return INVALID_PARAMS
        return self.put_from(key, buffer_ptr, size)

    def upsert_tensor_from(self, key: Key, buffer_ptr: int, size: int) -> int:
        """As `put_tensor_from`, in the place of what is there."""
        if self._header_at(key, buffer_ptr, size) is None:
            return INVALID_PARAMS
        return self.upsert_from(key, buffer_ptr, size)

    def batch_put_tensor_from(self, keys: Sequence[Key], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """`put_tensor_from` for each key; one bad entry refuses all."""
        if not self._headers_are_good(keys, buffer_ptrs, sizes):
            return [INVALID_PARAMS] * len(keys)
        return self.batch_put_from(keys, buffer_ptrs, sizes)

    def batch_upsert_tensor_from(
        self, keys: Sequence[Key], buffer_ptrs: Sequence[int], sizes: Sequence[int]
    ) -> list[int]:
        """`upsert_tensor_from` for each key; one bad entry refuses all."""
        if not self._headers_are_good(keys, buffer_ptrs, sizes):
            return [INVALID_PARAMS] * len(keys)
        return self.batch_upsert_from(keys, buffer_ptrs, sizes)

    def get_tensor_into(self, key: Key, buffer_ptr: int, size: int) -> Any:
        """Receives header and data at `buffer_ptr`; a tensor that aliases the data, or None."""
        return self._alias(key, buffer_ptr, self.get_into(key, buffer_ptr, size))

    def batch_get_tensor_into(self, keys: Sequence[Key], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[Any]:
        """`get_tensor_into` for each key; unequal lengths give -600 for each."""
        if not len(keys) == len(buffer_ptrs) == len(sizes):
            self._unequal("keys, buffer_ptrs and sizes")
            return [INVALID_PARAMS] * len(keys)
        got = self.batch_get_into(keys, buffer_ptrs, sizes)
        return [self._alias(key, pointer, count) for key, pointer, count in zip(keys, buffer_ptrs, got)]

    def get_tensor_into_cuda(self, key: Key, tensor: Any) -> int:
        """Not supported: -1012."""
        return self._refuse(NOT_SUPPORTED, "get_tensor_into_cuda is not there; use get_tensor_into", _text(key))

    def batch_get_tensor_into_cuda(self, keys: Sequence[Key], tensors_list: Sequence[Any]) -> list[int]:
        """Not supported: -1012 for each key."""
        code = self._refuse(NOT_SUPPORTED, "batch_get_tensor_into_cuda is not there; use batch_get_tensor_into")
        return [code] * len(keys)

    # -- shards of tensor parallelism --------------------------------------------------------------------------------

    def put_tensor_with_tp(self, key: Key, tensor: Any, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> int:
        """Stores all `tp_size` shards of the whole tensor as `<key>_tp_<rank>`; `tp_rank` has no meaning."""
        return self._write_shards(key, tensor, None, tp_size, split_dim)

    def pub_tensor_with_tp(
        self,
        key: Key,
        tensor: Any,
        config: ReplicateConfig = DEFAULT_CONFIG,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> int:
        """As `put_tensor_with_tp`, with a config."""
        return self._write_shards(key, tensor, config, tp_size, split_dim)

    def batch_put_tensor_with_tp(
        self,
        base_keys: Sequence[Key],
        tensors_list: Sequence[Any],
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        """`put_tensor_with_tp` for each key; one code per key."""
        return self._write_all_shards(base_keys, tensors_list, None, tp_size, split_dim)

    def batch_pub_tensor_with_tp(
        self,
        base_keys: Sequence[Key],
        tensors_list: Sequence[Any],
        config: ReplicateConfig = DEFAULT_CONFIG,
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        """`pub_tensor_with_tp` for each key; one code per key."""
        return self._write_all_shards(base_keys, tensors_list, config, tp_size, split_dim)

    def put_tensor_with_tp_from(
        self, key: Key, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> int:
        """As `put_tensor_with_tp`, of a whole tensor whose header and data lie at `buffer_ptr`."""
        if tp_size <= 1:
            return self.put_tensor_from(key, buffer_ptr, size)
        tensor = self._tensor_at(key, buffer_ptr, size)
        return INVALID_PARAMS if tensor is None else self._write_shards(key, tensor, None, tp_size, split_dim)

    def batch_put_tensor_with_tp_from(
        self,
        base_keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        tp_rank: int = 0,
        tp_size: int = 1,
        split_dim: int = 0,
    ) -> list[int]:
        """`put_tensor_with_tp_from` for each key; one bad entry refuses all."""
        if tp_size <= 1:
            return self.batch_put_tensor_from(base_keys, buffer_ptrs, sizes)
        if not self._headers_are_good(base_keys, buffer_ptrs, sizes):
            return [INVALID_PARAMS] * len(base_keys)
        return [
            self.put_tensor_with_tp_from(key, pointer, size, tp_rank, tp_size, split_dim)
            for key, pointer, size in zip(base_keys, buffer_ptrs, sizes)
        ]

    def get_tensor_with_tp(self, key: Key, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0) -> Any:
        """The shard `<key>_tp_<tp_rank>`, or the tensor itself for a `tp_size` of 1; None when it is not there."""
        return self.get_tensor(_shard_or_whole(key, tp_rank, tp_size))

    def batch_get_tensor_with_tp(self, base_keys: Sequence[Key], tp_rank: int = 0, tp_size: int = 1) -> list[Any]:
        """`get_tensor_with_tp` for each key."""
        return self.batch_get_tensor([_shard_or_whole(key, tp_rank, tp_size) for key in base_keys])

    def get_tensor_with_tp_into(
        self, key: Key, buffer_ptr: int, size: int, tp_rank: int = 0, tp_size: int = 1, split_dim: int = 0
    ) -> Any:
        """`get_tensor_into` of a shard."""
        return self.get_tensor_into(_shard_or_whole(key, tp_rank, tp_size), buffer_ptr, size)

    def batch_get_tensor_with_tp_into(
        self,
        base_keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        tp_rank: int = 0,
        tp_size: int = 1,
    ) -> list[Any]:
        """`batch_get_tensor_into` of shards."""
        keys = [_shard_or_whole(key, tp_rank, tp_size) for key in base_keys]
        return self.batch_get_tensor_into(keys, buffer_ptrs, sizes)

    # -- files of the package safetensors ----------------------------------------------------------------------------

    def save_tensor_to_safetensor(self, key: Key, file_name: str | None = None) -> int:
        """Writes the tensor to a file (its name defaults to the key). 0, -1100 without such a tensor, -1012
        without the package `safetensors`, -600 when the file cannot be written."""
        save = self._safetensors("save_file", key)
        if save is None:
            return NOT_SUPPORTED
        tensor = self.get_tensor(key)
        if tensor is None:
            return self._refuse(FILE_NOT_FOUND, f"there is no tensor of the key {_text(key)!r}", _text(key))
        name = _text(key)
        try:
            save({name: tensor}, name if file_name is None else str(file_name))
        except Exception as error:
            # Whatever the package raises is its own; the caller gets a code here as everywhere.
            return self._refuse(INVALID_PARAMS, f"the file could not be written: {error}", name)
        return 0

    def load_tensor_from_safetensor(self, key: Key | None = None, file_name: str | None = None) -> Any:
        """Reads the entry `key` (else the first) of a file, stores it under `key` (else the file's name), and
        returns it; None when one of that fails."""
        if file_name is None:
            raise TypeError("load_tensor_from_safetensor() missing required argument 'file_name'")
        load = self._safetensors("load_file", key)
        if load is None:
            return None
        name = str(file_name) if key is None else _text(key)
        try:
            entries = load(str(file_name))
        except Exception as error:
            self._refuse(INVALID_PARAMS, f"the file could not be read: {error}", name)
            return None
        if not entries:
            self._refuse(INVALID_PARAMS, f"the file {file_name!r} has no tensor", name)
            return None
        tensor = entries[name] if name in entries else next(iter(entries.values()))
        return tensor if self.put_tensor(name, tensor) == 0 else None

    def _safetensors(self, function: str, key: Key | None) -> Callable[..., Any] | None:
        import importlib

        from .arrays import torch_or_none

        module = "safetensors.torch" if torch_or_none() is not None else "safetensors.numpy"
        try:
            found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        except ImportError:
            self._refuse(
                NOT_SUPPORTED, "the package 'safetensors' is not installed", None if key is None else _text(key)
            )
            return None
        return found

    # -- how ---------------------------------------------------------------------------------------------------------

    def _put_parts(self, key: Key, parts: tuple[Any, ...], config: ReplicateConfig | None) -> int:
        return self.put_parts(key, *parts) if config is None else self.put_parts(key, *parts, config=config)

    def _upsert_parts(self, key: Key, parts: tuple[Any, ...], config: ReplicateConfig | None) -> int:
        return self.upsert_parts(key, *parts) if config is None else self.upsert_parts(key, *parts, config=config)

    def _write(
        self,
        key: Key,
        tensor: Any,
        config: ReplicateConfig | None,
        write: Callable[[Key, tuple[Any, ...], ReplicateConfig | None], int],
    ) -> int:
        host = self._host_tensor(key, tensor)
        if host is None or not self._config_is_good(key, config):
            return INVALID_PARAMS
        header = Header(host.dtype, host.shape, host.shape)
        return write(key, _parts(header, host), config)

    def _write_all(
        self,
        keys: Sequence[Key],
        tensors: Sequence[Any],
        config: ReplicateConfig | None,
        write: Callable[[Key, tuple[Any, ...], ReplicateConfig | None], int],
    ) -> list[int]:
        if len(keys) != len(tensors):
            self._unequal("keys and tensors_list")
            return [INVALID_PARAMS] * len(keys)
        return [self._write(key, tensor, config, write) for key, tensor in zip(keys, tensors)]

    def _write_shards(self, key: Key, tensor: Any, config: ReplicateConfig | None, tp_size: int, split_dim: int) -> int:
        if tp_size <= 1:
            return self._write(key, tensor, config, self._put_parts)
        if not self._config_is_good(key, config):
            return INVALID_PARAMS
        if not is_tensor(tensor):
            return self._no_tensor(key, tensor)
        shape = tuple(int(extent) for extent in tensor.shape)
        if not 0 <= split_dim < len(shape) or shape[split_dim] % tp_size:
            return self._refuse(
                INVALID_PARAMS,
                f"a tensor of shape {shape} cannot be split evenly into {tp_size} along dimension {split_dim}",
                _text(key),
            )
        extent = shape[split_dim] // tp_size
        for rank in range(tp_size):
            shard = self._host_tensor(key, cut(tensor, split_dim, rank * extent, extent))
            if shard is None:
                return INVALID_PARAMS
            axis = Axis(AXIS_KINDS["tp"], rank, tp_size, split_dim, extent=extent)
            header = Header(shard.dtype, shard.shape, shape, SHARD, (axis,))
            code = self._put_parts(shard_key(key, rank), _parts(header, shard), config)
            if code != 0:
                return code
        return 0

    def _write_all_shards(
        self,
        keys: Sequence[Key],
        tensors: Sequence[Any],
        config: ReplicateConfig | None,
        tp_size: int,
        split_dim: int,
    ) -> list[int]:
        if len(keys) != len(tensors):
            self._unequal("base_keys and tensors_list")
            return [INVALID_PARAMS] * len(keys)
        return [self._write_shards(key, tensor, config, tp_size, split_dim) for key, tensor in zip(keys, tensors)]

    def _host_tensor(self, key: Key, tensor: Any) -> HostTensor | None:
        host = host_tensor(tensor)
        if host is None or len(host.shape) > DIMS_MAX:
            self._no_tensor(key, tensor)
            return None
        return host

    def _no_tensor(self, key: Key, tensor: Any) -> int:
        what = f"{type(tensor).__name__} of {getattr(tensor, 'dtype', 'no element type')}"
        return self._refuse(
            INVALID_PARAMS,
            f"not a tensor that can be stored: {what}; a numpy array or torch tensor of real numbers with at most "
            f"{DIMS_MAX} dimensions is needed",
            _text(key),
        )

    def _config_is_good(self, key: Key, config: ReplicateConfig | None) -> bool:
        if config is None:
            return True
        segments = config.preferred_segments
        if segments and len(segments) != config.replica_num:
            self._refuse(
                INVALID_PARAMS,
                f"preferred_segments names {len(segments)} segments for {config.replica_num} replicas",
                _text(key),
            )
            return False
        return True

    def _unequal(self, what: str) -> int:
        return self._refuse(INVALID_PARAMS, f"{what} have not the same length")

    def _tensor(self, key: Key, data: Any, total: int, memory: Callable[[Header], Any]) -> Any:
        try:
            header = unpack(data, total)
            return tensor_of(header, memory(header))
        except MalformedHeader as error:
            self._refuse(INVALID_PARAMS, f"the object is no tensor: {error}", _text(key), "read")
        except NoLibrary as error:
            self._refuse(NOT_SUPPORTED, str(error), _text(key), "read")
        return None

    def _owned(self, key: Key, data: bytes) -> Any:
        return self._tensor(key, data, len(data), lambda header: copied(data))

    def _alias(self, key: Key, pointer: int, count: int) -> Any:
        """The tensor that has been received at `pointer`."""
        if count < 0:
            return None
        if count == 0:
            self._refuse(OBJECT_NOT_FOUND, "nothing was received", _text(key), "read")
            return None
        head = read_own(pointer, min(count, HEADER_SIZE))
        # The last byte too: the header may lie at the end of what the CPU can read.
        if head is None or read_own(pointer + count - 1, 1) is None:
            self._refuse(NOT_SUPPORTED, f"the memory at {pointer:#x} is not the host's", _text(key), "read")
            return None
        return self._tensor(key, head, count, lambda header: memory_at(pointer + HEADER_SIZE, header.data_size))

    def _header_at(self, key: Key, pointer: int, size: int) -> Header | None:
        head = read_own(pointer, HEADER_SIZE) if size >= HEADER_SIZE else b""
        if head is None:
            self._refuse(INVALID_PARAMS, f"the memory at {pointer:#x} is not the host's or not mapped", _text(key))
            return None
        try:
            return unpack(head, size)
        except MalformedHeader as error:
            self._refuse(INVALID_PARAMS, f"there is no tensor of {size} bytes at {pointer:#x}: {error}", _text(key))
            return None

    def _headers_are_good(self, keys: Sequence[Key], pointers: Sequence[int], sizes: Sequence[int]) -> bool:
        if not len(keys) == len(pointers) == len(sizes):
            self._unequal("keys, buffer_ptrs and sizes")
            return False
        return all(self._header_at(key, pointer, size) is not None for key, pointer, size in zip(keys, pointers, sizes))

    def _tensor_at(self, key: Key, pointer: int, size: int) -> Any:
        """A tensor that aliases header and data at `pointer`, or None."""
        return None if self._header_at(key, pointer, size) is None else self._alias(key, pointer, size)


def _parts(header: Header, host: HostTensor) -> tuple[Any, ...]:
    return (header.pack(), host.bytes()) if host.size else (header.pack(),)


def _shard_or_whole(key: Key, rank: int, size: int) -> Key:
    return key if size <= 1 else shard_key(key, rank)


def _text(key: Key) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


# -- private names that companion modules of the compatible package use ------------------------------------------------


def serialize_tensor(tensor: Any) -> tuple[bytes, int, int, Any]:
    """Header, address and size of the data, and the contiguous tensor that owns it.

    Raises:
        ValueError: It is no tensor that can be stored.
    """
    host = host_tensor(tensor)
    if host is None or len(host.shape) > DIMS_MAX:
        raise ValueError(f"not a tensor that can be stored: {type(tensor).__name__}")
    return Header(host.dtype, host.shape, host.shape).pack(), host.address, host.size, host.owner


def deserialize_tensor(data: bytes) -> Any:
    """The tensor of a stored object, in memory of its own.

    Raises:
        ValueError: The bytes are no stored tensor, or no installed library can hold it.
    """
    try:
        return tensor_of(unpack(data, len(data)), copied(data))
    except NoLibrary as error:
        raise ValueError(str(error)) from None


def tensor_metadata_size() -> int:
    """Bytes of the header."""
    return HEADER_SIZE
