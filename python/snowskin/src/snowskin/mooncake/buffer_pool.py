"""Leases of registered staging memory.

A lease is one region of its own: aligned anonymous memory that the store knows. Regions that come back are kept for
the next lease of their size class, and given up when another class needs the room.
"""

from __future__ import annotations

import mmap
import threading
import time
from types import TracebackType
from typing import Any

WAIT_S = 300.0
"""How long a lease is waited for when neither the call nor the pool has a timeout."""

ALIGNMENT_MIN = 8
_PAGE = mmap.PAGESIZE


class BufferPool:
    """Leases of memory that is registered with a store.

    Args:
        store: An open `MooncakeDistributedStore` with a local buffer.
        max_bytes: Room of the pool; 0 takes twice the local buffer, and it is never less than the local buffer.
        min_size_class, max_size_class: Sizes are rounded up to powers of two, beginning with the smallest class; what
            is larger than the largest class gets its own size.
        alignment: Of every lease's address: a power of two, at least 8.
        block_on_exhaustion: Whether `acquire` waits for room when its `block` is None.
        default_timeout: Seconds to wait when `acquire` is given none; None takes 300.
        max_regions: Most regions at a time; None for no bound but the room.
        prewarm_size, prewarm_count: Have no effect.

    Raises:
        RuntimeError: The store is not set up or has no local buffer, or the alignment is not allowed.
    """

    def __init__(
        self,
        store: Any,
        max_bytes: int = 0,
        min_size_class: int = 65536,
        max_size_class: int | None = None,
        alignment: int = 8388608,
        block_on_exhaustion: bool = True,
        default_timeout: float | None = None,
        max_regions: int | None = None,
        prewarm_size: int | None = None,
        prewarm_count: int = 0,
    ) -> None:
        ask = getattr(store, "_get_pyclient_capsule", None)
        if ask is None or ask() is None:
            raise RuntimeError("the store of a buffer pool is not initialized: call setup first")
        local = int(getattr(store, "_local_buffer_size", 0))
        if local == 0:
            raise RuntimeError("the store of a buffer pool has no local buffer (local_buffer_size is 0)")
        if alignment < ALIGNMENT_MIN or alignment & (alignment - 1):
            raise RuntimeError(f"alignment must be a power of two and at least {ALIGNMENT_MIN}, not {alignment}")
        if min_size_class < 1:
            raise RuntimeError(f"min_size_class must be at least 1, not {min_size_class}")
        self._store = store
        self._capacity = max(max_bytes or 2 * local, local)
        self._min_class = min_size_class
        self._max_class = max_size_class
        self._alignment = alignment
        self._block = block_on_exhaustion
        self._timeout = default_timeout
        self._max_regions = max_regions
        self._change = threading.Condition()
        self._free: dict[int, list[_Region]] = {}
        self._leased = 0
        self._bytes = 0
        self._regions = 0
        # Regions whose lease is gone while views of them live.
        self._lingering: list[_Region] = []
        self._closed = False

    def acquire(self, size: int, block: bool | None = None, timeout: float | None = None) -> BufferLease:
        """A lease of `size` bytes (0 is allowed).

        Args:
            block: Wait for room; None takes the pool's choice.
            timeout: Seconds to wait, at least 0.

        Raises:
            RuntimeError: The size exceeds the pool's capacity, the pool is exhausted (without waiting), the wait
                timed out, the pool is closed, the timeout is negative, or the memory cannot be had or registered.
        """
        if size < 0:
            raise RuntimeError(f"the size of a lease must be non-negative, not {size}")
        if timeout is not None and timeout < 0:
            raise RuntimeError(f"timeout must be non-negative, not {timeout}")
        room = self._size_class(size)
        may_wait = self._block if block is None else block
        wait = timeout if timeout is not None else self._timeout if self._timeout is not None else WAIT_S
        deadline = time.monotonic() + wait
        with self._change:
            while True:
                if self._closed:
                    raise RuntimeError("the buffer pool is closed")
                region = self._take(room)
                if region is not None:
                    self._leased += 1
                    return BufferLease(self, region, size)
                if not may_wait:
                    raise RuntimeError(
                        f"the buffer pool is exhausted: {self._bytes} of {self._capacity} bytes are in use"
                    )
                left = deadline - time.monotonic()
                if left <= 0:
                    raise RuntimeError(f"waiting for a buffer of {size} bytes timed out after {wait:g} s")
                # A view that lingers is given up without telling anyone; look again after a moment.
                self._change.wait(min(left, 0.1) if self._lingering else left)

    def buffer(self, size: int, block: bool | None = None, timeout: float | None = None) -> BufferLease:
        """The same as `acquire`."""
        return self.acquire(size, block, timeout)

    def prewarm(self, size: int, count: int) -> None:
        """Has no effect: memory is registered when it is first leased."""

    def close(self) -> None:
        """Gives the memory up. Twice is harmless.

        Raises:
            RuntimeError: There are active leases.
        """
        with self._change:
            if self._closed:
                return
            self._sweep()
            if self._leased or self._lingering:
                raise RuntimeError(
                    f"the buffer pool has active leases: {self._leased}, and {len(self._lingering)} with live views"
                )
            self._closed = True
            for regions in list(self._free.values()):
                while regions:
                    self._drop(regions.pop())
            self._change.notify_all()

    def _size_class(self, size: int) -> int:
        if size > self._capacity:
            raise RuntimeError(f"a buffer of {size} bytes exceeds pool capacity ({self._capacity} bytes)")
        room = max(self._min_class, 1)
        if size > room:
            room = 1 << (size - 1).bit_length()
        if self._max_class is not None and room > self._max_class:
            room = max(size, 1)
        return min(room, self._capacity)

    def _take(self, room: int) -> _Region | None:
        self._sweep()
        kept = self._free.get(room)
        if kept:
            return kept.pop()
        if not self._make_room(room):
            return None
        region = _Region(room, self._alignment)
        code = self._store.register_buffer(region.address, room)
        if code != 0:
            reason = (self._store.last_error() or {}).get("message", "")
            region.unmap()
            raise RuntimeError(f"the store did not register a buffer of {room} bytes: {code} {reason}".rstrip())
        self._bytes += room
        self._regions += 1
        return region

    def _make_room(self, room: int) -> bool:
        def is_enough() -> bool:
            return self._bytes + room <= self._capacity and (
                self._max_regions is None or self._regions < self._max_regions
            )

        for regions in list(self._free.values()):
            while regions and not is_enough():
                self._drop(regions.pop())
        return is_enough()

    def _drop(self, region: _Region) -> None:
        # A store that was closed meanwhile has forgotten the region already; its code says nothing new.
        self._store.unregister_buffer(region.address)
        self._bytes -= region.size
        self._regions -= 1
        region.unmap()

    def _sweep(self) -> None:
        """Takes back the regions whose last view is gone."""
        # A lease that is collected meanwhile adds to the new list.
        looked_at, self._lingering = self._lingering, []
        for region in looked_at:
            if region.has_views():
                self._lingering.append(region)
            else:
                self._free.setdefault(region.size, []).append(region)

    def _give_back(self, region: _Region, *, is_forgotten: bool) -> None:
        with self._change:
            if region.has_views():
                if not is_forgotten:
                    raise RuntimeError("the lease cannot be released while exported views exist")
                self._lingering.append(region)
            else:
                self._free.setdefault(region.size, []).append(region)
            self._leased -= 1
            self._change.notify_all()


