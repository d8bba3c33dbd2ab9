"""The configuration that engines share with the store: a JSON file, or the environment."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..sizes import parse_size, parse_switch
from .setup_forms import DEFAULT_HTTP_PORT, PROTOCOLS

log = logging.getLogger("snowskin")

DEFAULT_GLOBAL_SEGMENT_SIZE = 3355443200
DEFAULT_LOCAL_BUFFER_SIZE = 1073741824

# Field -> variable of the environment.
_VARIABLES = {
    "local_hostname": "MOONCAKE_LOCAL_HOSTNAME",
    "metadata_server": "MOONCAKE_TE_META_DATA_SERVER",
    "master_server_address": "MOONCAKE_MASTER",
    "global_segment_size": "MOONCAKE_GLOBAL_SEGMENT_SIZE",
    "local_buffer_size": "MOONCAKE_LOCAL_BUFFER_SIZE",
    "protocol": "MOONCAKE_PROTOCOL",
    "device_name": "MOONCAKE_DEVICE",
    "enable_ssd_offload": "MOONCAKE_OFFLOAD_ENABLED",
    "ssd_offload_path": "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH",
    "tenant_id": "MOONCAKE_TENANT_ID",
    "enable_client_http_server": "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER",
    "client_http_port": "MOONCAKE_CLIENT_HTTP_PORT",
}
_REQUIRED = ("local_hostname", "metadata_server", "master_server_address")


@dataclass
class MooncakeConfig:
    """Addresses, sizes (bytes) and switches of one store."""

    local_hostname: str
    metadata_server: str
    global_segment_size: int
    local_buffer_size: int
    protocol: str
    device_name: str | None
    master_server_address: str
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = DEFAULT_HTTP_PORT

    @staticmethod
    def from_file(file_path: str) -> MooncakeConfig:
        """Reads a JSON file.

        Raises:
            OSError: The file cannot be read.
            ValueError: It is no JSON object, a required key is missing, or a value is not allowed.
        """
        with open(file_path, encoding="utf-8") as file:
            fields = json.load(file)
        if not isinstance(fields, dict):
            raise ValueError(f"{file_path}: one JSON object is needed, not {type(fields).__name__}")
        return from_fields(fields, source=str(file_path))

    @staticmethod
    def load_from_env() -> MooncakeConfig:
        """Reads the file that `MOONCAKE_CONFIG_PATH` names, else the variables; `MOONCAKE_MASTER` is needed then.

        Raises:
            ValueError: Neither is set, or a value is not allowed.
        """
        path = os.environ.get("MOONCAKE_CONFIG_PATH")
        if path:
            return MooncakeConfig.from_file(path)
        if not os.environ.get("MOONCAKE_MASTER"):
            raise ValueError("neither MOONCAKE_CONFIG_PATH nor MOONCAKE_MASTER is set; one of them is needed")
        fields = {"local_hostname": "localhost", "metadata_server": "P2PHANDSHAKE"}
        fields.update(
            (field, os.environ[variable]) for field, variable in _VARIABLES.items() if os.environ.get(variable)
        )
        return from_fields(fields, source="the environment")


def from_fields(fields: Mapping[str, Any], source: str) -> MooncakeConfig:
    """Makes a config of raw values.

    Raises:
        ValueError: A required field is missing or empty, or a value is not allowed; the message names field and source.
    """
    for name in _REQUIRED:
        value = fields.get(name)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{source}: '{name}' is missing or empty")
    return MooncakeConfig(
        local_hostname=fields["local_hostname"],
        metadata_server=fields["metadata_server"],
        global_segment_size=_size(fields, "global_segment_size", DEFAULT_GLOBAL_SEGMENT_SIZE, source),
        local_buffer_size=_size(fields, "local_buffer_size", DEFAULT_LOCAL_BUFFER_SIZE, source),
        protocol=_protocol(fields, source),
        device_name=_text(fields, "device_name", ""),
        master_server_address=fields["master_server_address"],
        enable_ssd_offload=_switch(fields, "enable_ssd_offload", source),
        ssd_offload_path=_text(fields, "ssd_offload_path", ""),
        tenant_id=_text(fields, "tenant_id", "default"),
        enable_client_http_server=_switch(fields, "enable_client_http_server", source),
        client_http_port=_port(fields, source),
    )


def _text(fields: Mapping[str, Any], name: str, default: str) -> str:
    value = fields.get(name)
    return default if value is None else str(value)


def _size(fields: Mapping[str, Any], name: str, default: int, source: str) -> int:
    value = fields.get(name)
    if value is None:
        return default
    try:
        return parse_size(value, name=f"'{name}'")
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _switch(fields: Mapping[str, Any], name: str, source: str) -> bool:
    value = fields.get(name)
    if value is None or value == "":
        return False
    result = parse_switch(value)
    if result is None:
        raise ValueError(f"{source}: '{name}' must be true or false (or 1/0, yes/no, on/off), not {value!r}")
    return result


def _protocol(fields: Mapping[str, Any], source: str) -> str:
    value = fields.get("protocol", "tcp")
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{source}: 'protocol' must be a name such as 'tcp', not {value!r}")
    protocol = value.strip().lower()
    if protocol not in PROTOCOLS:
        log.warning("%s: the protocol %r is not known", source, protocol)
    return protocol


def _port(fields: Mapping[str, Any], source: str) -> int:
    value = fields.get("client_http_port", DEFAULT_HTTP_PORT)
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{source}: 'client_http_port' must be a number, not {value!r}") from None
