"""The modules and programs beside the store: configuration, REST service, HTTP metadata server."""

import json
import signal
import urllib.error
import urllib.parse
import urllib.request

import pytest

import sides
from mooncake.mooncake_config import MooncakeConfig
from sides import MIB

VARIABLES = (
    "MOONCAKE_CONFIG_PATH", "MOONCAKE_MASTER", "MOONCAKE_LOCAL_HOSTNAME", "MOONCAKE_TE_META_DATA_SERVER",
    "MOONCAKE_GLOBAL_SEGMENT_SIZE", "MOONCAKE_LOCAL_BUFFER_SIZE", "MOONCAKE_PROTOCOL", "MOONCAKE_DEVICE",
    "MOONCAKE_OFFLOAD_ENABLED", "MOONCAKE_TENANT_ID", "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER", "MOONCAKE_CLIENT_HTTP_PORT",
)

# ----------------------------------------------------------------------------- configuration


@pytest.fixture
def clean(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.fixture
def file(tmp_path, clean):
    def write(**entries):
        base = {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "master_server_address": "m:1"}
        path = tmp_path / "config.json"
        path.write_text(json.dumps({k: v for k, v in {**base, **entries}.items() if v is not ...}))
        return str(path)

    return write


def test_a_file_with_what_is_required_gets_the_defaults(file):
    config = MooncakeConfig.from_file(file())
    assert (config.local_hostname, config.metadata_server, config.master_server_address) == ("h", "P2PHANDSHAKE", "m:1")
    assert (config.global_segment_size, config.local_buffer_size) == (3355443200, 1073741824)
    assert (config.protocol, config.device_name, config.tenant_id) == ("tcp", "", "default")
    assert (config.enable_ssd_offload, config.ssd_offload_path) == (False, "")
    assert (config.enable_client_http_server, config.client_http_port) == (False, 9300)


def test_the_environment_gets_its_own_defaults(clean):
    clean.setenv("MOONCAKE_MASTER", "m:2")
    config = MooncakeConfig.load_from_env()
    assert (config.local_hostname, config.metadata_server, config.master_server_address) == (
        "localhost", "P2PHANDSHAKE", "m:2",
    )
    assert config.global_segment_size == 3355443200


def test_a_file_named_by_the_environment_wins(file, clean):
    clean.setenv("MOONCAKE_CONFIG_PATH", file(protocol="RDMA"))
    clean.setenv("MOONCAKE_MASTER", "other:2")
    config = MooncakeConfig.load_from_env()
    assert (config.master_server_address, config.protocol) == ("m:1", "rdma")


def test_neither_file_nor_master_is_an_error(clean):
    with pytest.raises(ValueError):
        MooncakeConfig.load_from_env()


@pytest.mark.parametrize("missing", ["local_hostname", "metadata_server", "master_server_address"])
def test_what_is_required_must_be_there(file, missing):
    with pytest.raises(ValueError):
        MooncakeConfig.from_file(file(**{missing: ...}))


@pytest.mark.parametrize(
    "text,bytes_", [(1024, 1024), ("1024", 1024), ("1kb", 1024), ("2 MB", 2 * MIB), ("1.5g", 3 * 512 * MIB), ("1TB", 1 << 40)]
)
def test_sizes_have_units(file, text, bytes_):
    assert MooncakeConfig.from_file(file(global_segment_size=text)).global_segment_size == bytes_


@pytest.mark.parametrize("size", [-1, "-1", "lots", "1XB"])
def test_sizes_that_make_no_sense_raise(file, size):
    with pytest.raises(ValueError):
        MooncakeConfig.from_file(file(global_segment_size=size))


@pytest.mark.parametrize("word,value", [("true", True), ("on", True), (1, True), ("no", False), ("", False), (None, False)])
def test_flags_are_words(file, word, value):
    assert MooncakeConfig.from_file(file(enable_ssd_offload=word)).enable_ssd_offload is value


def test_a_flag_nobody_knows_raises(file):
    with pytest.raises(ValueError):
        MooncakeConfig.from_file(file(enable_ssd_offload="perhaps"))


def test_the_environment_is_read_in_full(clean):
    clean.setenv("MOONCAKE_MASTER", "m:2")
    clean.setenv("MOONCAKE_LOCAL_HOSTNAME", "here")
    clean.setenv("MOONCAKE_TE_META_DATA_SERVER", "http://x/metadata")
    clean.setenv("MOONCAKE_GLOBAL_SEGMENT_SIZE", "64mb")
    clean.setenv("MOONCAKE_LOCAL_BUFFER_SIZE", "16mb")
    clean.setenv("MOONCAKE_PROTOCOL", "TCP")
    clean.setenv("MOONCAKE_DEVICE", "eth0")
    clean.setenv("MOONCAKE_TENANT_ID", "t")
    clean.setenv("MOONCAKE_CLIENT_HTTP_PORT", "9400")
    config = MooncakeConfig.load_from_env()
    assert (config.local_hostname, config.metadata_server) == ("here", "http://x/metadata")
    assert (config.global_segment_size, config.local_buffer_size) == (64 * MIB, 16 * MIB)
    assert (config.protocol, config.device_name, config.tenant_id) == ("tcp", "eth0", "t")
    assert config.client_http_port == 9400


# ----------------------------------------------------------------------------- REST service


def ask(url, method="GET", body=None, headers=None):
    """(status, body) of a request."""
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers=headers or {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


@pytest.fixture(scope="module")
def service(pool, store, tmp_path_factory):
    """The REST service on the shared pool: its address."""
    folder = tmp_path_factory.mktemp("rest")
    config = folder / "config.json"
    config.write_text(
        json.dumps(
            {
                "local_hostname": "127.0.0.1",
                "metadata_server": "P2PHANDSHAKE",
                "master_server_address": pool.master.address,
                "global_segment_size": "16mb",
                "local_buffer_size": "16mb",
                "protocol": "tcp",
            }
        )
    )
    port = sides.free_port()
    process = sides.Process(
        [sides.peer_program("mc_store_rest_server"), "--config", config, "--port", port], log=str(folder / "log")
    )
    base = f"http://127.0.0.1:{port}"
    sides.wait_until(lambda: sides.fetch(base + "/api/exist/nothing", 2), 30, "the REST service answers")
    yield base
    assert process.end(signal.SIGTERM) == 0


def test_rest_put_get_exist_and_remove(service, store, key, until):
    path = urllib.parse.quote(key, safe="")
    status, body = ask(service + "/api/put", "PUT", {"key": key, "value": "over HTTP"})
    assert status == 200 and json.loads(body) == {"status": "success"}
    assert store.get(key) == b"over HTTP"
    assert ask(f"{service}/api/get/{path}") == (200, b"over HTTP")
    status, body = ask(f"{service}/api/exist/{path}")
    assert status == 200 and json.loads(body)["exists"] is True
    assert ask(f"{service}/api/remove/{path}", "DELETE")[0] == 500, "the key is leased"
    until(lambda: ask(f"{service}/api/remove/{path}", "DELETE")[0] == 200, 5, "the lease runs out")
    assert ask(f"{service}/api/get/{path}")[0] == 404
    assert json.loads(ask(f"{service}/api/exist/{path}")[1])["exists"] is False
    assert ask(f"{service}/api/remove/{path}", "DELETE")[0] == 500


@pytest.mark.parametrize(
    "body,status",
    [({"key": "k"}, 400), ({"value": "v"}, 400), ({"key": "k", "value": ""}, 500), (b"no json", 500), ({"key": "k", "value": 3}, 500)],
)
def test_rest_put_refuses_what_is_not_complete(service, body, status):
    assert ask(service + "/api/put", "PUT", body)[0] == status


def test_rest_remove_all_tells_how_many(service, store):
    store.remove_all(True)
    store.put("rest/1", b"x")
    store.put("rest/2", b"x")
    status, body = ask(service + "/api/remove_all", "DELETE")
    assert status == 200 and b"2" in body


@pytest.mark.parametrize("size", [0, -1, "many"])
def test_rest_mount_refuses_sizes_that_make_no_sense(service, size):
    assert ask(service + "/api/mount", "POST", {"size": size})[0] == 400


def test_rest_mount_shm_refuses_names_with_a_path(service):
    assert ask(service + "/api/mount_shm", "POST", {"name": "../etc/passwd", "size": 4096})[0] == 400


# ----------------------------------------------------------------------------- HTTP metadata server


@pytest.fixture(scope="module")
def metadata(tmp_path_factory):
    port = sides.free_port()
    process = sides.Process(
        [sides.peer_program("mooncake_http_metadata_server"), "--port", port, "--host", "127.0.0.1"],
        log=str(tmp_path_factory.mktemp("metadata") / "log"),
    )
    base = f"http://127.0.0.1:{port}/metadata"
    sides.wait_until(lambda: sides.fetch(base + "?key=nothing", 2), 20, "the metadata server answers")
    yield base
    process.end(signal.SIGTERM)


def test_metadata_is_stored_read_and_deleted(metadata):
    url = metadata + "?key=" + urllib.parse.quote("mooncake/ram/host:1", safe="")
    assert ask(url)[0] == 404
    assert ask(url, "PUT", {"name": "host:1"})[0] == 200
    status, body = ask(url)
    assert status == 200 and json.loads(body) == {"name": "host:1"}
    assert ask(url, "PUT", {"name": "again"})[0] == 200
    assert json.loads(ask(url)[1]) == {"name": "again"}
    assert ask(url, "DELETE")[0] == 200
    assert ask(url, "DELETE")[0] == 404


def test_an_address_record_is_not_overwritten(metadata):
    url = metadata + "?key=" + urllib.parse.quote("mooncake/rpc_meta/host:1", safe="")
    assert ask(url, "PUT", {"rpc_port": 1})[0] == 200
    assert ask(url, "PUT", {"rpc_port": 2})[0] == 400
    assert json.loads(ask(url)[1]) == {"rpc_port": 1}


def test_a_key_and_a_known_verb_are_needed(metadata):
    assert ask(metadata)[0] == 400
    assert ask(metadata + "?key=k", "POST", {})[0] == 405
