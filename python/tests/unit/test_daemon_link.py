"""How a thin client asks the daemon of its machine for the pool."""

import socket

import pytest

from mooncake.cli_client import own_name
from snowskin.mooncake.daemon_link import PATH, SCHEMA, NoDaemon, describe
from snowskin.mooncake.store import MooncakeDistributedStore
from snowskin.mooncake.web import Server, as_json, text


@pytest.fixture
def daemon():
    servers = []

    def serve(answer):
        servers.append(Server("127.0.0.1", 0, {("GET", PATH): lambda request: answer}))
        return f"127.0.0.1:{servers[-1].port}"

    yield serve
    for server in servers:
        server.close()


def test_the_daemon_says_its_master(daemon):
    address = daemon(as_json(200, {"schema": SCHEMA, "master": "m:1", "tenant": "t"}))
    assert describe(address)["master"] == "m:1"


def test_something_else_at_the_address_is_no_daemon(daemon):
    for answer in (text(200, "hello"), text(404, ""), as_json(200, {"schema": "x"}), as_json(200, [1])):
        with pytest.raises(NoDaemon):
            describe(daemon(answer))


def test_nobody_at_the_address():
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    with pytest.raises(NoDaemon, match="refused"):
        describe(f"127.0.0.1:{probe.getsockname()[1]}")
    probe.close()


def test_a_silent_listener_is_given_up():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    with pytest.raises(NoDaemon):
        describe(f"127.0.0.1:{listener.getsockname()[1]}", timeout=0.1)
    listener.close()


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:0", "host:65536"])
def test_what_is_no_address(address):
    with pytest.raises(NoDaemon, match="host:port"):
        describe(address)


def test_setup_dummy_without_a_daemon_is_a_code():
    store = MooncakeDistributedStore()
    assert store.setup_dummy(1 << 20, 1 << 20, "127.0.0.1:1") == -1
    assert "127.0.0.1:1" in store.last_error()["message"]
    assert store.setup_dummy(1 << 20, 1 << 20, "\ud800:1") == -1
    assert "server_address" in store.last_error()["message"]


@pytest.mark.parametrize(
    "arguments", [("1", 1, "h:1"), (1, None, "h:1"), (1, 1, 3), (-1, 1, "h:1"), (1, 1 << 64, "h:1")]
)
def test_setup_dummy_takes_numbers_and_a_text(arguments):
    with pytest.raises(TypeError, match="setup_dummy"):
        MooncakeDistributedStore().setup_dummy(*arguments)


def test_the_name_that_peers_are_told():
    assert own_name("10.0.0.1", "127.0.0.1:5") == "10.0.0.1"
    assert own_name("host:7", "127.0.0.1:5") == "host:7"
    assert own_name("0.0.0.0", "127.0.0.1:5") == "127.0.0.1"
    assert own_name("0.0.0.0:7", "127.0.0.1:5") == "127.0.0.1:7"
    assert own_name("", "127.0.0.1:5") == "127.0.0.1"
