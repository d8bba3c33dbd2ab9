"""Memory that thin clients may register: blocks of the process-wide allocator, known by base address and size."""

from __future__ import annotations

import threading

from .. import _native

_lock = threading.Lock()
_blocks: dict[int, int] = {}
_allocator: _native.MooncakeHostMemAllocator | None = None


class MooncakeHostMemAllocator:
    """Blocks of shared memory of one process-wide allocator."""

    def alloc(self, size: int) -> int:
        """The address of a new block of `size` bytes, or 0."""
        return allocate(size)

    def free(self, ptr: int) -> int:
        """0, or -1 for an address that no block begins at."""
        return release(ptr)


def allocate(size: int) -> int:
    """The address of a new block of `size` bytes, or 0."""
    global _allocator
    with _lock:
        if _allocator is None:
            _allocator = _native.MooncakeHostMemAllocator()
        address = _allocator.alloc(size)
        if address:
            _blocks[address] = size
        return address


def release(address: int) -> int:
    """Gives a block back. 0, or -1 for an address that no block begins at."""
    with _lock:
        if _allocator is None or _blocks.pop(address, None) is None:
            return -1
        return _allocator.free(address)


def block_size(address: int) -> int:
    """Bytes of the block that begins at `address`, or 0."""
    with _lock:
        return _blocks.get(address, 0)
