"""The console command `mooncake_client`: a process that lends memory to the pool, and tells thin clients of its machine
(`setup_dummy`) which pool that is."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

from . import _flags

COMMAND = "mooncake_client"

FLAGS = {
    "host": _flags.Flag("str", "0.0.0.0", "name or address that peers are told, with an optional port"),
    "port": _flags.Flag("int", 50052, "port for thin clients"),
    "global_segment_size": _flags.Flag("str", "4 GB", "memory lent to the pool"),
    "local_buffer_size": _flags.Flag("str", "0", "staging memory"),
    "master_server_address": _flags.Flag("str", "127.0.0.1:50051", "the master, host:port"),
    "metadata_server": _flags.Flag("str", "http://127.0.0.1:8080/metadata", "has no meaning; its form is checked"),
    "protocol": _flags.Flag("str", "tcp", "transport"),
    "device_names": _flags.Flag("str", "", "has no meaning for tcp"),
    "threads": _flags.Flag("int", 1, "has no effect"),
    "tenant_id": _flags.Flag("str", "default", "name space of the keys"),
    "enable_offload": _flags.Flag("bool", False, "has no effect yet: there is no SSD tier"),
    "start_offload_rpc_server": _flags.Flag("bool", True, "has no effect yet: there is no SSD tier"),
    "enable_http_server": _flags.Flag("bool", False, "serve /health and /metrics"),
    "http_port": _flags.Flag("int", 9300, "port of that server"),
    "use_mmap_arena_allocator": _flags.Flag("bool", False, "has no effect"),
    "mmap_arena_pool_size": _flags.Flag("int", 8 << 30, "has no effect"),
    "ready_file": _flags.Flag("str", "", "also write the ready line to this file"),
    "log_dir": _flags.Flag("str", "", "has no effect: logs go to stderr"),
    "logtostderr": _flags.Flag("bool", True, "has no effect: logs go to stderr"),
    "alsologtostderr": _flags.Flag("bool", True, "has no effect: logs go to stderr"),
    "v": _flags.Flag("int", 0, "above 0: debug messages"),
    "minloglevel": _flags.Flag("int", 0, "0 info, 1 warning, 2 and 3 error"),
}
_WITHOUT_EFFECT = (
    "enable_offload",
    "start_offload_rpc_server",
    "use_mmap_arena_allocator",
    "mmap_arena_pool_size",
    "log_dir",
    "logtostderr",
    "alsologtostderr",
)

# Exit codes of the outside contract.
RUNTIME = 1
USAGE = 2
UNREACHABLE = 4

_USAGE_CODES = frozenset((-600, -1012, -102))
_UNREACHABLE_CODES = frozenset((-900, -901))

ENDS = {signal.SIGINT, signal.SIGTERM}


def main(words: list[str] | None = None) -> NoReturn:
    """Runs the command until SIGINT (exit code 130) or SIGTERM (143)."""
    words = sys.argv[1:] if words is None else words
    try:
        parsed = _flags.parse(words, FLAGS)
    except _flags.UsageError as error:
        _flags.leave_with_usage(COMMAND, error)
    if parsed.wants_help:
        print(_flags.help_text(COMMAND, "Lends memory of this machine to the pool.", FLAGS))
        raise SystemExit(0)
    if parsed.wants_version:
        from snowskin import __version__

        print(__version__)
        raise SystemExit(0)
    for name in _WITHOUT_EFFECT:
        if parsed.values[name] != FLAGS[name].default:
            print(f"{COMMAND}: warning: --{name} has no effect", file=sys.stderr)
    # Blocked before any thread starts, so that only the wait below takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    raise SystemExit(run(parsed.values))


def run(values: dict[str, Any]) -> int:
    """Joins the pool, serves, and leaves it at a signal. Returns the exit code."""
    import logging

    from snowskin.mooncake import client_http
    from snowskin.mooncake.store import MooncakeDistributedStore
    from snowskin.mooncake.web import Server, listen
    from snowskin.sizes import parse_size

    logging.basicConfig(level=_level(values), stream=sys.stderr)
    try:
        sizes = {
            name: parse_size(values[name], name=f"--{name}") for name in ("global_segment_size", "local_buffer_size")
        }
    except ValueError as error:
        return _failed(USAGE, str(error))
    listeners: list[socket.socket] = []
    try:
        # Bound before the pool is joined, so that a port in use is found first.
        listeners.append(listen("0.0.0.0", values["port"]))
        if values["enable_http_server"]:
            listeners.append(listen("0.0.0.0", values["http_port"]))
    except OSError as error:
        for listener in listeners:
            listener.close()
        return _failed(USAGE, str(error))
    store = MooncakeDistributedStore()
    code = store.setup(
        own_name(values["host"], values["master_server_address"]),
        values["metadata_server"],
        sizes["global_segment_size"],
        sizes["local_buffer_size"],
        values["protocol"],
        values["device_names"],
        values["master_server_address"],
        tenant_id=values["tenant_id"],
    )
    if code != 0:
        for listener in listeners:
            listener.close()
        return _failed(_exit_code(code), (store.last_error() or {}).get("message", f"setup answered {code}"))
    servers: list[Server] = []
    try:
        tables = (describe_routes(store, values), client_http.routes(store))
        servers = [
            Server("0.0.0.0", 0, routes, threads=2, listener=listener) for routes, listener in zip(tables, listeners)
        ]
        http = f"0.0.0.0:{servers[1].port}" if len(servers) > 1 else None
        try:
            announce(ready_line(store, f"0.0.0.0:{servers[0].port}", http), values["ready_file"])
        except OSError as error:
            return _failed(USAGE, f"--ready_file cannot be written: {error}")
        return 128 + signal.sigwait(ENDS)
    finally:
        for server in servers:
            server.close()
        store.close()


def describe_routes(store: Any, values: dict[str, Any]) -> Any:
    """What thin clients ask: the pool's master."""
    from snowskin.mooncake.daemon_link import PATH, SCHEMA
    from snowskin.mooncake.web import as_json

    answer = {
        "schema": SCHEMA,
        "master": values["master_server_address"],
        "tenant": values["tenant_id"],
        "segment": store.get_hostname(),
    }
    return {("GET", PATH): lambda _: as_json(200, answer)}


