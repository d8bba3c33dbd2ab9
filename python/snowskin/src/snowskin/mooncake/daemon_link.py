"""How a thin client asks the daemon `mooncake_client` of its machine for the pool: one small JSON object over HTTP.

The daemon serves `GET /snowskin/describe`; the thin client then speaks to the master and the nodes itself.
"""

from __future__ import annotations

import http.client
import json
from typing import Any

PATH = "/snowskin/describe"
SCHEMA = "snowskin.describe/1"
TIMEOUT_S = 4.0
HEALTH_TIMEOUT_S = 1.0
ANSWER_MAX = 64 << 10


class NoDaemon(Exception):
    """The daemon did not answer as one; the message says what happened."""


def describe(address: str, timeout: float = TIMEOUT_S) -> dict[str, Any]:
    """Asks the daemon at `host:port`.

    Raises:
        NoDaemon: The address is none, nothing answers within `timeout` seconds, or something else does.
    """
    host, separator, port = address.rpartition(":")
    named = separator and host.isascii() and host and port.isascii() and port.isdigit()
    if not named or not 0 < int(port) <= 65535:
        raise NoDaemon(f"server_address {address!a} is not host:port")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout)
    try:
        connection.request("GET", PATH)
        answer = connection.getresponse()
        found = json.loads(answer.read(ANSWER_MAX)) if answer.status == 200 else {}
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoDaemon(f"no mooncake_client answers at {address}: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not isinstance(found.get("master"), str):
        raise NoDaemon(f"what answers at {address} is no mooncake_client of this package")
    return found
