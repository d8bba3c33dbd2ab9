"""Binding a thread to the processors of one memory node."""

from __future__ import annotations

import logging
import os

log = logging.getLogger("snowskin")

_NODES = "/sys/devices/system/node"


def bind_to_numa_node(node: int) -> None:
    """Lets the calling thread run on the processors of `node` only.

    Memory that the thread touches first comes from that node then, which is the kernel's default. A node that is not
    there, or a system that does not allow it, is said in a warning and changes nothing.
    """
    try:
        with open(f"{_NODES}/node{int(node)}/cpulist", encoding="ascii") as file:
            processors = parse_list(file.read())
    except (OSError, ValueError) as error:
        log.warning("bind_to_numa_node(%s): there is no such node: %s", node, error)
        return
    allowed = processors & os.sched_getaffinity(0)
    if not allowed:
        log.warning("bind_to_numa_node(%s): none of its processors may be used by this thread", node)
        return
    try:
        os.sched_setaffinity(0, allowed)
    except OSError as error:
        log.warning("bind_to_numa_node(%s): %s", node, error)


def parse_list(text: str) -> set[int]:
    """The numbers of a kernel list such as `0-3,8`."""
    result: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            result.update(range(int(first), int(last or first) + 1))
    return result