def ready_line(store: Any, rpc: str, http: str | None) -> dict[str, Any]:
    """The ready line of the outside contract."""
    described = store._describe()
    return {
        "event": "ready",
        "role": "node",
        "pid": os.getpid(),
        "rpc": rpc,
        "http": http,
        "data": described.get("data"),
        "node_id": described.get("node_id"),
        "epoch": described.get("epoch"),
        "term": described.get("term"),
        "ssd": [],
    }


def announce(line: dict[str, Any], file: str) -> None:
    """Prints the ready line, and writes it to a file that appears whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    text = json.dumps(line)
    if file:
        scratch = f"{file}.{os.getpid()}"
        with open(scratch, "w", encoding="utf-8") as handle:
            handle.write(text + "\n")
        os.replace(scratch, file)
    print(text, flush=True)


def own_name(host: str, master: str) -> str:
    """The name that peers are told: the given one, or for an any-address the one that the master is reached from."""
    name, separator, port = host.rpartition(":")
    if not separator or "]" in port or name.count(":") > 1:
        name, separator, port = host, "", ""
    if name not in ("", "0.0.0.0", "::", "[::]"):
        return host
    target, _, target_port = master.rpartition(":")
    own = "127.0.0.1"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # No packet is sent; the kernel only chooses the way.
            probe.connect((target, int(target_port)))
            own = str(probe.getsockname()[0])
    except (OSError, ValueError):
        # An address that leads nowhere is named by setup.
        pass
    return f"{own}:{port}" if separator and port else own


def _level(values: dict[str, Any]) -> str:
    if values["v"] > 0:
        return "DEBUG"
    return {0: "INFO", 1: "WARNING"}.get(values["minloglevel"], "ERROR")


def _exit_code(code: int) -> int:
    if code in _UNREACHABLE_CODES:
        return UNREACHABLE
    return USAGE if code in _USAGE_CODES else RUNTIME


def _failed(code: int, message: str) -> int:
    print(f"{COMMAND}: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
