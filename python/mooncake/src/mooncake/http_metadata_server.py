"""The HTTP key-value server in which transfer engines find each other: the console command
`mooncake_http_metadata_server`, and the same beside a master.

One path, `/metadata?key=...`: GET gives the bytes or 404, PUT keeps them, DELETE forgets them. A key that contains
`rpc_meta` names a process and is not overwritten. Everything is in memory and bounded.
"""

from __future__ import annotations

import enum
import os
import signal
import sys
import threading
from typing import NoReturn

from snowskin.mooncake.web import Answer, Request, Route, Server, listen, text

from . import _flags

COMMAND = "mooncake_http_metadata_server"

ENTRIES_MAX = 100_000
ENTRY_BYTES_MAX = 4 << 20
TOTAL_BYTES_MAX = 1 << 30

FLAGS = {
    "port": _flags.Flag("int", 8080, "port to listen on"),
    "host": _flags.Flag("str", "0.0.0.0", "address to listen on"),
    "log_level": _flags.Flag("str", "INFO", "DEBUG, INFO, WARNING or ERROR"),
}


class KVPoll(enum.IntEnum):
    """States of `KVBootstrapServer`."""

    Failed = 0
    Bootstrapping = 1
    WaitingForInput = 2
    Transferring = 3
    Success = 4


class Metadata:
    """The entries and what is answered about them.

    Args:
        is_beside_master: The variant of the master: an identical PUT of an `rpc_meta` key succeeds, `/health`
            answers, and other methods are 404 instead of 405.
    """

    def __init__(self, *, is_beside_master: bool = False) -> None:
        self._is_beside_master = is_beside_master
        self._entries: dict[str, bytes] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def serve(self, host: str, port: int, listener: object = None) -> Server:
        """Serves the entries from threads of their own.

        Raises:
            OSError: The address cannot be used.
        """
        routes: dict[tuple[str, str], Route] = {
            ("GET", "/metadata"): self.get,
            ("PUT", "/metadata"): self.put,
            ("DELETE", "/metadata"): self.delete,
        }
        if self._is_beside_master:
            routes["GET", "/health"] = lambda _: text(200, "OK")
        return Server(
            host,
            port,
            routes,
            body_max=ENTRY_BYTES_MAX,
            unknown_method=404 if self._is_beside_master else 405,
            listener=listener,  # type: ignore[arg-type]
        )

    def get(self, request: Request) -> Answer:
        """200 with the bytes, or 404."""
        key = request.query.get("key")
        if not key:
            return _no_key()
        with self._lock:
            value = self._entries.get(key)
        return text(404, "metadata not found") if value is None else Answer(200, value, "application/json")

    def put(self, request: Request) -> Answer:
        """200; 400 for an `rpc_meta` key that is there; 507 when the bounds are reached."""
        key = request.query.get("key")
        if not key:
            return _no_key()
        with self._lock:
            old = self._entries.get(key)
            if old is not None and "rpc_meta" in key:
                if self._is_beside_master and old == request.body:
                    return text(200, "metadata unchanged")
                return text(400, f"the key {key} is in use: names of processes are not overwritten")
            size = self._bytes - len(old or b"") + len(request.body)
            if (old is None and len(self._entries) >= ENTRIES_MAX) or size > TOTAL_BYTES_MAX:
                return text(507, "the server holds as much as it may")
            self._entries[key] = request.body
            self._bytes = size
        return text(200, "metadata updated")

    def delete(self, request: Request) -> Answer:
        """200, or 404 when it is not there."""
        key = request.query.get("key")
        if not key:
            return _no_key()
        with self._lock:
            old = self._entries.pop(key, None)
            if old is None:
                return text(404, "metadata not found")
            self._bytes -= len(old)
        return text(200, "metadata deleted")


class KVBootstrapServer:
    """The server as an object: `run` starts it, `close` ends it."""

    def __init__(self, port: int, host: str = "0.0.0.0") -> None:
        self._host = host
        self._port = port
        self._server: Server | None = None

    def run(self) -> None:
        """Starts serving from threads of its own.

        Raises:
            OSError: The address cannot be used.
        """
        if self._server is None:
            self._server = Metadata().serve(self._host, self._port)
            self._port = self._server.port

    def poll(self) -> KVPoll:
        """`Success` while it serves, else `Failed`."""
        return KVPoll.Failed if self._server is None else KVPoll.Success

    def close(self) -> None:
        """Stops serving. Twice is harmless."""
        server, self._server = self._server, None
        if server is not None:
            server.close()


def _no_key() -> Answer:
    return text(400, "the parameter 'key' is missing or empty")


def start_beside(host: str, port: int) -> int:
    """Serves from a child process that ends with this one, also when this one becomes another program.

    Returns:
        The child's process id.

    Raises:
        OSError: The address cannot be used.
    """
    # Bound here, so that a port in use is found before the master starts.
    listener = listen(host, port)
    parent = os.getpid()
    child = os.fork()
    if child:
        listener.close()
        return child
    try:
        _die_with(parent)
        null = os.open(os.devnull, os.O_RDWR)
        # The ready line's reader must see the end of the stream when the master ends.
        os.dup2(null, 0)
        os.dup2(null, 1)
        Metadata(is_beside_master=True).serve(host, port, listener).wait()
    finally:
        os._exit(1)


def _die_with(parent: int) -> None:
    """Asks the kernel for SIGTERM when the parent ends."""
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        # It ended before the kernel was asked.
        os._exit(0)


def main(words: list[str] | None = None) -> NoReturn:
    """Runs the command until SIGINT or SIGTERM."""
    words = sys.argv[1:] if words is None else words
    try:
        parsed = _flags.parse(words, FLAGS)
    except _flags.UsageError as error:
        _flags.leave_with_usage(COMMAND, error)
    if parsed.wants_help:
        print(_flags.help_text(COMMAND, "Keeps what transfer engines say of themselves.", FLAGS))
        raise SystemExit(0)
    if parsed.wants_version:
        from snowskin import __version__

        print(__version__)
        raise SystemExit(0)
    import json
    import logging

    level = str(parsed.values["log_level"]).upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        _flags.leave_with_usage(COMMAND, _flags.UsageError(f"--log-level {level} is not known"))
    logging.basicConfig(level=level, stream=sys.stderr)
    ends = {signal.SIGINT, signal.SIGTERM}
    # Blocked before any thread starts, so that only the wait below takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        server = Metadata().serve(parsed.values["host"], parsed.values["port"])
    except OSError as error:
        print(f"{COMMAND}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    ready = {"event": "ready", "role": "metadata", "pid": os.getpid(), "http": f"{server.host}:{server.port}"}
    print(json.dumps(ready), flush=True)
    signal.sigwait(ends)
    server.close()
    raise SystemExit(0)


if __name__ == "__main__":
    main()
