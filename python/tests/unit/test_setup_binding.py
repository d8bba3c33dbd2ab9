"""How the arguments of `setup` are taken, without a store."""

import inspect
import logging

import pytest

from snowskin.mooncake import setup_forms
from snowskin.mooncake.setup_forms import Refused, Setup, bind, check
from snowskin.mooncake.store import MooncakeDistributedStore

SEVEN = ("h", "P2PHANDSHAKE", 1 << 26, 0, "tcp", "", "127.0.0.1:50051")


def test_the_signature_names_every_parameter_in_order():
    found = list(inspect.signature(MooncakeDistributedStore.setup).parameters)
    assert found == ["self", *(name for name, _, _ in setup_forms.PARAMETERS)]
    assert "enable_ssd_offload" in MooncakeDistributedStore.setup.__doc__


@pytest.mark.parametrize(
    ("args", "keywords", "named"),
    [
        ((), {}, "local_hostname"),
        (SEVEN[:6], {}, "master_server_addr"),
        (SEVEN, {"nobody_knows": 1}, "nobody_knows"),
        (SEVEN, {"protocol": "tcp"}, "protocol"),
        (("h", "P2PHANDSHAKE", "1GB", 0, "tcp", "", "a:1"), {}, "global_segment_size"),
        (("h", "P2PHANDSHAKE", 0, -1, "tcp", "", "a:1"), {}, "local_buffer_size"),
        (("h", "P2PHANDSHAKE", 0, 1 << 64, "tcp", "", "a:1"), {}, "local_buffer_size"),
        ((None, *SEVEN[1:]), {}, "local_hostname"),
        (SEVEN, {"engine": 3}, "engine"),
        (SEVEN, {"tenant_id": None}, "tenant_id"),
        (({"local_hostname": "h"},), {"engine": None}, "engine"),
        ((), {"config": 3}, "config"),
    ],
)
def test_a_type_error_names_the_argument_and_no_other(args, keywords, named):
    with pytest.raises(TypeError) as caught:
        bind(args, keywords)
    others = {name for name, _, _ in setup_forms.PARAMETERS} - {named}
    assert named in str(caught.value)
    assert not any(f"'{name}'" in str(caught.value) for name in others)


def test_a_dictionary_takes_both_spellings_and_the_first_one_counts():
    base = {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE"}
    assert bind(({**base, "master_server_address": "a:1", "device_name": "d"},), {}) == Setup(
        "h", "P2PHANDSHAKE", 16 << 20, 16 << 20, "tcp", "d", "a:1"
    )
    both = {**base, "master_server_addr": "b:2", "master_server_address": "a:1"}
    assert bind((both,), {}).master_server_addr == "b:2"
    assert bind((dict(reversed(both.items())),), {}).master_server_addr == "b:2"
    assert bind((base,), {}).master_server_addr == "127.0.0.1:50051"


@pytest.mark.parametrize("name", [name for name, kind, _ in setup_forms.PARAMETERS if kind is str])
@pytest.mark.parametrize("value", ["\ud800", b"\xff"])
def test_a_text_that_is_no_utf8_is_refused_by_its_name(name, value):
    given = {**dict(zip((name for name, _, _ in setup_forms.PARAMETERS), SEVEN)), name: value}
    with pytest.raises(Refused, match=name) as caught:
        check(bind((), given))
    assert caught.value.code == -600
    caught.value.message.encode()


def test_setup_of_such_a_text_is_a_code():
    assert MooncakeDistributedStore().setup("\ud800", *SEVEN[1:]) == -600
    assert MooncakeDistributedStore().setup({"local_hostname": "\ud800", "metadata_server": "P2PHANDSHAKE"}) == -600


def test_unknown_keys_of_a_dictionary_are_named_in_one_warning(caplog):
    with caplog.at_level(logging.WARNING, "snowskin"):
        bind(({"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "one": 1, "two": 2},), {})
    assert len(caplog.records) == 1
    assert "one, two" in caplog.text


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"local_hostname": ""}, -600),
        ({"metadata_server": ""}, -600),
        ({"metadata_server": "bogus://x"}, -600),
        ({"protocol": "TCP"}, -600),
        ({"protocol": "pigeon"}, -600),
        ({"global_segment_size": (16 << 20) - 1}, -600),
        ({"local_buffer_size": (1 << 40) + 1}, -600),
        ({"client_http_port": 0}, -600),
        ({"client_http_port": 65536}, -600),
        ({"master_server_addr": ""}, -600),
        ({"master_server_addr": "host"}, -600),
        ({"master_server_addr": "http://host:1"}, -600),
        ({"master_server_addr": "etcd://host:1"}, -1012),
        ({"enable_ssd_offload": True, "ssd_offload_path": "relative"}, -600),
    ],
)
def test_values_that_are_not_allowed_are_refused_at_once(change, code):
    asked = Setup(*SEVEN)
    check(asked)
    for name, value in change.items():
        setattr(asked, name, value)
    with pytest.raises(Refused) as caught:
        check(asked)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "address", ["P2PHANDSHAKE", "http://h:1/metadata", "https://h/", "etcd://h:1", "h:1", "h:1;g:2"]
)
def test_forms_of_metadata_servers(address):
    asked = Setup(*SEVEN)
    asked.metadata_server = address
    check(asked)
