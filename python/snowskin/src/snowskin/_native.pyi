"""The native module. `Store` and the classes of `snowskin.mooncake` are what to use; these are what they stand on."""

from collections.abc import Sequence
from typing import Any, ClassVar, final

from typing_extensions import Buffer

__version__: str

_Key = str | bytes
_Uuid = tuple[int, int]

class NativeError(Exception):
    """A failed call of `Pool`."""

    code: int
    name: str
    message: str
    key: _Key | None
    peer: str | None
    stage: str | None
    retry: str
    detail: dict[str, int]

@final
class Pool:
    """The byte paths of `snowskin.Store`. Single calls raise `NativeError`; batches have a value or one per key."""

    def __new__(cls, settings: dict[str, Any]) -> Pool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def hostname(self) -> str: ...
    def put(self, key: _Key, data: Buffer, replace: bool = False, timeout: float | None = None) -> None: ...
    def put_batch(
        self, keys: Sequence[_Key], datas: Sequence[Buffer], replace: bool = False, timeout: float | None = None
    ) -> list[NativeError | None]: ...
    def get(self, key: _Key, timeout: float | None = None) -> bytes: ...
    def get_into(self, key: _Key, buffer: Buffer, offset: int = 0, timeout: float | None = None) -> int: ...
    def get_view(self, key: _Key, timeout: float | None = None) -> BufferHandle: ...
    def get_batch(self, keys: Sequence[_Key], timeout: float | None = None) -> list[bytes | NativeError]: ...
    def get_into_batch(
        self, keys: Sequence[_Key], buffers: Sequence[Buffer], timeout: float | None = None
    ) -> list[int | NativeError]: ...
    def exists(self, keys: Sequence[_Key], timeout: float | None = None) -> list[bool]: ...
    def size(self, key: _Key, timeout: float | None = None) -> int: ...
    def remove(self, key: _Key, force: bool = False, timeout: float | None = None) -> None: ...
    def remove_batch(
        self, keys: Sequence[_Key], force: bool = False, timeout: float | None = None
    ) -> list[NativeError | None]: ...
    def remove_all(self, force: bool = False, timeout: float | None = None) -> int: ...
    def remove_by_prefix(self, prefix: _Key, force: bool = False, timeout: float | None = None) -> int: ...
    def remove_by_regex(self, pattern: str, force: bool = False, timeout: float | None = None) -> int: ...
    def list(
        self, prefix: _Key | None = None, limit: int = 1000, cursor: Any = None, timeout: float | None = None
    ) -> tuple[list[_Key], Any]: ...
    def register(self, buffer: Buffer) -> None: ...
    def unregister(self, buffer: Buffer) -> None: ...
    def stat(self, timeout: float | None = None) -> dict[str, Any]: ...
    def counters(self) -> dict[str, int]: ...
    def last_error(self) -> dict[str, Any] | None: ...
    def close(self) -> None: ...

