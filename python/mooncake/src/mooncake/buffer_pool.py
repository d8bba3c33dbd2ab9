"""Leases of registered staging memory."""

from snowskin.mooncake.buffer_pool import BufferPool
from snowskin.mooncake.store import RegisteredBufferPool

__all__ = ["BufferPool", "RegisteredBufferPool"]
