"""`MooncakeDistributedStore` and every other name of the compatible module `mooncake.store`."""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Mapping
from typing import Any

from .. import environment
from .._native import (
    BufferHandle,
    Descriptor,
    DiskDescriptor,
    MemoryDescriptor,
    ObjectDataType,
    QueryTaskResponse,
    ReplicaDescriptor,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    TaskStatus,
    TaskType,
)
from ..errors import INVALID_PARAMS
from ..sizes import SIZE_MAX
from . import host_memory, setup_forms
from .buffer_pool import BufferLease, BufferLeaseView, BufferPool
from .embedding_tables import (
    EngramStore,
    EngramStoreConfig,
    MooncakeDistributedNoFRegister,
    get_alloc_func_addr,
    get_free_func_addr,
)
from .host_memory import MooncakeHostMemAllocator
from .niche import NotYet
from .numa import bind_to_numa_node
from .parallel import ParallelAxis, ReadTarget, TensorParallelism
from .tensors import (
    TensorMethods,
)
from .tensors import (
    deserialize_tensor as _deserialize_tensor,
)
from .tensors import (
    serialize_tensor as _serialize_tensor,
)
from .tensors import (
    tensor_metadata_size as _tensor_metadata_size,
)

log = logging.getLogger("snowskin")

# Older names of the same classes.
RegisteredBufferPool = BufferPool
RegisteredBufferLease = BufferLease
RegisteredBufferLeaseView = BufferLeaseView

# The enums' members stand at module level too, those of `SoftPinAction` do not. Where two enums share a name, the
# later one has it: FAILED and PROCESSING are those of `TaskStatus`.
UNKNOWN = ObjectDataType.UNKNOWN
KVCACHE = ObjectDataType.KVCACHE
TENSOR = ObjectDataType.TENSOR
WEIGHT = ObjectDataType.WEIGHT
SAMPLE = ObjectDataType.SAMPLE
ACTIVATION = ObjectDataType.ACTIVATION
GRADIENT = ObjectDataType.GRADIENT
OPTIMIZER_STATE = ObjectDataType.OPTIMIZER_STATE
METADATA = ObjectDataType.METADATA
GENERAL = ObjectDataType.GENERAL
UNDEFINED = ReplicaStatus.UNDEFINED
INITIALIZED = ReplicaStatus.INITIALIZED
COMPLETE = ReplicaStatus.COMPLETE
REMOVED = ReplicaStatus.REMOVED
REPLICA_COPY = TaskType.REPLICA_COPY
REPLICA_MOVE = TaskType.REPLICA_MOVE
PENDING = TaskStatus.PENDING
PROCESSING = TaskStatus.PROCESSING
FAILED = TaskStatus.FAILED
SUCCESS = TaskStatus.SUCCESS

__all__ = [
    "ACTIVATION",
    "BufferHandle",
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "COMPLETE",
    "Descriptor",
    "DiskDescriptor",
    "EngramStore",
    "EngramStoreConfig",
    "FAILED",
    "GENERAL",
    "GRADIENT",
    "INITIALIZED",
    "KVCACHE",
    "METADATA",
    "MemoryDescriptor",
    "MooncakeDistributedNoFRegister",
    "MooncakeDistributedStore",
    "MooncakeHostMemAllocator",
    "OPTIMIZER_STATE",
    "ObjectDataType",
    "PENDING",
    "PROCESSING",
    "ParallelAxis",
    "QueryTaskResponse",
    "REMOVED",
    "REPLICA_COPY",
    "REPLICA_MOVE",
    "ReadTarget",
    "RegisteredBufferLease",
    "RegisteredBufferLeaseView",
    "RegisteredBufferPool",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "ReplicateConfig",
    "SAMPLE",
    "SUCCESS",
    "SoftPinAction",
    "TENSOR",
    "TaskStatus",
    "TaskType",
    "TensorParallelism",
    "UNDEFINED",
    "UNKNOWN",
    "WEIGHT",
    "_deserialize_tensor",
    "_get_pyclient_from_wrapper",
    "_serialize_tensor",
    "_tensor_metadata_size",
    "bind_to_numa_node",
    "get_alloc_func_addr",
    "get_free_func_addr",
]

# How a thin client answers for memory that it does not take, and for a daemon that is not there.
FOREIGN_MEMORY = -1
NO_DAEMON = -1
# The health of a client whose peer does not answer.
UNREACHABLE = 2