class MooncakeStoreBase:
    """The byte paths of `mooncake.store.MooncakeDistributedStore`: codes, never an exception but `TypeError`.

    Addresses are integers; sizes are bytes; a code below 0 is a failure and `last_error()` says more. Lists have one
    entry per key. Before `_open` and after `close` everything answers -600 or its empty form.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any: ...
    def _open(self, settings: dict[str, Any]) -> int: ...
    def _refuse(self, code: int, message: str, key: str | None = None, stage: str = "session") -> int: ...
    def _describe(self) -> dict[str, Any]: ...
    def close(self) -> int: ...
    def health_check(self) -> int: ...
    def get_hostname(self) -> str: ...
    def last_error(self) -> dict[str, Any] | None: ...
    def counters(self) -> dict[str, int]: ...
    # Copying calls.
    def put(self, key: _Key, value: Buffer, config: ReplicateConfig | None = None) -> int: ...
    def put_parts(self, key: _Key, *parts: Buffer, config: ReplicateConfig | None = None) -> int: ...
    def put_batch(
        self, keys: Sequence[_Key], values: Sequence[Buffer], config: ReplicateConfig | None = None
    ) -> int: ...
    def upsert(self, key: _Key, value: Buffer, config: ReplicateConfig | None = None) -> int: ...
    def upsert_parts(self, key: _Key, *parts: Buffer, config: ReplicateConfig | None = None) -> int: ...
    def upsert_batch(
        self, keys: Sequence[_Key], values: Sequence[Buffer], config: ReplicateConfig | None = None
    ) -> int: ...
    def get(self, key: _Key) -> bytes: ...
    def get_batch(self, keys: Sequence[_Key]) -> list[bytes]: ...
    def get_buffer(self, key: _Key) -> BufferHandle | None: ...
    def batch_get_buffer(self, keys: Sequence[_Key]) -> list[BufferHandle | None]: ...
    # Questions.
    def get_size(self, key: _Key) -> int: ...
    def is_exist(self, key: _Key) -> int: ...
    def batch_is_exist(self, keys: Sequence[_Key]) -> list[int]: ...
    def get_replica_desc(self, key: _Key) -> list[ReplicaDescriptor]: ...
    def batch_get_replica_desc(self, keys: Sequence[_Key]) -> dict[str, list[ReplicaDescriptor]]: ...
    # Calls by address.
    def register_buffer(self, buffer_ptr: int, size: int) -> int: ...
    def unregister_buffer(self, buffer_ptr: int) -> int: ...
    def put_from(self, key: _Key, buffer_ptr: int, size: int, config: ReplicateConfig | None = None) -> int: ...
    def upsert_from(self, key: _Key, buffer_ptr: int, size: int, config: ReplicateConfig | None = None) -> int: ...
    def put_from_with_metadata(
        self,
        key: _Key,
        buffer_ptr: int,
        metadata_buffer_ptr: int,
        size: int,
        metadata_size: int,
        config: ReplicateConfig | None = None,
    ) -> int: ...
    def batch_put_from(
        self,
        keys: Sequence[_Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        config: ReplicateConfig | None = None,
    ) -> list[int]: ...
    def batch_upsert_from(
        self,
        keys: Sequence[_Key],
        buffer_ptrs: Sequence[int],
        sizes: Sequence[int],
        config: ReplicateConfig | None = None,
    ) -> list[int]: ...
    def get_into(self, key: _Key, buffer_ptr: int, size: int) -> int: ...
    def batch_get_into(self, keys: Sequence[_Key], buffer_ptrs: Sequence[int], sizes: Sequence[int]) -> list[int]: ...
    def get_into_ranges(
        self,
        buffer_ptrs: Sequence[int],
        all_keys: Sequence[Sequence[_Key]],
        all_dst_offsets: Sequence[Sequence[Sequence[int]]],
        all_src_offsets: Sequence[Sequence[Sequence[int]]],
        all_sizes: Sequence[Sequence[Sequence[int]]],
    ) -> list[list[list[int]]]: ...
    def batch_put_from_multi_buffers(
        self,
        keys: Sequence[_Key],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        config: ReplicateConfig | None = None,
    ) -> list[int]: ...
    def batch_get_into_multi_buffers(
        self,
        keys: Sequence[_Key],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        prefer_alloc_in_same_node: bool = False,
    ) -> list[int]: ...
    # Sessions.
    def batch_put_session_start(
        self, keys: Sequence[_Key], sizes: Sequence[int], config: ReplicateConfig | None = None
    ) -> list[int]: ...
    def batch_put_from_multi_buffer_ranges(
        self,
        keys: Sequence[_Key],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        all_dst_offsets: Sequence[Sequence[int]],
    ) -> list[int]: ...
    def batch_put_session_end(self, keys: Sequence[_Key]) -> list[int]: ...
    def batch_put_session_revoke(self, keys: Sequence[_Key]) -> list[int]: ...
    def batch_get_session_start(self, keys: Sequence[_Key]) -> list[int]: ...
    def batch_get_into_multi_buffer_ranges(
        self,
        keys: Sequence[_Key],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        all_src_offsets: Sequence[Sequence[int]],
    ) -> list[int]: ...
    def batch_get_session_end(self, keys: Sequence[_Key]) -> int: ...
    # Removal.
    def remove(self, key: _Key, force: bool = False) -> int: ...
    def batch_remove(self, keys: Sequence[_Key], force: bool = False) -> list[int]: ...
    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int: ...
    def remove_all(self, force: bool = False) -> int: ...

@final
class BufferHandle:
    """A value in memory of this process; exports its bytes (signed, writable) by the buffer protocol."""

    def ptr(self) -> int: ...
    def size(self) -> int: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class _Enum:
    """An enum of the compatible interface: equal to, and convertible to, its number."""

    __members__: ClassVar[dict[str, Any]]
    def __init__(self, value: int) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int: ...
    def __int__(self) -> int: ...
    def __index__(self) -> int: ...

@final
class ObjectDataType(_Enum):
    UNKNOWN: ClassVar[ObjectDataType]
    KVCACHE: ClassVar[ObjectDataType]
    TENSOR: ClassVar[ObjectDataType]
    WEIGHT: ClassVar[ObjectDataType]
    SAMPLE: ClassVar[ObjectDataType]
    ACTIVATION: ClassVar[ObjectDataType]
    GRADIENT: ClassVar[ObjectDataType]
    OPTIMIZER_STATE: ClassVar[ObjectDataType]
    METADATA: ClassVar[ObjectDataType]
    GENERAL: ClassVar[ObjectDataType]

@final
class SoftPinAction(_Enum):
    PRESERVE: ClassVar[SoftPinAction]
    ENABLE: ClassVar[SoftPinAction]
    DISABLE: ClassVar[SoftPinAction]

@final
class ReplicaStatus(_Enum):
    UNDEFINED: ClassVar[ReplicaStatus]
    INITIALIZED: ClassVar[ReplicaStatus]
    PROCESSING: ClassVar[ReplicaStatus]
    COMPLETE: ClassVar[ReplicaStatus]
    REMOVED: ClassVar[ReplicaStatus]
    FAILED: ClassVar[ReplicaStatus]

@final
class TaskType(_Enum):
    REPLICA_COPY: ClassVar[TaskType]
    REPLICA_MOVE: ClassVar[TaskType]

@final
class TaskStatus(_Enum):
    PENDING: ClassVar[TaskStatus]
    PROCESSING: ClassVar[TaskStatus]
    FAILED: ClassVar[TaskStatus]
    SUCCESS: ClassVar[TaskStatus]

@final
class ReplicateConfig:
    """How an object is written. Mutable; read at each call."""

    def __init__(self) -> None: ...
    replica_num: int
    nof_replica_num: int
    dfs_replica_num: int
    soft_pin_action: SoftPinAction
    soft_pin_ttl_ms: int | None
    with_hard_pin: bool
    preferred_segments: list[str]
    preferred_segment: str
    preferred_nof_segments: list[str]
    prefer_alloc_in_same_node: bool
    data_type: ObjectDataType
    group_ids: list[str] | None
    session_ids: list[str] | None

@final
class Descriptor:
    """Where bytes lie."""

    def __init__(self) -> None: ...
    size: int
    buffer_address: int
    transport_endpoint: str

@final
class MemoryDescriptor:
    """A replica in memory."""

    buffer_descriptor: Descriptor

@final
class DiskDescriptor:
    """A replica in a file."""

    file_path: str
    object_size: int

@final
class ReplicaDescriptor:
    """One replica; `get_*_descriptor` raises RuntimeError when it is of another kind."""

    @property
    def status(self) -> ReplicaStatus: ...
    def is_memory_replica(self) -> bool: ...
    def is_disk_replica(self) -> bool: ...
    def is_local_disk_replica(self) -> bool: ...
    def get_memory_descriptor(self) -> MemoryDescriptor: ...
    def get_disk_descriptor(self) -> DiskDescriptor: ...

@final
class QueryTaskResponse:
    """The state of a task."""

    def __init__(self) -> None: ...
    @property
    def id(self) -> _Uuid: ...
    @property
    def type(self) -> TaskType: ...
    @property
    def status(self) -> TaskStatus: ...
    @property
    def created_at_ms_epoch(self) -> int: ...
    @property
    def last_updated_at_ms_epoch(self) -> int: ...
    @property
    def assigned_client(self) -> _Uuid: ...
    @property
    def message(self) -> str: ...

@final
class MooncakeHostMemAllocator:
    """Host memory by address."""

    def __init__(self) -> None: ...
    def alloc(self, size: int) -> int: ...
    def free(self, ptr: int) -> int: ...

@final
class TransferOpcode(_Enum):
    Read: ClassVar[TransferOpcode]
    Write: ClassVar[TransferOpcode]

@final
class TransferNotify:
    """A message that travels with a transfer."""

    def __init__(self, name: str = "", msg: str = "") -> None: ...
    name: str
    msg: str

@final
class InnerTransferEngine:
    """What `TransferEngine.get_engine()` gives and `MooncakeDistributedStore.setup(engine=)` takes."""

@final
class TransferEngine:
    """One-sided reads and writes between registered memory of processes, by address. 0 is success."""

    TransferOpcode: ClassVar[type[TransferOpcode]]
    def __init__(self) -> None: ...
    def initialize(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> int: ...
    def get_rpc_port(self) -> int: ...
    def get_engine(self) -> InnerTransferEngine: ...
    def register_memory(self, buffer_addr: int, capacity: int, location: str = "*") -> int: ...
    def unregister_memory(self, addr: int) -> int: ...
    def batch_register_memory(
        self, buffer_addresses: Sequence[int], capacities: Sequence[int], location: str = "*"
    ) -> int: ...
    def batch_unregister_memory(self, addrs: Sequence[int]) -> int: ...
    def transfer_sync_write(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int: ...
    def transfer_sync_read(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int: ...
    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int: ...
    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int: ...
    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int: ...
    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
        transport_hint: str = "",
    ) -> int: ...
    def get_batch_transfer_status(self, batch_ids: Sequence[int]) -> int: ...
    def transfer_check_status(self, batch_id: int) -> int: ...
    def get_notifies(self) -> list[TransferNotify]: ...
    def send_probe(self, peer_server_name: str) -> int: ...
    def __getattr__(self, name: str) -> Any: ...
