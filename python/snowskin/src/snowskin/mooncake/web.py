"""A small HTTP server for the services around the store: bounded threads, one request per connection.

Owns: sockets, threads and limits. What is answered comes from the routes.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

log = logging.getLogger("snowskin")

BODY_MAX = 100 << 20
"""Bytes of a request's body, unless the server says otherwise."""

THREADS = 8
WAITING_MAX = 64
"""Connections that wait for a thread; more are answered 503 at once."""

SOCKET_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0


class Request(NamedTuple):
    """What a route gets."""

    path: str
    query: Mapping[str, str]
    body: bytes
    headers: Mapping[str, str]


class Answer(NamedTuple):
    """What a route gives."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


Route = Callable[[Request], Answer]


def text(status: int, body: str) -> Answer:
    """A plain text."""
    return Answer(status, body.encode())


def as_json(status: int, body: Any) -> Answer:
    """A JSON value."""
    return Answer(status, json.dumps(body).encode(), "application/json")


class Server:
    """Serves routes on one address from its own threads until `close`.

    Args:
        routes: `(method, path)` to route. A path that ends in `*` takes what begins like it; `request.path` is whole.
        body_max: Bytes of a body; a longer one is answered 413.
        unknown_method: Status for a known path with another method.

    Raises:
        OSError: The address cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int,
        routes: Mapping[tuple[str, str], Route],
        *,
        body_max: int = BODY_MAX,
        unknown_method: int = 405,
        threads: int = THREADS,
        listener: socket.socket | None = None,
    ) -> None:
        self._routes = dict(routes)
        self._server = _Server(
            listener or listen(host, port), _handler(self._routes, body_max, unknown_method), threads
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name="snowskin-http", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    @property
    def host(self) -> str:
        """The address that is listened on."""
        return str(self._server.server_address[0])

    def close(self) -> None:
        """Stops listening, takes no more requests, and waits for those under way (2 s, then their connections are
        cut). Twice is harmless."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self) -> None:
        """Waits until another thread closes the server."""
        self._thread.join()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on `host:port`; port 0 lets the system choose.

    Raises:
        OSError: The address cannot be used; the message names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        raise OSError(f"cannot listen on {host}:{port}: {error}") from error
    return listener


class _Server(TCPServer):
    def __init__(self, listener: socket.socket, handler: Any, threads: int) -> None:
        super().__init__(listener.getsockname()[:2], handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="snowskin-http")
        self._room = threading.BoundedSemaphore(threads + WAITING_MAX)
        self._change = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._is_closing = False

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            try:
                request.settimeout(1.0)
                request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            except OSError:
                pass
            self.shutdown_request(request)
            return
        with self._change:
            self._connections.add(request)
        self._threads.submit(self._serve, request, client_address)

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            if not self._is_closing:
                self.finish_request(request, client_address)
        except Exception as error:
            # A peer that leaves in the middle is no matter of ours.
            log.debug("http: connection of %s ended: %s", client_address, error)
        finally:
            with self._change:
                self._connections.discard(request)
                self._change.notify_all()
            self.shutdown_request(request)
            self._room.release()

    def server_close(self) -> None:
        super().server_close()
        self._is_closing = True
        # What has not been asked yet is not waited for; answers still go out.
        self._cut(socket.SHUT_RD)
        with self._change:
            self._change.wait_for(lambda: not self._connections, CLOSE_TIMEOUT_S)
        self._cut(socket.SHUT_RDWR)
        self._threads.shutdown(wait=True)

    def _cut(self, how: int) -> None:
        with self._change:
            for connection in self._connections:
                try:
                    connection.shutdown(how)
                except OSError:
                    # The peer was quicker.
                    pass


def _handler(routes: dict[tuple[str, str], Route], body_max: int, unknown_method: int) -> Any:
    paths = {path for _, path in routes}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = SOCKET_TIMEOUT_S

        def _answer(self) -> None:
            self.close_connection = True
            answer = self._find()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def _find(self) -> Answer:
            parts = urlsplit(self.path)
            path = unquote(parts.path)
            method = "GET" if self.command == "HEAD" else self.command
            pattern = _match(paths, path)
            if pattern is None:
                return text(404, "not found")
            route = routes.get((method, pattern))
            if route is None:
                return text(unknown_method, "this method is not allowed here")
            query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
            body = self._body()
            if isinstance(body, Answer):
                return body
            try:
                return route(Request(path, query, body, {k.lower(): v for k, v in self.headers.items()}))
            except Exception:
                log.exception("http: %s %s failed", self.command, path)
                return text(500, "internal error")

        def _body(self) -> Any:
            if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
                return self._chunks()
            length = self.headers.get("Content-Length", "0")
            if not length.isdigit():
                return text(400, "Content-Length is no number")
            if int(length) > body_max:
                return text(413, f"a body of at most {body_max} bytes is allowed")
            return self.rfile.read(int(length))

        def _chunks(self) -> Any:
            body = bytearray()
            while True:
                try:
                    size = int(self.rfile.readline(64).split(b";")[0], 16)
                except ValueError:
                    return text(400, "a chunk's size is no number")
                if size < 0 or len(body) + size > body_max:
                    return text(413, f"a body of at most {body_max} bytes is allowed")
                body += self.rfile.read(size)
                self.rfile.readline(2 if size else 65536)
                if size == 0:
                    return bytes(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = do_OPTIONS = _answer

        def log_message(self, format: str, *args: Any) -> None:
            log.debug("http: %s", format % args)

    return Handler


def _match(patterns: Any, path: str) -> str | None:
    if path in patterns:
        return path
    found = [p for p in patterns if p.endswith("*") and path.startswith(p[:-1]) and len(path) >= len(p)]
    return max(found, key=len, default=None)