class MooncakeDistributedStore(TensorMethods, NotYet):
    """One client of the pool, with the calls and codes of the compatible interface.

    Methods answer codes (0, a size, or a negative number) instead of raising; `last_error()` says more. A method
    before `setup` and after `close` answers -600 or its empty form.
    """

    _changing: threading.Lock
    _thin_regions: dict[int, int]
    _is_open = False
    _is_thin = False
    _daemon = ""
    _local_buffer_size = 0
    _http: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> MooncakeDistributedStore:
        # Arguments are a subclass's own matter, and it need not call our `__init__`.
        self: MooncakeDistributedStore = super().__new__(cls)
        self._changing = threading.Lock()
        self._thin_regions = {}
        return self

    def __init__(self) -> None:
        """A store that is not open yet."""

    # -- life cycle --------------------------------------------------------------------------------------------------

    def setup(self, *args: Any, **kwargs: Any) -> int:
        """Opens the store. 0, or a negative code that is also logged as an error.

        Forms: `setup(local_hostname, metadata_server, global_segment_size, local_buffer_size, protocol,
        rdma_devices, master_server_addr, engine=None, enable_ssd_offload=False, ssd_offload_path="",
        tenant_id="default", enable_client_http_server=False, client_http_port=9300)`, all of them also as keywords,
        or `setup(config)` with a dictionary of texts (`master_server_address` and `device_name` are taken as well).

        Args:
            local_hostname: `host` or `host:port`, the name of this process's segment; without a port a free one of
                12300 to 14300 is taken.
            metadata_server: Has no meaning here; its form is checked.
            global_segment_size: Bytes that this process lends to the pool, 0 or at least 16 MiB. In a dictionary also
                `"4 GB"`.
            local_buffer_size: Bytes of staging memory for copying calls, at most 1 TiB.
            protocol: `tcp`; another known one falls back to it with a warning.
            rdma_devices: Has no meaning for tcp.
            master_server_addr: `host:port`.
            engine: `TransferEngine.get_engine()`, whose registered memory is the store's too.
            tenant_id: Name space of the keys.
            enable_client_http_server: Serve `/health` and `/metrics` on `client_http_port`.

        A master that does not answer is a code within about 5 s. On an open store the old client is closed first.

        Raises:
            TypeError: Wrong number, type or name of an argument; the text names it.
        """
        try:
            asked = setup_forms.bind(args, kwargs)
            setup_forms.check(asked)
            settings = setup_forms.settings(asked)
        except setup_forms.Refused as refused:
            return self._setup_failed(self._refuse(refused.code, refused.message))
        with self._changing:
            code = self._start(settings, asked.local_buffer_size)
            if code == 0 and asked.enable_client_http_server:
                self._serve_http(asked.client_http_port)
        return code

    setup.__signature__ = setup_forms.SIGNATURE  # type: ignore[attr-defined]

    def setup_dummy(self, mem_pool_size: int, local_buffer_size: int, server_address: str) -> int:
        """Opens the store as a thin client of the pool that the daemon `mooncake_client` at `server_address` is in.

        Args:
            mem_pool_size: Has no meaning here; memory is taken by `MooncakeHostMemAllocator` or `alloc_from_mem_pool`.
            local_buffer_size: Bytes of staging memory for copying calls.
            server_address: `host:port` of the daemon.

        Returns:
            0; -1 when the daemon does not answer within 4 s; else the code of the master.
        """
        from .daemon_link import NoDaemon, describe

        sizes = {"mem_pool_size": mem_pool_size, "local_buffer_size": local_buffer_size}
        for name, value in sizes.items():
            try:
                sizes[name] = operator.index(value)
            except TypeError:
                raise TypeError(f"setup_dummy(): argument '{name}' must be int, not {type(value).__name__}") from None
            if not 0 <= sizes[name] <= SIZE_MAX:
                raise TypeError(f"setup_dummy(): argument '{name}' must be between 0 and {SIZE_MAX}")
        if not isinstance(server_address, str):
            raise TypeError(
                f"setup_dummy(): argument 'server_address' must be str, not {type(server_address).__name__}"
            )
        try:
            found = describe(server_address)
        except NoDaemon as error:
            return self._setup_failed(self._refuse(NO_DAEMON, str(error)))
        settings = {
            "master": found["master"],
            "tenant": str(found.get("tenant") or "default"),
            "local_buffer_size": sizes["local_buffer_size"],
            "thin": True,
            # Memory of this mode comes from the allocator; other addresses are refused by name.
            "strict_buffers": True,
        }
        with self._changing:
            code = self._start(settings, sizes["local_buffer_size"])
            self._is_thin = code == 0
            self._daemon = server_address
        return code

    def health_check(self) -> int:
        """0: healthy, 1: not set up or closed, 2: the master does not answer, or for a thin client its daemon."""
        health = super().health_check()
        if health == 0 and self._is_thin:
            from .daemon_link import HEALTH_TIMEOUT_S, NoDaemon, describe

            try:
                describe(self._daemon, HEALTH_TIMEOUT_S)
            except NoDaemon:
                return UNREACHABLE
        return health

    def init_all(self, protocol: str, device_name: str, mount_segment_size: int) -> int:
        """The oldest form of `setup`, with the master at 127.0.0.1:50051. -600 on an open store."""
        if self._is_open:
            return self._refuse(INVALID_PARAMS, "init_all: the store is set up already")
        return self.setup(
            "localhost:12345",
            "127.0.0.1:2379",
            mount_segment_size,
            1 << 30,
            protocol,
            device_name,
            setup_forms.DEFAULT_MASTER,
        )

    def close(self) -> int:
        """Ends the client: takes its segment out of the pool and forgets its memory. 0; twice is harmless."""
        with self._changing:
            return self._end()

    def get_hostname(self) -> str:
        """The name of this process's segment, `host:port`; empty for a thin client of a daemon and when closed."""
        return "" if self._is_thin else super().get_hostname()

    def _get_pyclient_capsule(self) -> Any:
        """Something that says that this is a native store; None when it is not open."""
        return NativeClient(self) if self._is_open else None

    # -- memory of thin clients --------------------------------------------------------------------------------------

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Makes memory known, host or device, so that it is read and written in place. 0 or -600.

        A thin client of a daemon takes whole blocks of its allocator only, and answers -1 to others.
        """
        if not self._is_thin:
            return super().register_buffer(buffer_ptr, size)
        if self._thin_regions.get(buffer_ptr) == size:
            return 0
        if size == 0 or host_memory.block_size(buffer_ptr) != size:
            return self._refuse(
                FOREIGN_MEMORY,
                f"{size} bytes at {buffer_ptr:#x} are no whole block of MooncakeHostMemAllocator "
                "or alloc_from_mem_pool",
            )
        code = super().register_buffer(buffer_ptr, size)
        if code == 0:
            self._thin_regions[buffer_ptr] = size
        return code

    def unregister_buffer(self, buffer_ptr: int) -> int:
        """Forgets registered memory, by its first address. 0 or -600."""
        code = super().unregister_buffer(buffer_ptr)
        if code == 0:
            self._thin_regions.pop(buffer_ptr, None)
        return code

    def alloc_from_mem_pool(self, size: int) -> int:
        """A block of `size` bytes that a thin client may register, until the process ends; 0 for other clients."""
        return host_memory.allocate(size) if self._is_thin else 0

    # -- how ---------------------------------------------------------------------------------------------------------

    def _start(self, settings: Mapping[str, Any], local_buffer_size: int) -> int:
        if self._is_open:
            self._end()
        try:
            around = environment.settings()
        except OSError as error:
            return self._setup_failed(self._refuse(INVALID_PARAMS, f"SNOWSKIN_TOKEN_FILE cannot be read: {error}"))
        code = self._open({**around, **settings})
        if code != 0:
            return self._setup_failed(code)
        self._is_open = True
        self._local_buffer_size = local_buffer_size
        return 0

    def _end(self) -> int:
        http, self._http = self._http, None
        if http is not None:
            http.close()
        code = super().close()
        self._is_open = False
        self._is_thin = False
        self._local_buffer_size = 0
        self._thin_regions.clear()
        return code

    def _setup_failed(self, code: int) -> int:
        log.error("setup failed with %d: %s", code, (self.last_error() or {}).get("message", "no reason was given"))
        return code

    def _serve_http(self, port: int) -> None:
        from .client_http import serve

        try:
            self._http = serve(self, port)
        except OSError as error:
            log.warning("the client's HTTP server does not run: %s", error)


class NativeClient:
    """Stands for the client inside a store, for code that asks whether there is one. It cannot be called."""

    def __init__(self, store: MooncakeDistributedStore) -> None:
        self.store = store


def _get_pyclient_from_wrapper(wrapper: Any) -> NativeClient | None:
    """What `_get_pyclient_capsule` gives, for any object."""
    ask = getattr(wrapper, "_get_pyclient_capsule", None)
    result: NativeClient | None = None if ask is None else ask()
    return result
