"""The compatible store with an `async_<name>` for each of its methods."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from .store import MooncakeDistributedStore

_PREFIX = "async_"


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    """The store; `await store.async_get(key)` runs `get` on the event loop's default executor, and so on.

    Cancelling such a call does not stop it: the caller's memory belongs to it until the method has ended.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        plain = name[len(_PREFIX) :]
        if not name.startswith(_PREFIX) or plain.startswith("_") or not hasattr(type(self), plain):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        method = getattr(self, plain)

        @functools.wraps(method)
        async def run(*args: Any, **kwargs: Any) -> Any:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, functools.partial(method, *args, **kwargs))

        return run
