"""The HTTP side of one client: `/health`, `/metrics`, `/metrics/summary`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .web import Answer, Request, Route, Server, as_json, text

_NAME = re.compile(r"[^a-zA-Z0-9_]")
_STATES = {0: "healthy", 1: "not set up", 2: "the master does not answer"}


def routes(store: Any) -> dict[tuple[str, str], Route]:
    """The routes for a store of the compatible interface."""

    def health(_: Request) -> Answer:
        code = store.health_check()
        return as_json(200 if code == 0 else 503, {"status": _STATES.get(code, "unhealthy"), "code": code})

    def metrics(_: Request) -> Answer:
        return text(200, exposition(store.counters()))

    def summary(_: Request) -> Answer:
        counters = store.counters()
        return text(200, ", ".join(f"{name}={counters[name]}" for name in sorted(counters)) + "\n")

    return {("GET", "/health"): health, ("GET", "/metrics"): metrics, ("GET", "/metrics/summary"): summary}


def serve(store: Any, port: int, host: str = "0.0.0.0") -> Server:
    """Serves the routes of a store.

    Raises:
        OSError: The port cannot be used.
    """
    return Server(host, port, routes(store), threads=2)


def exposition(counters: Mapping[str, Any]) -> str:
    """Counters in the text form that Prometheus reads."""
    lines = []
    for name in sorted(counters):
        value = counters[name]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            metric = "snowskin_client_" + _NAME.sub("_", name)
            metric += "" if metric.endswith("_total") else "_total"
            lines += [f"# TYPE {metric} counter", f"{metric} {value}"]
    return "\n".join(lines) + "\n"
