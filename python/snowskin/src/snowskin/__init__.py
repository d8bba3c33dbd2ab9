"""A key-value cache for large immutable objects, shared by the processes of a cluster.

    import snowskin

    with snowskin.Store(segment_size="256 MiB") as store:      # everything in this process
        store.put("hello", b"world")
        assert store.get("hello") == b"world"

`snowskin.Store("host:50051")` speaks to a cluster instead, `snowskin.aio.Store` is the same for asyncio, and
`snowskin.mooncake` holds the classes behind the import name `mooncake`.
"""

from __future__ import annotations

from typing import Any

from . import errors
from ._native import __version__
from .errors import (
    Corrupt,
    Error,
    Exists,
    Invalid,
    Leased,
    NoSpace,
    NotFound,
    NotSupported,
    Timeout,
    Unreachable,
)
from .store import Registration, Store

__all__ = [
    "Corrupt",
    "Error",
    "Exists",
    "Invalid",
    "Leased",
    "NoSpace",
    "NotFound",
    "NotSupported",
    "Registration",
    "Store",
    "Timeout",
    "Unreachable",
    "__version__",
    "aio",
    "errors",
    "mooncake",
]


def __getattr__(name: str) -> Any:
    # asyncio alone would take a third of the import's time; it is loaded when it is asked for.
    if name in ("aio", "mooncake"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
