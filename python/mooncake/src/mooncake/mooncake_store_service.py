"""The console command `mc_store_rest_server`: one store over HTTP.

Values travel as JSON texts or octets, so this is for looking and for small things; engines use the store itself.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from snowskin.mooncake.config import MooncakeConfig, from_fields
from snowskin.mooncake.store import MooncakeDistributedStore
from snowskin.mooncake.web import Answer, Request, Route, Server, as_json

from . import _flags

COMMAND = "mc_store_rest_server"
PORT = 8080
GRACE_MAX_S = 3600
SHM_FOLDER = "/dev/shm"

log = logging.getLogger("snowskin")

FLAGS = {
    "config": _flags.Flag("str", "", "configuration file (JSON); without it the environment is read"),
    "define": _flags.Flag("str", "", "key=value that overrides the configuration; may come several times, also as -D"),
    "port": _flags.Flag("int", PORT, "port to listen on"),
    "max_wait_time": _flags.Flag("float", 60.0, "seconds for which setup is tried again"),
}


class BadRequest(Exception):
    """The request is not allowed; the message goes back with 400."""


class MooncakeStoreService:
    """A store and the routes to it.

    Args:
        config_path: Configuration file; None reads the environment.
        cli_config: Fields that override the configuration's, as texts.

    Raises:
        OSError, ValueError: The configuration cannot be read or is not allowed.
    """

    def __init__(self, config_path: str | None = None, cli_config: dict[str, str] | None = None) -> None:
        config = MooncakeConfig.from_file(config_path) if config_path else MooncakeConfig.load_from_env()
        fields = {**vars(config), **(cli_config or {})}
        unknown = set(fields) - set(vars(config))
        if unknown:
            raise ValueError(f"-D: {', '.join(sorted(unknown))} is not known; known: {', '.join(sorted(vars(config)))}")
        self.config = from_fields(fields, source="the configuration")
        self.store = MooncakeDistributedStore()
        self._server: Server | None = None
        self._mounted: list[str] = []

    def start_store_service(self, max_wait_time: float = 60.0, pause: Callable[[float], object] = time.sleep) -> bool:
        """Sets the store up, trying again each second for `max_wait_time` seconds. False when it stays in vain.

        Args:
            pause: Waits the given seconds between two attempts; a true result gives up.
        """
        deadline = time.monotonic() + max_wait_time
        while True:
            code = self.store.setup(
                self.config.local_hostname,
                self.config.metadata_server,
                self.config.global_segment_size,
                self.config.local_buffer_size,
                self.config.protocol,
                self.config.device_name or "",
                self.config.master_server_address,
                enable_ssd_offload=self.config.enable_ssd_offload,
                ssd_offload_path=self.config.ssd_offload_path,
                tenant_id=self.config.tenant_id,
                enable_client_http_server=self.config.enable_client_http_server,
                client_http_port=self.config.client_http_port,
            )
            if code == 0:
                return True
            if time.monotonic() + 1.0 > deadline or pause(1.0):
                return False

    def start_http_service(self, port: int = PORT, host: str = "0.0.0.0") -> Server:
        """Serves the routes.

        Raises:
            OSError: The address cannot be used.
        """
        self._server = Server(host, port, self.routes())
        return self._server

    def stop(self) -> None:
        """Ends the server and the store. Twice is harmless."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self.store.close()

    def routes(self) -> dict[tuple[str, str], Route]:
        """The routes."""
        table: dict[tuple[str, str], Route] = {
            ("PUT", "/api/put"): self.handle_put,
            ("GET", "/api/get/*"): self.handle_get,
            ("GET", "/api/exist/*"): self.handle_exist,
            ("DELETE", "/api/remove/*"): self.handle_remove,
            ("DELETE", "/api/remove_all"): self.handle_remove_all,
            ("POST", "/api/mount"): self.handle_mount,
            ("POST", "/api/unmount"): self.handle_unmount,
            ("POST", "/api/mount_shm"): self.handle_mount_shm,
            ("POST", "/api/unmount_shm"): self.handle_unmount_shm,
            ("POST", "/api/reconfigure"): self.handle_reconfigure,
            ("POST", "/api/unmount_local_disk"): self.handle_unmount_local_disk,
        }
        return {key: _guarded(route) for key, route in table.items()}

    # -- objects -----------------------------------------------------------------------------------------------------

    def handle_put(self, request: Request) -> Answer:
        """PUT /api/put with JSON `key` and `value` (a text)."""
        try:
            fields = json.loads(request.body)
        except ValueError as error:
            return _error(500, f"the body is no JSON: {error}")
        if not isinstance(fields, dict) or "key" not in fields or "value" not in fields:
            return _error(400, "'key' and 'value' are needed")
        key, value = fields["key"], fields["value"]
        if not isinstance(key, str) or not isinstance(value, str):
            return _error(500, "'key' and 'value' must be texts")
        return self._status(self.store.put(key, value.encode()), "put")

    def handle_get(self, request: Request) -> Answer:
        """GET /api/get/{key}: the bytes, or 404."""
        key = _key(request, "/api/get/")
        value = self.store.get(key)
        if value:
            return Answer(200, value, "application/octet-stream")
        # A failed read and a missing object look the same in what get answers.
        message = (self.store.last_error() or {}).get("message", "")
        if self.store.is_exist(key) == 0:
            return _error(404, "there is no such object")
        return _error(500, f"get failed: {message}")

    def handle_exist(self, request: Request) -> Answer:
        """GET /api/exist/{key}."""
        code = self.store.is_exist(_key(request, "/api/exist/"))
        return self._status(code, "exist") if code < 0 else as_json(200, {"exists": code == 1})

    def handle_remove(self, request: Request) -> Answer:
        """DELETE /api/remove/{key}; any code is a 500."""
        return self._status(self.store.remove(_key(request, "/api/remove/")), "remove")

    def handle_remove_all(self, request: Request) -> Answer:
        """DELETE /api/remove_all."""
        count = self.store.remove_all()
        if count < 0:
            return self._status(count, "remove_all")
        return as_json(200, {"status": f"success, {count} objects removed"})

    # -- segments ----------------------------------------------------------------------------------------------------

    def handle_mount(self, request: Request) -> Answer:
        """POST /api/mount: memory of this process."""
        fields = _fields(request)
        found = self.store.allocate_and_mount_segment(_size(fields), *_where(fields))
        return self._mounted_answer(found, {"allocated_size": found.get("allocated_size", 0)})

    def handle_unmount(self, request: Request) -> Answer:
        """POST /api/unmount."""
        fields = _fields(request)
        ids, grace = _segment_ids(fields), _grace(fields)
        return self._status(self.store.unmount_and_free_segment(ids, grace), "unmount")

    def handle_mount_shm(self, request: Request) -> Answer:
        """POST /api/mount_shm: a file under /dev/shm."""
        fields = _fields(request)
        found = self.store.mount_segment(_shm_path(fields), _size(fields), _offset(fields), *_where(fields))
        return self._mounted_answer(found, {})

    def handle_unmount_shm(self, request: Request) -> Answer:
        """POST /api/unmount_shm."""
        fields = _fields(request)
        ids, grace = _segment_ids(fields), _grace(fields)
        failed = [one for one in ids if self.store.unmount_segment([one], grace) != 0]
        if failed:
            message = (self.store.last_error() or {}).get("message")
            return as_json(500, {"error": message, "failed_segment_ids": failed})
        return as_json(200, {"status": "success"})

    def handle_reconfigure(self, request: Request) -> Answer:
        """POST /api/reconfigure: a new segment is mounted before the old ones are dropped."""
        fields = _fields(request)
        mode = fields.get("mode")
        if mode not in ("decode", "prefill"):
            raise BadRequest("'mode' must be 'decode' or 'prefill'")
        mounted: list[str] = []
        if mode == "decode":
            path = fields.get("path")
            if not isinstance(path, str) or not path:
                raise BadRequest("'path' is needed in the mode decode")
            found = self.store.mount_segment(path, _size(fields), _offset(fields), *_where(fields))
            if found["ret"] != 0:
                return self._status(found["ret"], "mount")
            mounted = list(found["segment_ids"])
        if self._mounted:
            code = self.store.unmount_segment(self._mounted, _grace(fields))
            if code != 0:
                return self._status(code, "unmount")
        self._mounted = mounted
        return as_json(200, {"status": "success", "mode": mode, "segment_ids": mounted})

    def handle_unmount_local_disk(self, request: Request) -> Answer:
        """POST /api/unmount_local_disk."""
        fields = _fields(request, may_be_empty=True)
        return self._status(self.store.unmount_local_disk_segment(_grace(fields)), "unmount_local_disk")

    def _status(self, code: int, verb: str) -> Answer:
        if code == 0:
            return as_json(200, {"status": "success"})
        message = (self.store.last_error() or {}).get("message", "")
        return as_json(500, {"error": f"{verb} failed with {code}: {message}", "code": code})

    def _mounted_answer(self, found: dict[str, Any], more: dict[str, Any]) -> Answer:
        if found["ret"] != 0:
            return self._status(found["ret"], "mount")
        return as_json(200, {"status": "success", "segment_ids": found["segment_ids"], **more})


