"""The store for Python engineers: `Store`, and `Registration` for memory that is read and written in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, overload

from . import _native, environment, errors
from .sizes import parse_size

__all__ = ["Buffer", "Key", "Registration", "Store"]

Key = str | bytes
"""A key: up to 65,535 bytes; a `str` stands for its UTF-8 bytes."""

Buffer = Any
"""Any object that offers the buffer protocol with contiguous memory (bytes, bytearray, memoryview, numpy array)."""

EMBEDDED_SEGMENT_SIZE = 1 << 30
"""Memory of an embedded pool when no size is given. Pages are taken when they are written."""

CONNECT_TIMEOUT_MS = 5000
"""The longest that opening a store waits for the master."""

LIST_PAGE = 1000
"""Keys that one request of `Store.keys` asks for."""


class Store:
    """A pool of objects: embedded in this process, or reached through a master.

    Args:
        master: `host:port` of the master. None takes `SNOWSKIN_MASTER`, else `MOONCAKE_MASTER` of the environment,
            and without them (or for `""`) everything runs embedded in this process, with no other process needed.
        segment_size: Memory that this process lends to the pool, in bytes or as a text (`"64 GiB"`). 0 makes a thin
            client of a cluster; an embedded pool then takes 1 GiB.
        ssd: Folder of an SSD tier. Not there yet: anything but None raises `NotSupported`.
        tenant: Name space of the keys, 1 to 128 bytes without a leading underscore. There are no quotas yet.
        timeout: Deadline of each call, in seconds. None takes the defaults: 5 s for metadata; 30 s for data, or
            bytes / 100 MB/s when that is longer. A call returns by its deadline + 250 ms, and after it has returned
            or raised nothing touches the caller's memory any more.

    Raises:
        TypeError: An argument's name is not known; the message names it.
        Invalid: A value is not allowed.
        Unreachable, Timeout: The master did not answer (within about 5 s).

    A store may be used by many threads at once; calls run on the caller's thread with the interpreter released. A
    forked child sees closed stores. Close it, or use it as a context manager.
    """

    _pool: Any

    def __init__(
        self,
        master: str | None = None,
        *,
        segment_size: int | str = 0,
        ssd: str | None = None,
        tenant: str = "default",
        timeout: float | None = None,
    ) -> None:
        self._pool = None
        self._pool = _ask(_native.Pool, _settings(master, segment_size, ssd, tenant, timeout))

    @classmethod
    def _of(cls, settings: dict[str, Any]) -> Store:
        """Opens a store from checked settings."""
        store = cls.__new__(cls)
        store._pool = None
        store._pool = _ask(_native.Pool, settings)
        return store

    # -- objects ----------------------------------------------------------------------------------------------------

    def put(self, key: Key, data: Buffer, *, replace: bool = False, timeout: float | None = None) -> None:
        """Stores the bytes of `data` under `key`. They can be read by everyone when this returns.

        Args:
            data: Contiguous memory of any item type; its `nbytes` bytes are stored. At least one byte.
            replace: Take the place of an object of this key. Answers when no read that starts later sees the old one.
            timeout: Deadline of this call in seconds instead of the store's.

        Raises:
            Exists: The key is taken and `replace` is False.
            NoSpace: No space within the time a put may wait; `detail` has `wanted`, `free`, `largest`, `leased`.
            Invalid: An empty key, no bytes, or more than can ever fit (the message names the largest size).
            Timeout, Unreachable: See the deadline of the class.
        """
        _ask(self._open().put, key, data, replace=replace, timeout=timeout)

    def put_batch(
        self,
        keys: Sequence[Key] | Mapping[Key, Buffer],
        datas: Sequence[Buffer] | None = None,
        *,
        replace: bool = False,
        timeout: float | None = None,
    ) -> list[errors.Error | None]:
        """Stores many objects in one go.

        Args:
            keys: The keys, or a mapping from keys to data.
            datas: One buffer per key; not given with a mapping.

        Returns:
            One entry per key in the same order: None when it was stored, else the error (not raised).

        Raises:
            Invalid: `keys` and `datas` have not the same length.
        """
        keys, datas = _pairs(keys, datas)
        results = _ask(self._open().put_batch, keys, datas, replace=replace, timeout=timeout)
        return [_typed(result) for result in results]

    def get(self, key: Key, *, timeout: float | None = None) -> bytes:
        """The object's bytes, received straight into the returned `bytes`.

        Raises:
            NotFound: No such object.
            Corrupt: Its bytes do not have their checksum.
            Timeout, Unreachable: See the deadline of the class.
        """
        result: bytes = _ask(self._open().get, key, timeout=timeout)
        return result

    def get_into(self, key: Key, buffer: Buffer, offset: int = 0, *, timeout: float | None = None) -> int:
        """Receives the object into writable memory, in place, and returns how many bytes that were.

        Args:
            buffer: Contiguous writable memory; the bytes go to its front. `memoryview(buffer)[at:]` is a place inside.
            offset: First byte of the object that is read.

        Raises:
            NotFound: No such object.
            TypeError: The buffer is read-only or not contiguous.
            Invalid: The buffer is smaller than what is read, or `offset` lies beyond the object.
            Corrupt, Timeout, Unreachable: As `get`. The buffer's content is undefined then, and quiet.
        """
        size: int = _ask(self._open().get_into, key, buffer, offset, timeout=timeout)
        return size

    def view(self, key: Key, *, timeout: float | None = None) -> memoryview:
        """The object as a read-only view of unsigned bytes. Release it, or use it as a context manager.

        Raises: as `get`.
        """
        handle = _ask(self._open().get_view, key, timeout=timeout)
        return memoryview(handle).cast("B").toreadonly()

    def get_batch(self, keys: Sequence[Key], *, timeout: float | None = None) -> list[bytes | errors.Error]:
        """Many objects in one go: one entry per key in the same order, its bytes or the error (not raised)."""
        results = _ask(self._open().get_batch, list(keys), timeout=timeout)
        return [_typed(result) for result in results]

    def get_into_batch(
        self, keys: Sequence[Key], buffers: Sequence[Buffer], *, timeout: float | None = None
    ) -> list[int | errors.Error]:
        """Many objects into one writable buffer each: one entry per key, its size or the error (not raised).

        Raises:
            Invalid: `keys` and `buffers` have not the same length.
        """
        if len(keys) != len(buffers):
            raise errors.invalid(f"there are {len(keys)} keys but {len(buffers)} buffers")
        results = _ask(self._open().get_into_batch, list(keys), list(buffers), timeout=timeout)
        return [_typed(result) for result in results]

    @overload
    def exists(self, key: str | bytes, *, timeout: float | None = None) -> bool: ...  # type: ignore[overload-overlap]

    @overload
    def exists(self, key: Sequence[Key], *, timeout: float | None = None) -> list[bool]: ...

    def exists(self, key: Key | Sequence[Key], *, timeout: float | None = None) -> bool | list[bool]:
        """Whether the object is there; for a list of keys, one answer per key.

        Yes grants a read lease: a get that starts within it does not fail while its owner lives.

        Raises:
            Timeout, Unreachable: The master did not answer in time.
        """
        pool = self._open()
        if isinstance(key, (str, bytes)):
            return bool(_ask(pool.exists, [key], timeout=timeout)[0])
        answers: list[bool] = _ask(pool.exists, list(key), timeout=timeout)
        return answers

    def size(self, key: Key, *, timeout: float | None = None) -> int:
        """Bytes of the object.

        Raises:
            NotFound: No such object.
        """
        size: int = _ask(self._open().size, key, timeout=timeout)
        return size

    def remove(self, key: Key, *, force: bool = False, timeout: float | None = None) -> None:
        """Removes the object.

        Args:
            force: Also when a lease protects it. Answers when no read that starts later sees it.

        Raises:
            NotFound: No such object.
            Leased: A read lease protects it, and `force` is False.
        """
        _ask(self._open().remove, key, force, timeout=timeout)

    def remove_batch(
        self, keys: Sequence[Key], *, force: bool = False, timeout: float | None = None
    ) -> list[errors.Error | None]:
        """Removes many objects in one go: one entry per key, None or the error (not raised), as `remove`."""
        results = _ask(self._open().remove_batch, list(keys), force, timeout=timeout)
        return [_typed(result) for result in results]

    def remove_all(
        self,
        *,
        prefix: Key | None = None,
        regex: str | None = None,
        force: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Removes all objects, or those whose key begins with `prefix` or contains a match of `regex`.

        Leased objects stay unless `force` is True.

        Returns:
            How many were removed.

        Raises:
            Invalid: Both `prefix` and `regex` are given, or the expression is not one of the `regex` crate's syntax.
        """
        pool = self._open()
        if prefix is not None and regex is not None:
            raise errors.invalid("give prefix or regex, not both")
        if prefix is not None:
            count = _ask(pool.remove_by_prefix, prefix, force, timeout=timeout)
        elif regex is not None:
            count = _ask(pool.remove_by_regex, regex, force, timeout=timeout)
        else:
            count = _ask(pool.remove_all, force, timeout=timeout)
        return int(count)

    def keys(self, prefix: Key = "") -> Iterator[Key]:
        """The keys that begin with `prefix`, in their order, asked for page by page while they are iterated.

        Objects that come or go meanwhile may or may not be seen. A key that is not UTF-8 comes as `bytes`.
        """
        pool = self._open()
        cursor = None
        while True:
            page, cursor = _ask(pool.list, prefix, LIST_PAGE, cursor)
            yield from page
            if cursor is None:
                return

    # -- memory ------------------------------------------------------------------------------------------------------

    def register(self, buffer: Buffer) -> Registration:
        """Makes writable memory known, so that objects are sent from it and received into it in place.

        Returns:
            A registration; close it (or leave its `with` block) before the memory goes away.

        Raises:
            Invalid: The memory is empty, not contiguous, or overlaps memory that is registered already.
        """
        _ask(self._open().register, buffer)
        return Registration(self, buffer)

    # -- the store itself --------------------------------------------------------------------------------------------

    def stat(self, *, timeout: float | None = None) -> dict[str, Any]:
        """What `snowskin stat --json` prints: term, objects, bytes, leased, and the nodes with their use."""
        result: dict[str, Any] = _ask(self._open().stat, timeout=timeout)
        return result

    def last_error(self) -> dict[str, Any] | None:
        """The error object of the last call that failed, or None."""
        if self._pool is None:
            return None
        result: dict[str, Any] | None = self._pool.last_error()
        return result

    @property
    def closed(self) -> bool:
        """True after `close`, and in a forked child."""
        return self._pool is None or bool(self._pool.closed)

    def close(self) -> None:
        """Ends the store: waits for calls under way (by their deadlines), gives up lent memory. Twice is harmless."""
        pool = self._pool
        if pool is not None:
            _ask(pool.close)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> Any:
        if self._pool is None:
            raise errors.invalid("the store was not opened")
        return self._pool


