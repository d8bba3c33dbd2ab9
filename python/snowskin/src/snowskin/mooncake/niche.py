"""What the compatible interface names and this pool does not do (yet): each answers -1012 in its own return shape.

The class stands behind the native one in the order of look-up, so a method that the native module learns takes the
place of the one here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._native import ReplicateConfig
from ..errors import INVALID_PARAMS, NOT_SUPPORTED
from .tensors import DEFAULT_CONFIG

Key = str | bytes
Uuid = tuple[int, int]


class NotYet:
    """Methods that answer -1012 and say so in `last_error()`; -600 while the store is not open."""

    _is_open = False

    def _not_yet(self, what: str) -> int:
        if not self._is_open:
            return self._invalid(f"{what}: the store is not set up")
        code: int = self._refuse(NOT_SUPPORTED, f"{what} is not supported")  # type: ignore[attr-defined]
        return code

    def _invalid(self, message: str) -> int:
        code: int = self._refuse(INVALID_PARAMS, message)  # type: ignore[attr-defined]
        return code

    # -- descriptors, copies and moves -------------------------------------------------------------------------------

    def get_replica_desc(self, key: Key) -> list[Any]:
        """The replicas of one object; empty when it is not there."""
        found: dict[Any, list[Any]] = self.batch_get_replica_desc([key])  # type: ignore[attr-defined]
        return next(iter(found.values()), [])

    def batch_replica_clear(self, keys: Sequence[Key], segment_name: str = "") -> list[Key]:
        """Not supported: clears nothing, so the list of cleared keys is empty."""
        self._not_yet("batch_replica_clear")
        return []

    def create_copy_task(self, key: Key, targets: Sequence[str]) -> tuple[Uuid, int]:
        """Not supported: `((0, 0), -1012)`."""
        return (0, 0), self._not_yet("copying a replica (create_copy_task)")

    def create_move_task(self, key: Key, source: str, target: str) -> tuple[Uuid, int]:
        """Not supported: `((0, 0), -1012)`."""
        return (0, 0), self._not_yet("moving a replica (create_move_task)")

    def query_task(self, task_id: Uuid) -> tuple[Any, int]:
        """Not supported: `(None, -1012)`."""
        if len(task_id) != 2 or not all(isinstance(half, int) for half in task_id):
            raise TypeError("query_task(): argument 'task_id' must be a pair of int")
        return None, self._not_yet("query_task")

    def get_offload_rpc_read_count(self) -> int:
        """Reads that this client served from an SSD: there are none."""
        return 0

    # -- segments ----------------------------------------------------------------------------------------------------

    def mount_segment(
        self, path: str, size: int, offset: int = 0, protocol: str = "tcp", location: str = ""
    ) -> dict[str, Any]:
        """Not supported: `ret` is -1012. Lend memory with `global_segment_size` of `setup`."""
        return {"ret": self._not_yet("mount_segment"), "segment_ids": []}

    def unmount_segment(self, segment_ids: Sequence[str], grace_period_seconds: int = 0) -> int:
        """Not supported: -1012."""
        return self._not_yet("unmount_segment")

    def allocate_and_mount_segment(self, size: int, protocol: str = "tcp", location: str = "") -> dict[str, Any]:
        """Not supported: `ret` is -1012. Lend memory with `global_segment_size` of `setup`."""
        return {"ret": self._not_yet("allocate_and_mount_segment"), "segment_ids": [], "allocated_size": 0}

    def unmount_and_free_segment(self, segment_ids: Sequence[str], grace_period_seconds: int = 0) -> int:
        """Not supported: -1012."""
        return self._not_yet("unmount_and_free_segment")

    def unmount_local_disk_segment(self, grace_period_seconds: int = 0) -> int:
        """0: no local disk serves the pool, so there is nothing to take away."""
        return 0

    # -- unified parallel tensor calls -------------------------------------------------------------------------------
    #
    # Without a partition they are the plain tensor methods, and work; with one they are not supported.

    def put_tensor_with_parallelism(
        self,
        key: Key,
        tensor: Any,
        parallelism: Any = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partition: Any = None,
    ) -> int:
        """`pub_tensor` without a partition, else -1012."""
        return self._whole(
            "put_tensor_with_parallelism", parallelism, writer_partition, "pub_tensor", key, tensor, config
        )

    def upsert_tensor_with_parallelism(
        self,
        key: Key,
        tensor: Any,
        parallelism: Any = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partition: Any = None,
    ) -> int:
        """`upsert_pub_tensor` without a partition, else -1012."""
        return self._whole(
            "upsert_tensor_with_parallelism", parallelism, writer_partition, "upsert_pub_tensor", key, tensor, config
        )

    def put_tensor_with_parallelism_from(
        self,
        key: Key,
        buffer_ptr: int,
        size: int,
        parallelism: Any = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partition: Any = None,
    ) -> int:
        """`put_tensor_from` without a partition, else -1012."""
        return self._whole(
            "put_tensor_with_parallelism_from", parallelism, writer_partition, "put_tensor_from", key, buffer_ptr, size
        )

    def upsert_tensor_with_parallelism_from(
        self,
        key: Key,
        buffer_ptr: int,
        size: int,
        parallelism: Any = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partition: Any = None,
    ) -> int:
        """`upsert_tensor_from` without a partition, else -1012."""
        return self._whole(
            "upsert_tensor_with_parallelism_from",
            parallelism,
            writer_partition,
            "upsert_tensor_from",
            key,
            buffer_ptr,
            size,
        )

    def batch_put_tensor_with_parallelism(
        self,
        keys: Sequence[Key],
        tensors_list: Sequence[Any],
        parallelisms: Sequence[Any] | None = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partitions: Sequence[Any] | None = None,
    ) -> list[int]:
        """`put_tensor_with_parallelism` for each key."""
        return self._each("put_tensor_with_parallelism", keys, (tensors_list,), parallelisms, config, writer_partitions)

    def batch_upsert_tensor_with_parallelism(
        self,
        keys: Sequence[Key],
        tensors_list: Sequence[Any],
        parallelisms: Sequence[Any] | None = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partitions: Sequence[Any] | None = None,
    ) -> list[int]:
        """`upsert_tensor_with_parallelism` for each key."""
        return self._each(
            "upsert_tensor_with_parallelism", keys, (tensors_list,), parallelisms, config, writer_partitions
        )

    def batch_put_tensor_with_parallelism_from(
        self,
        keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        parallelisms: Sequence[Any] | None = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partitions: Sequence[Any] | None = None,
    ) -> list[int]:
        """`put_tensor_with_parallelism_from` for each key."""
        return self._each(
            "put_tensor_with_parallelism_from", keys, (buffer_ptrs, sizes), parallelisms, config, writer_partitions
        )

    def batch_upsert_tensor_with_parallelism_from(
        self,
        keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        parallelisms: Sequence[Any] | None = None,
        config: ReplicateConfig = DEFAULT_CONFIG,
        writer_partitions: Sequence[Any] | None = None,
    ) -> list[int]:
        """`upsert_tensor_with_parallelism_from` for each key."""
        return self._each(
            "upsert_tensor_with_parallelism_from", keys, (buffer_ptrs, sizes), parallelisms, config, writer_partitions
        )

    def get_tensor_with_parallelism(self, key: Key, target: Any = None) -> Any:
        """`get_tensor` as stored, else None (-1012)."""
        return self._read_whole("get_tensor_with_parallelism", target, "get_tensor", key)

    def get_tensor_with_parallelism_into(self, key: Key, buffer_ptr: int, size: int, target: Any = None) -> Any:
        """`get_tensor_into` as stored, else None (-1012)."""
        return self._read_whole("get_tensor_with_parallelism_into", target, "get_tensor_into", key, buffer_ptr, size)

    def batch_get_tensor_with_parallelism(self, keys: Sequence[Key], targets: Sequence[Any] | None = None) -> list[Any]:
        """`get_tensor_with_parallelism` for each key."""
        if targets is not None and len(targets) != len(keys):
            return [self._invalid("keys and targets have not the same length")] * len(keys)
        wanted = targets or [None] * len(keys)
        return [self.get_tensor_with_parallelism(key, target) for key, target in zip(keys, wanted)]

    def batch_get_tensor_with_parallelism_into(
        self,
        keys: Sequence[Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        targets: Sequence[Any] | None = None,
    ) -> list[Any]:
        """`get_tensor_with_parallelism_into` for each key."""
        if not len(keys) == len(buffer_ptrs) == len(sizes) or (targets is not None and len(targets) != len(keys)):
            return [self._invalid("keys, buffer_ptrs, sizes and targets have not the same length")] * len(keys)
        wanted = targets or [None] * len(keys)
        return [
            self.get_tensor_with_parallelism_into(key, pointer, size, target)
            for key, pointer, size, target in zip(keys, buffer_ptrs, sizes, wanted)
        ]

    def _whole(self, name: str, parallelism: Any, partition: Any, plain: str, *args: Any) -> int:
        if parallelism is not None and partition is not None:
            return self._invalid(f"{name} takes a parallelism or a writer partition, not both")
        if parallelism is not None or partition is not None:
            return self._not_yet(f"{name} with a partition")
        code: int = getattr(self, plain)(*args)
        return code

    def _each(
        self,
        name: str,
        keys: Sequence[Key],
        columns: tuple[Sequence[Any], ...],
        parallelisms: Sequence[Any] | None,
        config: ReplicateConfig,
        partitions: Sequence[Any] | None,
    ) -> list[int]:
        optional = [column for column in (parallelisms, partitions) if column is not None]
        if any(len(column) != len(keys) for column in (*columns, *optional)):
            return [self._invalid(f"batch_{name} was given lists of different lengths")] * len(keys)
        one = getattr(self, name)
        none = [None] * len(keys)
        rows = zip(keys, *columns)
        return [
            one(*row, parallelism=parallelism, config=config, writer_partition=partition)
            for row, parallelism, partition in zip(rows, parallelisms or none, partitions or none)
        ]

    def _read_whole(self, name: str, target: Any, plain: str, *args: Any) -> Any:
        if target is not None and not _is_as_stored(target):
            self._not_yet(f"{name} of a shard or of a whole that is put together")
            return None
        return getattr(self, plain)(*args)


def _is_as_stored(target: Any) -> bool:
    mode = str(getattr(target, "mode", "as_stored")).lower()
    return mode == "as_stored" and getattr(target, "parallelism", None) is None
