"""The configuration file and the variables."""

import json

import pytest

from snowskin.mooncake.config import MooncakeConfig

NEEDED = {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "master_server_address": "m:1"}


@pytest.fixture
def file(tmp_path):
    def write(**fields):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**NEEDED, **fields}))
        return str(path)

    return write


@pytest.fixture
def variables(monkeypatch):
    import os

    for name in list(os.environ):
        if name.startswith("MOONCAKE_"):
            monkeypatch.delenv(name)
    return monkeypatch.setenv


def test_defaults_of_a_file(file):
    config = MooncakeConfig.from_file(file())
    assert config == MooncakeConfig(
        local_hostname="h",
        metadata_server="P2PHANDSHAKE",
        global_segment_size=3355443200,
        local_buffer_size=1073741824,
        protocol="tcp",
        device_name="",
        master_server_address="m:1",
        enable_ssd_offload=False,
        ssd_offload_path="",
        tenant_id="default",
        enable_client_http_server=False,
        client_http_port=9300,
    )


def test_values_of_a_file(file):
    config = MooncakeConfig.from_file(
        file(global_segment_size="1.5g", local_buffer_size=7, protocol="RDMA", enable_ssd_offload="enable")
    )
    assert (config.global_segment_size, config.local_buffer_size) == (3 << 29, 7)
    assert (config.protocol, config.enable_ssd_offload) == ("rdma", True)


@pytest.mark.parametrize(
    "fields",
    [
        {"local_hostname": ""},
        {"metadata_server": None},
        {"master_server_address": 3},
        {"global_segment_size": "-1"},
        {"local_buffer_size": "x"},
        {"protocol": ""},
        {"protocol": 3},
        {"enable_ssd_offload": "maybe"},
        {"client_http_port": "x"},
    ],
)
def test_a_wrong_value_is_named(file, fields):
    with pytest.raises(ValueError, match=next(iter(fields))):
        MooncakeConfig.from_file(file(**fields))


def test_a_switch_may_be_empty(file):
    assert MooncakeConfig.from_file(file(enable_client_http_server="")).enable_client_http_server is False


def test_the_variables_are_read_without_a_file(variables):
    variables("MOONCAKE_MASTER", "m:1")
    variables("MOONCAKE_GLOBAL_SEGMENT_SIZE", "2 gb")
    config = MooncakeConfig.load_from_env()
    assert (config.local_hostname, config.metadata_server) == ("localhost", "P2PHANDSHAKE")
    assert config.global_segment_size == 2 << 30


def test_a_file_comes_before_the_variables(variables, file):
    variables("MOONCAKE_MASTER", "other:1")
    variables("MOONCAKE_CONFIG_PATH", file())
    assert MooncakeConfig.load_from_env().master_server_address == "m:1"


def test_neither_is_an_error(variables):
    with pytest.raises(ValueError, match="MOONCAKE_MASTER"):
        MooncakeConfig.load_from_env()
