"""The store with an `async_<name>` for each method."""

from snowskin.mooncake.aio import MooncakeDistributedStoreAsync
from snowskin.mooncake.store import MooncakeDistributedStore

__all__ = ["MooncakeDistributedStore", "MooncakeDistributedStoreAsync"]