def _guarded(route: Route) -> Route:
    def run(request: Request) -> Answer:
        try:
            return route(request)
        except BadRequest as error:
            return _error(400, str(error))

    return run


def _error(status: int, message: str) -> Answer:
    return as_json(status, {"error": message})


def _key(request: Request, prefix: str) -> str:
    return request.path[len(prefix) :]


def _fields(request: Request, *, may_be_empty: bool = False) -> dict[str, Any]:
    if may_be_empty and not request.body.strip():
        return {}
    try:
        fields = json.loads(request.body)
    except ValueError as error:
        raise BadRequest(f"the body is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadRequest("the body must be one JSON object")
    return fields


def _number(fields: dict[str, Any], name: str, default: int | None, low: int, high: int | None = None) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"{low} to {high}"
        raise BadRequest(f"'{name}' must be a whole number, {bounds}, not {value!r}")
    return value


def _size(fields: dict[str, Any]) -> int:
    return _number(fields, "size", None, 1)


def _offset(fields: dict[str, Any]) -> int:
    return _number(fields, "offset", 0, 0)


def _grace(fields: dict[str, Any]) -> int:
    return _number(fields, "grace_period_seconds", 0, 0, GRACE_MAX_S)


def _where(fields: dict[str, Any]) -> tuple[str, str]:
    return str(fields.get("protocol", "tcp")), str(fields.get("location", ""))


def _segment_ids(fields: dict[str, Any]) -> list[str]:
    ids = fields.get("segment_ids")
    if isinstance(ids, str):
        ids = [ids]
    if not isinstance(ids, list) or not ids or not all(isinstance(one, str) for one in ids):
        raise BadRequest("'segment_ids' must be a text or a list of texts")
    return ids


def _shm_path(fields: dict[str, Any]) -> str:
    name = fields.get("name")
    if not isinstance(name, str) or not name or name in (".", "..") or "/" in name or "\0" in name:
        raise BadRequest(f"'name' must be one name of a file under {SHM_FOLDER}")
    return os.path.join(SHM_FOLDER, name)


def defines(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Takes `-D key=value`, `-Dkey=value` and `--define key=value` out of the words.

    Raises:
        UsageError: One has no value.
    """
    rest: list[str] = []
    found: dict[str, str] = {}
    words = list(words)
    while words:
        word = words.pop(0)
        if word in ("-D", "--define"):
            pair = words.pop(0) if words else ""
        elif word.startswith("--define="):
            pair = word.partition("=")[2]
        elif word.startswith("-D"):
            pair = word[2:]
        else:
            rest.append(word)
            continue
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise _flags.UsageError(f"-D needs key=value, not {pair!r}")
        found[key.strip()] = value.strip()
    return rest, found


def main(words: list[str] | None = None) -> NoReturn:
    """Runs the command until SIGINT or SIGTERM; exit code 0 then."""
    words = sys.argv[1:] if words is None else words
    try:
        words, overrides = defines(words)
        parsed = _flags.parse(words, FLAGS)
    except _flags.UsageError as error:
        _flags.leave_with_usage(COMMAND, error)
    if parsed.wants_help:
        print(_flags.help_text(COMMAND, "Serves one store over HTTP.", FLAGS))
        raise SystemExit(0)
    logging.basicConfig(level="INFO", stream=sys.stderr)
    ends = {signal.SIGINT, signal.SIGTERM}
    # Blocked before any thread starts, so that only the waits below take them.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        service = MooncakeStoreService(parsed.values["config"] or None, overrides)
    except (OSError, ValueError) as error:
        _flags.leave_with_usage(COMMAND, _flags.UsageError(str(error)))
    stopped: list[bool] = []

    def pause(seconds: float) -> bool:
        stopped.append(signal.sigtimedwait(ends, seconds) is not None)
        return stopped[-1]

    try:
        if not service.start_store_service(parsed.values["max_wait_time"], pause):
            raise SystemExit(0 if any(stopped) else 1)
        try:
            server = service.start_http_service(parsed.values["port"])
        except OSError as error:
            _flags.leave_with_usage(COMMAND, _flags.UsageError(str(error)))
        ready = {"event": "ready", "role": "rest", "pid": os.getpid(), "http": f"{server.host}:{server.port}"}
        print(json.dumps(ready), flush=True)
        signal.sigwait(ends)
    finally:
        service.stop()
    raise SystemExit(0)


# The released package's name of the command's function.
sync_main = main


if __name__ == "__main__":
    main()
