"""The HTTP server in which transfer engines find each other, and the small server below it."""

import http.client
import os
import signal
import socket
import time

import pytest

from mooncake.http_metadata_server import KVBootstrapServer, KVPoll, Metadata, start_beside
from snowskin.mooncake.web import THREADS, WAITING_MAX, Answer, Server


@pytest.fixture(params=[False, True], ids=["script", "master"])
def server(request):
    running = Metadata(is_beside_master=request.param).serve("127.0.0.1", 0)
    running.is_beside_master = request.param
    yield running
    running.close()


def ask_of(server):
    return ask(server.port, "GET", "/metadata?key=a")[0]


def ask(port, method, path, body=None, headers=()):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_entries_are_kept_and_forgotten(server):
    path = "/metadata?key=mooncake%2Fram%2Fhost%3A1"
    assert ask(server.port, "GET", path) == (404, b"metadata not found")
    assert ask(server.port, "PUT", path, b"{}") == (200, b"metadata updated")
    assert ask(server.port, "PUT", path, b"\x00\xff") == (200, b"metadata updated")
    assert ask(server.port, "GET", path) == (200, b"\x00\xff")
    assert ask(server.port, "DELETE", path) == (200, b"metadata deleted")
    assert ask(server.port, "DELETE", path)[0] == 404


def test_a_process_name_is_not_overwritten(server):
    path = "/metadata?key=mooncake/rpc_meta/host:1"
    assert ask(server.port, "PUT", path, b"a")[0] == 200
    same = ask(server.port, "PUT", path, b"a")
    assert same == (200, b"metadata unchanged") if server.is_beside_master else same[0] == 400
    assert ask(server.port, "PUT", path, b"b")[0] == 400
    assert ask(server.port, "GET", path) == (200, b"a")


def test_a_missing_key_is_400(server):
    for path in ("/metadata", "/metadata?key=", "/metadata?other=1"):
        assert ask(server.port, "GET", path)[0] == 400


def test_other_methods_and_paths(server):
    assert ask(server.port, "POST", "/metadata?key=a", b"")[0] == (404 if server.is_beside_master else 405)
    health = ask(server.port, "GET", "/health")
    assert health == ((200, b"OK") if server.is_beside_master else (404, b"not found"))


def test_a_body_in_chunks_is_taken(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request("PUT", "/metadata?key=a", iter([b"ab", b"c"]), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})  # fmt: skip
    assert connection.getresponse().status == 200
    connection.close()
    assert ask(server.port, "GET", "/metadata?key=a") == (200, b"abc")


def test_a_body_that_is_too_long_is_413():
    server = Server("127.0.0.1", 0, {("PUT", "/x"): lambda request: Answer(200, b"")}, body_max=10)
    try:
        assert ask(server.port, "PUT", "/x", b"1" * 10)[0] == 200
        assert ask(server.port, "PUT", "/x", b"1" * 11)[0] == 413
    finally:
        server.close()


def test_a_route_that_fails_is_500_and_the_server_lives(caplog):
    def fail(request):
        raise RuntimeError("no")

    server = Server("127.0.0.1", 0, {("GET", "/x"): fail, ("GET", "/y/*"): lambda r: Answer(200, r.path.encode())})
    try:
        assert ask(server.port, "GET", "/x")[0] == 500
        assert ask(server.port, "GET", "/y/a%20b/c") == (200, b"/y/a b/c")
        assert ask(server.port, "GET", "/y/")[0] == 404
    finally:
        server.close()


def test_closing_frees_the_port():
    server = Metadata().serve("127.0.0.1", 0)
    port = server.port
    server.close()
    server.close()
    again = Metadata().serve("127.0.0.1", port)
    again.close()


def test_a_silent_connection_does_not_hold_up_closing():
    server = Metadata().serve("127.0.0.1", 0)
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(THREADS - 1)]
    # Answered after the silent ones were accepted.
    assert ask_of(server) == 404
    began = time.monotonic()
    server.close()
    assert time.monotonic() - began < 4
    for connection in silent:
        connection.close()


def test_more_connections_than_may_wait_are_refused():
    server = Server("127.0.0.1", 0, {}, threads=1)
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(1 + WAITING_MAX)]
    extra = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    assert b" 503 " in extra.recv(64)
    extra.close()
    for connection in held:
        connection.close()
    server.close()


def test_a_port_in_use_is_named():
    server = Metadata().serve("127.0.0.1", 0)
    try:
        with pytest.raises(OSError, match=str(server.port)):
            Metadata().serve("127.0.0.1", server.port)
    finally:
        server.close()


def test_the_object_form():
    server = KVBootstrapServer(0, "127.0.0.1")
    assert server.poll() == KVPoll.Failed
    server.run()
    assert server.poll() == KVPoll.Success
    server.close()
    server.close()
    assert server.poll() == KVPoll.Failed


def test_the_server_beside_a_master_ends_with_it():
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    ready_read, ready_write = os.pipe()
    master = os.fork()
    if master == 0:
        # The master's part: starts the server, then becomes another program and waits.
        try:
            child = start_beside("127.0.0.1", port)
            os.write(ready_write, f"{child}\n".encode())
            os.execvp("sleep", ["sleep", "30"])
        finally:
            os._exit(1)
    os.close(ready_write)
    child = int(os.read(ready_read, 32))
    os.close(ready_read)
    watch = os.pidfd_open(child)
    try:
        assert ask(port, "GET", "/health") == (200, b"OK")
    finally:
        os.kill(master, signal.SIGKILL)
        os.waitpid(master, 0)
    import select

    assert select.select([watch], [], [], 5)[0], "the metadata server outlived its master"
    os.close(watch)
