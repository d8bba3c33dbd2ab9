"""The forms of `MooncakeDistributedStore.setup`: positional, keywords, dictionary.

Owns: names, order and defaults of the parameters, and what is checked before anything is dialled. Must never: open
anything, or name a keyword in a `TypeError` that is not the offending one (callers look for their keyword in the text
and leave it out in the next attempt).
"""

from __future__ import annotations

import inspect
import logging
import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import _native
from ..errors import INVALID_PARAMS, NOT_SUPPORTED
from ..sizes import SIZE_MAX, parse_size, parse_switch

log = logging.getLogger("snowskin")

# Smallest segment, as the compatible interface has it.
SEGMENT_SIZE_MIN = 16 << 20
LOCAL_BUFFER_SIZE_MAX = 1 << 40
# A size below this one in a dictionary is a number whose unit was forgotten.
DICT_SIZE_MIN = 1024
DEFAULT_SIZE = 16 << 20
DEFAULT_MASTER = "127.0.0.1:50051"
DEFAULT_HTTP_PORT = 9300

PROTOCOLS = frozenset(
    ("tcp", "rdma", "efa", "cxl", "cxi", "ascend", "ubshmem", "ub", "nvlink_intra", "sunrise_link", "rpc_only")
)
# Schemes of addresses through which another master is found; ours is `host:port`.
HA_SCHEMES = frozenset(("etcd", "redis", "k8s"))
METADATA_SCHEMES = frozenset(("http", "https", "etcd", "redis"))

_EMPTY = inspect.Parameter.empty

# Name, kind of value, default.
PARAMETERS: tuple[tuple[str, type, Any], ...] = (
    ("local_hostname", str, _EMPTY),
    ("metadata_server", str, _EMPTY),
    ("global_segment_size", int, _EMPTY),
    ("local_buffer_size", int, _EMPTY),
    ("protocol", str, _EMPTY),
    ("rdma_devices", str, _EMPTY),
    ("master_server_addr", str, _EMPTY),
    ("engine", object, None),
    ("enable_ssd_offload", bool, False),
    ("ssd_offload_path", str, ""),
    ("tenant_id", str, "default"),
    ("enable_client_http_server", bool, False),
    ("client_http_port", int, DEFAULT_HTTP_PORT),
)
_NAMES = tuple(name for name, _, _ in PARAMETERS)

SIGNATURE = inspect.Signature(
    [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    + [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=default,
            annotation=Any if kind is object else kind,
        )
        for name, kind, default in PARAMETERS
    ],
    return_annotation=int,
)

# Spelling in a dictionary -> parameter. Both spellings of two of them are in use.
DICT_KEYS: dict[str, str] = {
    **{name: name for name in _NAMES if name != "engine"},
    "master_server_address": "master_server_addr",
    "device_name": "rdma_devices",
    "ipc_socket_path": "ipc_socket_path",
}


@dataclass
class Setup:
    """What was asked for, with every value of its kind."""

    local_hostname: str
    metadata_server: str
    global_segment_size: int
    local_buffer_size: int
    protocol: str
    rdma_devices: str
    master_server_addr: str
    engine: Any = None
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = DEFAULT_HTTP_PORT
    ipc_socket_path: str = ""