class BufferLease:
    """Memory for the time between `acquire` and `release`; a context manager."""

    def __init__(self, pool: BufferPool, region: _Region, size: int) -> None:
        self._pool = pool
        self._region: _Region | None = region
        self._size = size

    @property
    def ptr(self) -> int:
        """The address of the first byte. Raises RuntimeError after `release`."""
        return self._live().address

    @property
    def size(self) -> int:
        """Bytes that were asked for."""
        return self._size

    @property
    def buffer(self) -> memoryview:
        """A fresh writable view of unsigned bytes. Raises RuntimeError after `release`."""
        return self._live().view(self._size)

    def release(self) -> None:
        """Gives the memory back. Twice is harmless.

        Raises:
            RuntimeError: Views of it are alive; release them first.
        """
        region = self._region
        if region is not None:
            self._pool._give_back(region, is_forgotten=False)
            self._region = None

    def _live(self) -> _Region:
        if self._region is None:
            raise RuntimeError("the buffer lease is closed")
        return self._region

    def __enter__(self) -> BufferLease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def __del__(self) -> None:
        region = getattr(self, "_region", None)
        if region is not None:
            self._region = None
            self._pool._give_back(region, is_forgotten=True)


class BufferLeaseView:
    """The buffer of a lease that it keeps alive."""

    def __init__(self, lease: BufferLease) -> None:
        self._lease = lease

    @property
    def buffer(self) -> memoryview:
        """A fresh writable view of unsigned bytes."""
        return self._lease.buffer


class _Region:
    """Aligned anonymous memory. The mapping counts the views of it."""

    def __init__(self, size: int, alignment: int) -> None:
        import ctypes

        self.size = size
        slack = alignment if alignment > _PAGE else 0
        try:
            self._map = mmap.mmap(-1, size + slack)
        except (OSError, ValueError, OverflowError) as error:
            raise RuntimeError(f"no memory for a buffer of {size} bytes: {error}") from None
        first = ctypes.c_char.from_buffer(self._map)
        start = ctypes.addressof(first)
        del first
        self._offset = -start % alignment
        self.address = start + self._offset

    def view(self, size: int) -> memoryview:
        return memoryview(self._map)[self._offset : self._offset + size]

    def has_views(self) -> bool:
        try:
            # The mapping refuses to change while it is exported; the same size changes nothing.
            self._map.resize(len(self._map))
        except BufferError:
            return True
        return False

    def unmap(self) -> None:
        self._map.close()
