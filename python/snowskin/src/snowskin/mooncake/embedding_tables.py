"""Names of special stores that this pool does not offer. Using one says so."""

from __future__ import annotations

from typing import Any

from ..errors import NOT_SUPPORTED, NotSupported, not_supported


class EngramStoreConfig:
    """Sizes of embedding tables."""

    def __init__(self) -> None:
        self.table_vocab_sizes: list[int] = [1024]
        self.embedding_dim: int = 64


class EngramStore:
    """Embedding tables in the store: not supported, making one raises `NotSupported`."""

    def __init__(self, layer_id: int, config: EngramStoreConfig, store: Any = None) -> None:
        raise _no_tables()

    def get_table_vocab_sizes(self) -> list[int]:
        """Never called: there are no instances."""
        raise _no_tables()

    def get_store_keys(self) -> list[str]:
        """Never called: there are no instances."""
        raise _no_tables()

    def get_num_heads(self) -> int:
        """Never called: there are no instances."""
        raise _no_tables()

    def get_embedding_dim(self) -> int:
        """Never called: there are no instances."""
        raise _no_tables()

    def populate(self, embedding_buffers: list[Any]) -> None:
        """Never called: there are no instances."""
        raise _no_tables()

    def lookup(self, row_ids: Any) -> Any:
        """Never called: there are no instances."""
        raise _no_tables()

    def remove_from_store(self, force: bool = False) -> int:
        """Never called: there are no instances."""
        raise _no_tables()


def _no_tables() -> NotSupported:
    return not_supported("EngramStore: embedding tables are not supported")


class MooncakeDistributedNoFRegister:
    """Registration of SSDs over fabrics: not supported, each call answers -1012."""

    def real_register(self, nqn: str, nsid: int, traddr: str, trsvcid: int, base: int, size: int, master: str) -> int:
        """-1012."""
        return NOT_SUPPORTED

    def real_unregister_by_endpoint(self, nqn: str, nsid: int, traddr: str, trsvcid: int, master: str) -> int:
        """-1012."""
        return NOT_SUPPORTED


def get_alloc_func_addr() -> int:
    """Not supported: there is no pair of C functions to give to a pluggable allocator."""
    raise not_supported("get_alloc_func_addr: no allocator functions are offered; use MooncakeHostMemAllocator")


def get_free_func_addr() -> int:
    """Not supported, see `get_alloc_func_addr`."""
    raise not_supported("get_free_func_addr: no allocator functions are offered; use MooncakeHostMemAllocator")