class Refused(Exception):
    """A value is not allowed: `code` is what `setup` answers."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def bind(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Setup:
    """Takes the arguments of one call of `setup`.

    Raises:
        TypeError: Wrong number, unknown name, or wrong type of an argument; the text names it and no other one.
        Refused: A value of the dictionary form is not allowed.
    """
    if "config" in kwargs and not args:
        if len(kwargs) > 1:
            other = next(name for name in kwargs if name != "config")
            raise TypeError(f"setup() got an unexpected keyword argument '{other}' beside a dictionary")
        return _from_dict(kwargs["config"])
    if args and isinstance(args[0], Mapping):
        if len(args) > 1:
            raise TypeError(f"setup() takes one dictionary and nothing else, but {len(args)} arguments were given")
        if kwargs:
            raise TypeError(f"setup() got an unexpected keyword argument '{next(iter(kwargs))}' beside a dictionary")
        return _from_dict(args[0])
    return Setup(**_typed(_named(args, kwargs)))


def _named(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    for name in kwargs:
        if name not in _NAMES:
            raise TypeError(f"setup() got an unexpected keyword argument '{name}'")
    if len(args) > len(_NAMES):
        raise TypeError(f"setup() takes at most {len(_NAMES)} arguments, but {len(args)} were given")
    given = dict(zip(_NAMES, args))
    for name, value in kwargs.items():
        if name in given:
            raise TypeError(f"setup() got multiple values for argument '{name}'")
        given[name] = value
    for name, _, default in PARAMETERS:
        if name not in given and default is _EMPTY:
            raise TypeError(f"setup() missing required argument '{name}'")
    return given


def _typed(given: dict[str, Any]) -> dict[str, Any]:
    for name, kind, _ in PARAMETERS:
        if name in given:
            given[name] = _checked(name, kind, given[name])
    return given


def _checked(name: str, kind: type, value: Any) -> Any:
    if kind is str:
        if isinstance(value, bytes):
            return value.decode("utf-8", "surrogateescape")
        if isinstance(value, str):
            return value
    elif kind is int:
        try:
            number = operator.index(value)
        except TypeError:
            pass
        else:
            if 0 <= number <= SIZE_MAX:
                return number
            raise TypeError(f"setup(): argument '{name}' must be between 0 and {SIZE_MAX}, not {number}")
    elif kind is bool:
        # numpy's booleans are not Python's.
        if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
            return bool(value)
    else:
        if value is None or isinstance(value, _native.InnerTransferEngine):
            return value
        raise TypeError(
            f"setup(): argument '{name}' must be None or what TransferEngine.get_engine() returns, "
            f"not {type(value).__name__}"
        )
    raise TypeError(f"setup(): argument '{name}' must be {kind.__name__}, not {type(value).__name__}")


def _from_dict(config: Any) -> Setup:
    if not isinstance(config, Mapping):
        raise TypeError(f"setup(): argument 'config' must be dict, not {type(config).__name__}")
    texts: dict[str, str] = {}
    unknown: list[str] = []
    for key, value in config.items():
        name = DICT_KEYS.get(str(key))
        if name is None:
            unknown.append(str(key))
        elif name not in texts or str(key) == name:
            # Of two spellings the one of the positional form counts.
            texts[name] = str(value)
    if unknown:
        log.warning(
            "setup(dict): these keys are not known and have no effect: %s (known: %s)",
            ", ".join(sorted(unknown)),
            ", ".join(sorted(DICT_KEYS)),
        )
    for required in ("local_hostname", "metadata_server"):
        if not texts.get(required):
            raise Refused(INVALID_PARAMS, f"setup(dict): '{required}' is missing or empty")
    return Setup(
        local_hostname=texts["local_hostname"],
        metadata_server=texts["metadata_server"],
        global_segment_size=_dict_size(texts, "global_segment_size"),
        local_buffer_size=_dict_size(texts, "local_buffer_size"),
        protocol=texts.get("protocol", "tcp"),
        rdma_devices=texts.get("rdma_devices", ""),
        master_server_addr=texts.get("master_server_addr", DEFAULT_MASTER),
        enable_ssd_offload=_dict_switch(texts, "enable_ssd_offload"),
        ssd_offload_path=texts.get("ssd_offload_path", ""),
        tenant_id=texts.get("tenant_id", "default"),
        enable_client_http_server=_dict_switch(texts, "enable_client_http_server"),
        client_http_port=_dict_int(texts, "client_http_port", DEFAULT_HTTP_PORT),
        ipc_socket_path=texts.get("ipc_socket_path", ""),
    )


def _dict_size(texts: Mapping[str, str], name: str) -> int:
    text = texts.get(name)
    if text is None:
        return DEFAULT_SIZE
    try:
        size = parse_size(text, name=f"setup(dict): '{name}'")
    except ValueError as error:
        raise Refused(INVALID_PARAMS, str(error)) from None
    if 0 < size < DICT_SIZE_MIN:
        raise Refused(
            INVALID_PARAMS, f"setup(dict): '{name}' is {size} bytes; 0 or at least {DICT_SIZE_MIN} is allowed"
        )
    return size


def _dict_switch(texts: Mapping[str, str], name: str) -> bool:
    text = texts.get(name)
    if text is None:
        return False
    value = parse_switch(text)
    if value is None:
        log.warning("setup(dict): '%s' is neither true nor false but %r; false is taken", name, text)
        return False
    return value


def _dict_int(texts: Mapping[str, str], name: str, default: int) -> int:
    text = texts.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise Refused(INVALID_PARAMS, f"setup(dict): '{name}' must be a number, not {text!r}") from None


def is_text(value: str) -> bool:
    """Whether a text has no lone surrogates, which no name, address or message on the wire can carry."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check(asked: Setup) -> None:
    """Refuses what can be refused without asking anyone.

    Raises:
        Refused: With -600 for a value that is not allowed, -1012 for one that another pool would take.
    """
    for name, kind, _ in PARAMETERS:
        value = getattr(asked, name)
        if kind is str and not is_text(value):
            raise Refused(INVALID_PARAMS, f"{name} {value!a} cannot be written as UTF-8")
    if not asked.local_hostname:
        raise Refused(INVALID_PARAMS, "local_hostname is empty; a host or host:port is needed")
    _check_metadata_server(asked.metadata_server)
    if asked.protocol not in PROTOCOLS:
        raise Refused(
            INVALID_PARAMS,
            f"protocol {asked.protocol!r} is not known; known (in lower case): {', '.join(sorted(PROTOCOLS))}",
        )
    _check_master(asked.master_server_addr)
    if 0 < asked.global_segment_size < SEGMENT_SIZE_MIN:
        raise Refused(
            INVALID_PARAMS,
            f"global_segment_size is {asked.global_segment_size}; 0 or at least {SEGMENT_SIZE_MIN} bytes are allowed",
        )
    if asked.local_buffer_size > LOCAL_BUFFER_SIZE_MAX:
        raise Refused(
            INVALID_PARAMS,
            f"local_buffer_size is {asked.local_buffer_size}; at most {LOCAL_BUFFER_SIZE_MAX} bytes are allowed",
        )
    if not 1 <= asked.client_http_port <= 65535:
        raise Refused(INVALID_PARAMS, f"client_http_port is {asked.client_http_port}; 1 to 65535 is allowed")
    if asked.enable_ssd_offload and asked.ssd_offload_path and not os.path.isabs(asked.ssd_offload_path):
        raise Refused(INVALID_PARAMS, f"ssd_offload_path {asked.ssd_offload_path!r} is not an absolute path")


