"""The flags of `mooncake_master` and what becomes of each: an option of `snowskin master`, or a warning by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ._flags import Flag, UsageError, nearest, value_of

FLAGS: dict[str, Flag] = {
    "config_path": Flag("str", "", "configuration file (.yaml, .yml, .json)"),
    "rpc_port": Flag("int", 0, "port; 0 takes --port"),
    "port": Flag("int", 50051, "older name of --rpc_port; 0 lets the system choose"),
    "rpc_address": Flag("str", "0.0.0.0", "address to listen on"),
    "rpc_interface": Flag("str", "", "take the IPv4 address of this network interface"),
    "metrics_port": Flag("int", 9003, "port of the HTTP server"),
    "metrics_host": Flag("str", "0.0.0.0", "address of the HTTP server"),
    "default_kv_lease_ttl": Flag("str", "10000", "read lease; a bare number is in ms"),
    "eviction_ratio": Flag("float", 0.05, "share that one run of eviction frees"),
    "eviction_high_watermark_ratio": Flag("float", 0.90, "share at which eviction starts"),
    "client_ttl": Flag("str", "10", "silence after which a node is gone; a bare number is in seconds"),
    "put_start_discard_timeout_sec": Flag("int", 30, "when an unfinished put may be preempted, in seconds"),
    "allocation_strategy": Flag("str", "random", "placement: random or free_ratio_first"),
    "cluster_id": Flag("str", "mooncake_cluster", "name of the cluster"),
    "enable_http_metadata_server": Flag("bool", False, "serve /metadata from a process that ends with the master"),
    "http_metadata_server_port": Flag("int", 8080, "its port"),
    "http_metadata_server_host": Flag("str", "0.0.0.0", "its address"),
    # Options of `snowskin master` that have no flag of the released command.
    "state_dir": Flag("str", "", "folder of the small durable state"),
    "token_file": Flag("str", "", "file of the token that clients and nodes must show"),
    "suspect_after": Flag("str", "", "silence after which a node is suspect"),
    "put_wait": Flag("str", "", "time that a put waits for space"),
    "policy": Flag("str", "", "order of eviction: lru or s3fifo"),
    "ready_file": Flag("str", "", "also write the ready line to this file"),
    # Logging.
    "v": Flag("int", 0, "above 0: debug messages"),
    "minloglevel": Flag("int", 0, "0 info, 1 warning, 2 and 3 error"),
}

# Flag -> option, where the value goes through as it is.
_SAME = {
    "rpc_address": "rpc-address",
    "metrics_port": "metrics-port",
    "metrics_host": "metrics-host",
    "default_kv_lease_ttl": "default-kv-lease-ttl",
    "eviction_ratio": "eviction-ratio",
    "eviction_high_watermark_ratio": "eviction-high-watermark-ratio",
    "state_dir": "state-dir",
    "token_file": "token-file",
    "suspect_after": "suspect-after",
    "put_wait": "put-wait",
    "policy": "policy",
    "ready_file": "ready-file",
    "cluster_id": "cluster-id",
}
_SECONDS = {"client_ttl": "client-ttl", "put_start_discard_timeout_sec": "put-start-discard-timeout"}
_STRATEGIES = ("random", "free_ratio_first")

_NO_PINS = "there are no pins yet"
_NO_SSD = "there is no SSD tier yet"
_NO_COPIES = "there are no tasks and no copies of hot keys yet"
_NO_EVENTS = "there are no KV events yet"
_NO_HA = "there is one master; its state folder carries over a restart"
_NO_TENANTS = "tenants are name spaces without quotas"
_NO_SNAPSHOT = "objects survive a restart of the master with their nodes; there are no snapshots"
_NO_FABRIC = "there is no such memory or fabric"
_NO_DISK_FS = "there are no replicas on a shared file system"
_OWN_WAY = "the master has its own way here"
_LOGS = "logs go to stderr"

# Why it has no effect -> flag -> kind and default.
_WITHOUT_EFFECT: dict[str, dict[str, tuple[str, Any]]] = {
    _OWN_WAY: {
        "rpc_thread_num": ("int", 0),
        "max_threads": ("int", 16),
        "rpc_conn_timeout_seconds": ("int", 0),
        "rpc_enable_tcp_no_delay": ("bool", True),
        "enable_metric_reporting": ("bool", True),
        "memory_allocator": ("str", "offset"),
        "put_start_release_timeout_sec": ("int", 600),
        "enable_metadata_cleanup_on_timeout": ("bool", False),
        "use_mmap_arena_allocator": ("bool", False),
        "mmap_arena_pool_size": ("int", 8 << 30),
    },
    _NO_PINS: {
        "default_kv_soft_pin_ttl": ("str", "1800000"),
        "max_kv_soft_pin_ttl": ("str", "86400000"),
        "allow_evict_soft_pinned_objects": ("bool", True),
    },
    _NO_SSD: {
        "enable_offload": ("bool", False),
        "offload_on_evict": ("bool", False),
        "offload_force_evict": ("bool", False),
        "offloading_queue_limit": ("int", 50000),
        "offload_cap_ratio": ("float", 0.5),
        "promotion_on_hit": ("bool", False),
        "promotion_admission_threshold": ("int", 2),
        "promotion_queue_limit": ("int", 50000),
        "promotion_max_per_heartbeat": ("int", 1),
    },
    _NO_COPIES: {
        "dynamic_replication_mode": ("str", "off"),
        "dynamic_replication_heat_window_seconds": ("int", 10),
        "dynamic_replication_admission_qps_threshold": ("float", 0.8),
        "dynamic_replication_max_memory_replicas": ("int", 2),
        "max_total_finished_tasks": ("int", 10000),
        "max_total_pending_tasks": ("int", 10000),
        "max_total_processing_tasks": ("int", 10000),
        "pending_task_timeout_sec": ("int", 300),
        "processing_task_timeout_sec": ("int", 300),
        "max_retry_attempts": ("int", 10),
    },
    _NO_EVENTS: {
        "enable_kv_events": ("bool", False),
        "kv_events_bind_endpoint": ("str", ""),
        "kv_events_backend_id": ("str", ""),
        "kv_events_emit_legacy_compat": ("bool", True),
        "kv_events_emit_object_key": ("bool", True),
        "kv_events_queue_capacity": ("int", 65536),
        "kv_events_model_name": ("str", ""),
        "kv_events_tenant_id": ("str", "default"),
        "kv_events_additional_salt": ("str", ""),
        "kv_events_lora_name": ("str", ""),
        "kv_events_block_size": ("int", 0),
        "kv_events_dp_rank": ("int", 0),
    },
    _NO_HA: {
        "enable_ha": ("bool", False),
        "ha_backend_type": ("str", "etcd"),
        "ha_backend_connstring": ("str", ""),
        "etcd_endpoints": ("str", ""),
        "enable_oplog": ("bool", False),
        "oplog_poll_interval_ms": ("int", 1000),
        "oplog_batch_max_entries": ("int", 1024),
        "batch_oplog_retry_timeout_sec": ("int", 180),
        "pod_name": ("str", ""),
        "pod_namespace": ("str", ""),
    },
    _NO_DISK_FS: {
        "root_fs_dir": ("str", ""),
        "global_file_segment_size": ("int", 2**63 - 1),
        "enable_disk_eviction": ("bool", True),
        "quota_bytes": ("int", 0),
    },
    _NO_TENANTS: {
        "enable_multi_tenants": ("bool", False),
        "tenant_quota_connector_type": ("str", "file"),
        "tenant_quota_connector_uri": ("str", ""),
    },
    _NO_SNAPSHOT: {
        "enable_snapshot": ("bool", False),
        "enable_snapshot_restore": ("bool", False),
        "snapshot_interval_seconds": ("int", 600),
        "snapshot_child_timeout_seconds": ("int", 300),
        "snapshot_retention_count": ("int", 2),
        "snapshot_object_store_type": ("str", ""),
        "snapshot_catalog_store_type": ("str", ""),
        "snapshot_catalog_store_connstring": ("str", ""),
        "snapshot_backup_dir": ("str", ""),
        "snapshot_payload_store_type": ("str", ""),
        "snapshot_payload_backend_type": ("str", ""),
        "snapshot_catalog_backend_type": ("str", ""),
        "snapshot_catalog_backend_connstring": ("str", ""),
    },
    _NO_FABRIC: {
        "enable_cxl": ("bool", False),
        "cxl_path": ("str", "/dev/dax0.0"),
        "cxl_size": ("int", 8 << 30),
        "nof_eviction_ratio": ("float", 0.05),
        "nof_eviction_high_watermark_ratio": ("float", 0.90),
        "nof_heartbeat_interval_sec": ("int", 10),
        "nof_heartbeat_probe_timeout_ms": ("int", 1000),
        "nof_heartbeat_failures_threshold": ("int", 3),
    },
    _LOGS: {
        "log_dir": ("str", ""),
        "logtostderr": ("bool", True),
        "alsologtostderr": ("bool", True),
        "stderrthreshold": ("int", 0),
        "max_log_size": ("int", 1800),
        "vmodule": ("str", ""),
        "logfile_mode": ("int", 436),
        "logbufsecs": ("int", 30),
        "logbuflevel": ("int", 0),
        "log_prefix": ("bool", True),
        "log_link": ("str", ""),
        "log_backtrace_at": ("str", ""),
        "colorlogtostderr": ("bool", False),
        "stop_logging_if_full_disk": ("bool", False),
        "timestamp_in_logfile_name": ("bool", True),
    },
}

# Flags without effect: their default, and why. One that is given another value is named in a warning.
WITHOUT_EFFECT: dict[str, tuple[Flag, str]] = {
    name: (Flag(kind, default), why)
    for why, table in _WITHOUT_EFFECT.items()
    for name, (kind, default) in table.items()
}

ALL_FLAGS: dict[str, Flag] = {**FLAGS, **{name: flag for name, (flag, _) in WITHOUT_EFFECT.items()}}

# Keys of a configuration file that are not called like their flag.
_FILE_KEYS = {"client_live_ttl_sec": "client_ttl"}


def warnings(values: Mapping[str, Any]) -> list[str]:
    """One line for each flag whose wish is not granted."""
    lines = [
        f"--{name}={values[name]} has no effect: {why}"
        for name, (flag, why) in WITHOUT_EFFECT.items()
        if values[name] != flag.default
    ]
    strategy = values["allocation_strategy"]
    if strategy not in _STRATEGIES:
        lines.append(f"--allocation_strategy={strategy} is not there, random is taken; known: {', '.join(_STRATEGIES)}")
    return lines


def arguments(values: Mapping[str, Any], given: set[str]) -> list[str]:
    """The words for `snowskin` that mean the same.

    Raises:
        UsageError: The network interface has no IPv4 address.
    """
    words = ["master", f"--rpc-port={values['rpc_port'] or values['port']}"]
    values = dict(values)
    if values["rpc_interface"]:
        values["rpc_address"] = interface_address(values["rpc_interface"])
        given = given | {"rpc_address"}
    words += [f"--{option}={values[name]}" for name, option in _SAME.items() if name in given]
    for name, option in _SECONDS.items():
        if name in given:
            text = str(values[name])
            words.append(f"--{option}={text}s" if text.isdigit() else f"--{option}={text}")
    if values["allocation_strategy"] in _STRATEGIES and "allocation_strategy" in given:
        words.append(f"--allocation-strategy={values['allocation_strategy']}")
    return words


def log_filter(values: Mapping[str, Any]) -> str | None:
    """What `SNOWSKIN_LOG` should say, or None when the flags leave it open."""
    if values["v"] > 0:
        return "debug"
    if values["minloglevel"] > 0:
        return "warn" if values["minloglevel"] == 1 else "error"
    return None


def interface_address(name: str) -> str:
    """The IPv4 address of a network interface.

    Raises:
        UsageError: There is none.
    """
    import fcntl
    import socket
    import struct

    get_address = 0x8915
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), get_address, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            raise UsageError(f"--rpc_interface {name}: no IPv4 address: {error}") from None
    return socket.inet_ntoa(answer[20:24])


def from_file(path: str) -> tuple[dict[str, Any], list[str]]:
    """The flags that a configuration file sets, and a warning for each key that is not known.

    Raises:
        UsageError: The file cannot be read, or a value is not of its flag's kind.
    """
    try:
        with open(path, encoding="utf-8") as handle:
            text = handle.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config_path {path} cannot be read: {error}") from None
    if path.endswith(".json"):
        fields = _flat_json(path, text)
    elif path.endswith((".yaml", ".yml")):
        fields = flat_yaml(path, text)
    else:
        raise UsageError(f"--config_path {path}: the name must end in .yaml, .yml or .json")
    values: dict[str, Any] = {}
    unknown = []
    for key, value in fields.items():
        name = _FILE_KEYS.get(key, key)
        if name not in ALL_FLAGS:
            unknown.append(f"{path}: {key} has no effect: it is not known (nearest: {nearest(key, ALL_FLAGS)})")
            continue
        word = str(value).lower() if isinstance(value, bool) else str(value)
        values[name] = value_of(name, ALL_FLAGS[name], word)
    return values, unknown


def _flat_json(path: str, text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--config_path {path} is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UsageError(f"--config_path {path}: one JSON object is needed")
    return _flat(fields, "")


def _flat(fields: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in fields.items():
        if isinstance(value, dict):
            result.update(_flat(value, f"{prefix}{key}."))
        else:
            result[prefix + key] = value
    return result


_YAML_LINE = re.compile(r"( *)([A-Za-z_][\w.-]*) *:(?: +(.*))?$")


def flat_yaml(path: str, text: str) -> dict[str, str]:
    """Reads the part of YAML that such files use: maps of plain or quoted values, nested ones as dotted names.

    Raises:
        UsageError: A line is something else.
    """
    result: dict[str, str] = {}
    levels: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() in ("---", "..."):
            continue
        found = _YAML_LINE.match(line.rstrip())
        if found is None:
            raise UsageError(f"--config_path {path}, line {number}: 'key: value' is needed, not {line.strip()!r}")
        indent, key, value = len(found.group(1)), found.group(2), _yaml_value(found.group(3) or "")
        while levels and levels[-1][0] >= indent:
            levels.pop()
        name = ".".join([level for _, level in levels] + [key])
        if value is None:
            levels.append((indent, key))
        else:
            result[name] = value
    return result


def _yaml_value(text: str) -> str | None:
    """The value of a line, or None when a nested map follows."""
    text = text.strip()
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        if end > 0:
            return text[1:end]
    text = re.sub(r"(^|\s)#.*$", "", text).strip()
    return text or None
