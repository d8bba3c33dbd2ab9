"""Sizes and switches as people write them: `4 GB`, `512mib`, `0.5g`, `on`.

Units are powers of 1024 whatever their spelling, as the command line and the compatible configuration files have it.
"""

from __future__ import annotations

import re
from typing import Any

_UNITS = {
    "": 1,
    "b": 1,
    **{
        spelling: 1024**power
        for power, letter in enumerate("kmgt", start=1)
        for spelling in (letter, letter + "b", letter + "ib")
    },
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z]*)\s*\Z")

SIZE_MAX = 2**64 - 1

_TRUE = frozenset(("1", "true", "yes", "on", "t", "y", "enable"))
_FALSE = frozenset(("0", "false", "no", "off", "f", "n", "disable"))


def parse_size(value: Any, *, name: str = "size") -> int:
    """Bytes of an int, or of a text with an optional unit.

    Raises:
        ValueError: The value is negative, has no number, an unknown unit, or does not fit 64 bits; the message names
            `name` and what is allowed.
    """
    if isinstance(value, bool):
        raise ValueError(f"{name} must be a number of bytes or a text like '4 GB', not {value!r}")
    if isinstance(value, int):
        size = value
    else:
        size = _parse_text(str(value), name)
    if not 0 <= size <= SIZE_MAX:
        raise ValueError(f"{name} must be between 0 and {SIZE_MAX} bytes, not {value!r}")
    return size


def _parse_text(text: str, name: str) -> int:
    found = _SIZE.match(text)
    unit = _UNITS.get(found.group(2).lower()) if found else None
    if found is None or unit is None:
        raise ValueError(
            f"{name} must be a number of bytes with an optional unit (B, KB, MB, GB, TB or KiB..TiB), not {text!r}"
        )
    digits = found.group(1)
    # Whole numbers stay exact; a float has only 53 bits.
    return int(float(digits) * unit) if "." in digits else int(digits) * unit


def parse_switch(value: Any) -> bool | None:
    """True, False, or None when the text is neither."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    return None