def _check_metadata_server(address: str) -> None:
    if address == "P2PHANDSHAKE":
        return
    if not address:
        raise Refused(INVALID_PARAMS, "metadata_server is empty; P2PHANDSHAKE, http://... or host:port is needed")
    scheme, separator, _ = address.partition("://")
    if (separator and scheme in METADATA_SCHEMES) or (not separator and _is_host_port(address)):
        return
    raise Refused(
        INVALID_PARAMS,
        f"metadata_server {address!r} is not known; P2PHANDSHAKE, http://..., etcd://... or host:port is needed",
    )


def _check_master(address: str) -> None:
    scheme, separator, _ = address.partition("://")
    if separator and scheme in HA_SCHEMES:
        raise Refused(
            NOT_SUPPORTED,
            f"master_server_addr {address!r}: finding the master through {scheme} is not there; give its host:port",
        )
    if separator or not _is_host_port(address):
        raise Refused(INVALID_PARAMS, f"master_server_addr {address!r} is not host:port")


def _is_host_port(address: str) -> bool:
    # Several addresses may stand in a row for etcd; the first one says enough.
    host, separator, port = address.split(";")[0].rpartition(":")
    return bool(separator and host) and port.isascii() and port.isdigit() and 0 < int(port) <= 65535


def settings(asked: Setup) -> dict[str, Any]:
    """The settings of `_native.MooncakeStoreBase._open`, with a warning for each wish that is not granted."""
    if asked.metadata_server != "P2PHANDSHAKE":
        log.info(
            "metadata_server %s has no meaning for the store: the master knows where the bytes are",
            asked.metadata_server,
        )
    if asked.enable_ssd_offload:
        log.warning("enable_ssd_offload has no effect: there is no SSD tier yet")
    if asked.ipc_socket_path:
        log.info("ipc_socket_path has no meaning: thin clients ask the master themselves")
    if asked.protocol not in ("tcp", "rpc_only"):
        log.warning("protocol %r: that fabric is not there, bytes go over tcp", asked.protocol)
    result: dict[str, Any] = {
        "master": asked.master_server_addr,
        "hostname": asked.local_hostname,
        "segment_size": 0 if asked.protocol == "rpc_only" else asked.global_segment_size,
        "local_buffer_size": asked.local_buffer_size,
        "protocol": asked.protocol,
        "tenant": asked.tenant_id or "default",
        "engine": asked.engine,
    }
    return result
