"""The import name `mooncake`, owned by the wheel `snowskin-mooncake`: what is here comes from `snowskin.mooncake`.

No other package may own the name at the same time: whose `mooncake.store` is imported would be a matter of chance.
"""

from __future__ import annotations

from typing import Any

_LAZY = ("BufferPool", "RegisteredBufferPool")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from . import store

        return getattr(store, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _rivals() -> list[str]:
    """Distributions of the released package that lie beside this one."""
    import os
    import sys

    found = set()
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            plain = name.lower().replace("-", "_")
            if plain.startswith("mooncake_transfer_engine") and plain.endswith(("dist_info", "egg_info")):
                found.add(name.split("-")[0].replace("_", "-"))
    return sorted(found)


def _warn_of_rivals() -> None:
    rivals = _rivals()
    if rivals:
        import warnings

        warnings.warn(
            f"{', '.join(rivals)} is installed beside snowskin-mooncake, and both own the import name 'mooncake': "
            "which one is used is not certain. Uninstall one of them, then install the other one again.",
            RuntimeWarning,
            stacklevel=3,
        )


_warn_of_rivals()
