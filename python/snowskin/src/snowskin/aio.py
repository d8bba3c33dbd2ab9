"""The store for asyncio: the methods of `snowskin.Store` as coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar, overload

from . import errors
from .store import LIST_PAGE, Buffer, Key, Registration, _ask, _settings
from .store import Store as _Blocking

__all__ = ["Store"]

T = TypeVar("T")

WORKERS = 8
"""Calls of one store that run at a time, unless `workers` says otherwise."""

TURN_TIMEOUT_S = 30.0
"""How long a call waits for its turn when the store has no `timeout` of its own."""


class Store:
    """`snowskin.Store` for asyncio. Same arguments, results and exceptions, and `workers`: calls that run at a time.

        async with snowskin.aio.Store("host:50051") as store:
            await store.put("key", b"bytes")

    Calls run on at most `workers` threads; more of them wait for their turn, in order, and raise `Timeout` when it
    does not come within the store's timeout (30 s when it has none).

    Cancellation: the network call under way cannot be called back, and it may be reading or writing the caller's
    memory. A cancelled coroutine therefore waits until its call has ended (by its deadline + 250 ms) and raises
    `CancelledError` then, so that memory is quiet when the exception is seen. A cancelled put may have stored its
    object. Give the store a short `timeout` when that is too long; a call that still waits for its turn is cancelled
    at once and has done nothing.
    """

    def __init__(
        self,
        master: str | None = None,
        *,
        segment_size: int | str = 0,
        ssd: str | None = None,
        tenant: str = "default",
        timeout: float | None = None,
        workers: int = WORKERS,
    ) -> None:
        if workers < 1:
            raise errors.invalid(f"workers must be at least 1, not {workers}")
        self._settings = _settings(master, segment_size, ssd, tenant, timeout)
        self._turns = asyncio.Semaphore(workers)
        self._opening = asyncio.Lock()
        self._threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="snowskin")
        self._turn_timeout = timeout if timeout is not None else TURN_TIMEOUT_S
        self._opened: _Blocking | None = None
        self._closed = False

    async def open(self) -> Store:
        """Opens the store now. `async with` does it, and so does the first call.

        Raises: as `snowskin.Store`.
        """
        async with self._opening:
            if self._closed:
                raise errors.invalid("the store is closed")
            if self._opened is None:
                loop = asyncio.get_running_loop()
                opening = loop.run_in_executor(self._threads, _Blocking._of, self._settings)
                try:
                    await _until_ended(opening)
                finally:
                    # Also after a cancellation: what was opened is kept, so that `close` ends it.
                    if opening.done() and not opening.cancelled() and opening.exception() is None:
                        self._opened = opening.result()
        return self

    @property
    def _blocking(self) -> _Blocking:
        if self._opened is None:
            raise errors.invalid("the store is not open; use `async with` or `await store.open()`")
        return self._opened

    async def put(self, key: Key, data: Buffer, *, replace: bool = False, timeout: float | None = None) -> None:
        """See `snowskin.Store.put`. `data` must not change until this ends."""
        await self._run(lambda: self._blocking.put(key, data, replace=replace, timeout=timeout))

    async def put_batch(
        self,
        keys: Sequence[Key] | Mapping[Key, Buffer],
        datas: Sequence[Buffer] | None = None,
        *,
        replace: bool = False,
        timeout: float | None = None,
    ) -> list[errors.Error | None]:
        """See `snowskin.Store.put_batch`."""
        return await self._run(lambda: self._blocking.put_batch(keys, datas, replace=replace, timeout=timeout))

    async def get(self, key: Key, *, timeout: float | None = None) -> bytes:
        """See `snowskin.Store.get`."""
        return await self._run(lambda: self._blocking.get(key, timeout=timeout))

    async def get_into(self, key: Key, buffer: Buffer, offset: int = 0, *, timeout: float | None = None) -> int:
        """See `snowskin.Store.get_into`. The buffer belongs to the call until this ends."""
        return await self._run(lambda: self._blocking.get_into(key, buffer, offset, timeout=timeout))

    async def view(self, key: Key, *, timeout: float | None = None) -> memoryview:
        """See `snowskin.Store.view`."""
        return await self._run(lambda: self._blocking.view(key, timeout=timeout))

    async def get_batch(self, keys: Sequence[Key], *, timeout: float | None = None) -> list[bytes | errors.Error]:
        """See `snowskin.Store.get_batch`."""
        return await self._run(lambda: self._blocking.get_batch(keys, timeout=timeout))

    async def get_into_batch(
        self, keys: Sequence[Key], buffers: Sequence[Buffer], *, timeout: float | None = None
    ) -> list[int | errors.Error]:
        """See `snowskin.Store.get_into_batch`. The buffers belong to the call until this ends."""
        return await self._run(lambda: self._blocking.get_into_batch(keys, buffers, timeout=timeout))

    @overload
    async def exists(  # type: ignore[overload-overlap]
        self, key: str | bytes, *, timeout: float | None = None
    ) -> bool: ...

    @overload
    async def exists(self, key: Sequence[Key], *, timeout: float | None = None) -> list[bool]: ...

    async def exists(self, key: Key | Sequence[Key], *, timeout: float | None = None) -> bool | list[bool]:
        """See `snowskin.Store.exists`."""
        return await self._run(lambda: self._blocking.exists(key, timeout=timeout))

    async def size(self, key: Key, *, timeout: float | None = None) -> int:
        """See `snowskin.Store.size`."""
        return await self._run(lambda: self._blocking.size(key, timeout=timeout))

    async def remove(self, key: Key, *, force: bool = False, timeout: float | None = None) -> None:
        """See `snowskin.Store.remove`."""
        await self._run(lambda: self._blocking.remove(key, force=force, timeout=timeout))

    async def remove_batch(
        self, keys: Sequence[Key], *, force: bool = False, timeout: float | None = None
    ) -> list[errors.Error | None]:
        """See `snowskin.Store.remove_batch`."""
        return await self._run(lambda: self._blocking.remove_batch(keys, force=force, timeout=timeout))

    async def remove_all(
        self,
        *,
        prefix: Key | None = None,
        regex: str | None = None,
        force: bool = False,
        timeout: float | None = None,
    ) -> int:
        """See `snowskin.Store.remove_all`."""
        return await self._run(
            lambda: self._blocking.remove_all(prefix=prefix, regex=regex, force=force, timeout=timeout)
        )

    async def keys(self, prefix: Key = "") -> AsyncIterator[Key]:
        """See `snowskin.Store.keys`: `async for key in store.keys("a/")`."""
        cursor: Any = None
        while True:
            after = cursor
            page, cursor = await self._run(
                lambda: _ask(self._blocking._open().list, prefix, LIST_PAGE, after)  # noqa: B023
            )
            for key in page:
                yield key
            if cursor is None:
                return

    async def register(self, buffer: Buffer) -> Registration:
        """See `snowskin.Store.register`. Closing the registration blocks while a call uses the memory."""
        return await self._run(lambda: self._blocking.register(buffer))

    async def stat(self, *, timeout: float | None = None) -> dict[str, Any]:
        """See `snowskin.Store.stat`."""
        return await self._run(lambda: self._blocking.stat(timeout=timeout))

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._closed

    def last_error(self) -> dict[str, Any] | None:
        """See `snowskin.Store.last_error`; answers at once."""
        return None if self._opened is None else self._opened.last_error()

    async def close(self) -> None:
        """Ends the store and its threads. Calls under way end first, by their deadlines. Twice is harmless."""
        async with self._opening:
            if self._closed:
                return
            self._closed = True
            await _until_ended(asyncio.get_running_loop().run_in_executor(None, self._end))

    def _end(self) -> None:
        try:
            if self._opened is not None:
                self._opened.close()
        finally:
            self._threads.shutdown(wait=True)

    async def __aenter__(self) -> Store:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, call: Callable[[], T]) -> T:
        if self._opened is None:
            await self.open()
        await self._turn()
        try:
            if self._closed:
                raise errors.invalid("the store is closed")
            return await _until_ended(asyncio.get_running_loop().run_in_executor(self._threads, call))
        finally:
            self._turns.release()

    async def _turn(self) -> None:
        # Not `wait_for`: up to Python 3.11 it loses a cancellation that comes together with the turn.
        turn = asyncio.ensure_future(self._turns.acquire())
        try:
            await asyncio.wait([turn], timeout=self._turn_timeout)
        except asyncio.CancelledError:
            if not turn.cancel():
                self._turns.release()
            raise
        if not turn.done():
            turn.cancel()
            raise errors.Timeout(
                f"no worker was free within {self._turn_timeout:g} s",
                code=errors.RPC_TIMEOUT,
                name="RPC_TIMEOUT",
                stage="session",
                retry="same",
            )


async def _until_ended(call: asyncio.Future[T]) -> T:
    """Awaits a call on a thread; cancellation is seen only when the thread has ended it."""
    cancelled: asyncio.CancelledError | None = None
    while not call.done():
        try:
            await asyncio.wait([call])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # Its result has no taker any more; asking for the exception keeps asyncio from reporting it as lost.
        if not call.cancelled():
            call.exception()
        raise cancelled
    return call.result()
