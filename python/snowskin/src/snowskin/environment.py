"""What the process's environment says about a store; docs/design/python.md and the outside contract list the names."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from .sizes import parse_switch

log = logging.getLogger("snowskin")

PREFIX = "SNOWSKIN_"
# What one of our processes or their tests reads; a Python process need not heed all of them.
KNOWN = frozenset(
    PREFIX + name
    for name in (
        "BIN",
        "CONFIG",
        "DRIVER_LIBRARIES",
        "LOG",
        "LOG_FORMAT",
        "MASTER",
        "SAME_HOST",
        "STRICT_BUFFERS",
        "TIMEOUT_MS",
        "TOKEN_FILE",
    )
)
# Names of tests and of what runs them.
KNOWN_STARTS = (PREFIX + "TEST_", PREFIX + "CLIENTS_")
_told: set[str] = set()


def unknown(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that carry our prefix and that nothing reads, each with the known one that is nearest."""
    environment = os.environ if environment is None else environment
    found = [
        name
        for name in environment
        if name.startswith(PREFIX) and name not in KNOWN and not name.startswith(KNOWN_STARTS)
    ]
    if not found:
        return {}
    # Not wanted at every import.
    import difflib

    return {name: difflib.get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.0)[0] for name in sorted(found)}


def _warn_of_unknown(environment: Mapping[str, str]) -> None:
    """Says once per process and name what a slip of the pen would hide, such as buffers that are not strict."""
    for name, nearest in unknown(environment).items():
        if name not in _told:
            _told.add(name)
            log.warning("%s is not known and has no effect; the nearest known one is %s", name, nearest)


def master(environment: Mapping[str, str] | None = None) -> str:
    """The master's address, or `""` when none is named."""
    environment = os.environ if environment is None else environment
    return environment.get("SNOWSKIN_MASTER") or environment.get("MOONCAKE_MASTER") or ""


def settings(environment: Mapping[str, str] | None = None, *, one_timeout: bool = False) -> dict[str, Any]:
    """The settings of the native module that come from the environment.

    Args:
        one_timeout: The store has one deadline for all calls, which only our own variable sets.

    A variable whose value is not allowed has no effect and is named in a warning; a token file that cannot be read
    is an `OSError`, since going on without it would look like a refusal by the master.
    """
    environment = os.environ if environment is None else environment
    _warn_of_unknown(environment)
    result: dict[str, Any] = {"log": environment.get("SNOWSKIN_LOG") or "warn"}
    strict = environment.get("SNOWSKIN_STRICT_BUFFERS")
    if strict and parse_switch(strict):
        result["strict_buffers"] = True
    numbers = [
        ("MC_STORE_CLIENT_MIN_PORT", "min_port", 1),
        ("MC_STORE_CLIENT_MAX_PORT", "max_port", 1),
        ("MC_STORE_CLIENT_SETUP_RETRIES", "port_tries", 1),
        ("SNOWSKIN_TIMEOUT_MS", "timeout_ms", 1),
    ]
    if not one_timeout:
        # The last one that is set counts: our own variable.
        numbers.insert(0, ("MC_RPC_TIMEOUT_MS", "timeout_ms", 1))
        numbers.append(("MC_RPC_CONNECT_TIMEOUT_MS", "connect_timeout_ms", 1))
        numbers.append(("MC_TRANSFER_TIMEOUT", "transfer_timeout_ms", 1000))
    for variable, setting, factor in numbers:
        number = _above_zero(environment, variable)
        if number is not None:
            result[setting] = number * factor
    host = environment.get("MC_TCP_BIND_ADDRESS")
    if host:
        result["bind"] = host
    token = environment.get("SNOWSKIN_TOKEN_FILE")
    if token:
        with open(token, "rb") as file:
            result["token"] = file.read().strip()
    return result


def _above_zero(environment: Mapping[str, str], variable: str) -> int | None:
    text = environment.get(variable)
    if not text:
        return None
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    log.warning("%s is %r but must be a whole number above 0; it has no effect", variable, text)
    return None