class Registration:
    """Memory that a store knows. Ends with `close`, which waits for calls that use the memory."""

    def __init__(self, store: Store, buffer: Buffer) -> None:
        self._store = store
        self._buffer = buffer

    @property
    def buffer(self) -> Buffer:
        """The memory, kept alive by this registration; None after `close`."""
        return self._buffer

    def close(self) -> None:
        """Makes the store forget the memory. Twice is harmless."""
        buffer = self._buffer
        if buffer is not None:
            self._buffer = None
            _ask(self._store._open().unregister, buffer)

    def __enter__(self) -> Registration:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _settings(
    master: str | None,
    segment_size: int | str,
    ssd: str | None,
    tenant: str,
    timeout: float | None,
) -> dict[str, Any]:
    if master is None:
        master = environment.master()
    if not isinstance(master, str):
        raise TypeError(f"master must be a str like 'host:50051', not {type(master).__name__}")
    if ssd is not None:
        raise errors.not_supported("ssd: there is no SSD tier yet; leave it out")
    try:
        size = parse_size(segment_size, name="segment_size")
    except ValueError as error:
        raise errors.invalid(str(error)) from None
    if not master and size == 0:
        size = EMBEDDED_SEGMENT_SIZE
    settings = environment.settings(one_timeout=True)
    settings.update(master=master, segment_size=size, tenant=tenant)
    if timeout is not None:
        if not timeout > 0:
            raise errors.invalid(f"timeout must be above 0 seconds, not {timeout!r}")
        settings["timeout_ms"] = max(1, round(timeout * 1000))
        settings["connect_timeout_ms"] = min(settings["timeout_ms"], CONNECT_TIMEOUT_MS)
    return settings


def _pairs(
    keys: Sequence[Key] | Mapping[Key, Buffer], datas: Sequence[Buffer] | None
) -> tuple[list[Key], list[Buffer]]:
    if datas is None:
        if not isinstance(keys, Mapping):
            raise TypeError("put_batch() takes keys and datas, or one mapping from keys to data")
        return list(keys.keys()), list(keys.values())
    if len(keys) != len(datas):
        raise errors.invalid(f"there are {len(keys)} keys but {len(datas)} buffers")
    return list(keys), list(datas)


def _ask(call: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls the native module; its error becomes the typed one."""
    try:
        return call(*args, **kwargs)
    except _native.NativeError as error:
        raise errors.from_native(error) from None
    except ValueError as error:
        raise errors.invalid(str(error)) from None


def _typed(result: Any) -> Any:
    return errors.from_native(result) if isinstance(result, _native.NativeError) else result
