"""What a call raises, and the codes behind it.

Every failure of the pool carries the same fields wherever it is seen (exceptions here, `last_error()`, the command
line's `--json`, HTTP): a stable code and name, a message, the key, the peer, the stage, what a caller may do about
it, and numbers in `detail`. The codes are listed in docs/errors.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "Corrupt",
    "Error",
    "Exists",
    "Invalid",
    "Leased",
    "NoSpace",
    "NotFound",
    "NotSupported",
    "Timeout",
    "Unreachable",
    "from_mapping",
]

# The codes that the Python layer itself gives. The names are those of docs/errors.md.
OK = 0
INTERNAL_ERROR = -1
INVALID_PARAMS = -600
OBJECT_NOT_FOUND = -704
RPC_FAIL = -900
RPC_TIMEOUT = -901
NOT_SUPPORTED = -1012
FILE_NOT_FOUND = -1100


class Error(Exception):
    """A call failed.

    Attributes:
        code: Stable negative number, 0 only for errors that never reached the pool.
        name: The code's upper-case name.
        message: One sentence that names what is wrong.
        key: The object's key, or None.
        peer: The process that answered or could not be reached, or None.
        stage: `reserve`, `write`, `publish`, `locate`, `read`, `verify` or `session`, or None.
        retry: `never`, `same` (the same call may succeed later), `other_replica` or `after_refresh`.
        detail: Numbers that explain a refusal (`wanted`, `free`, `largest`, `leased`, ...), else empty.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = INTERNAL_ERROR,
        name: str = "INTERNAL_ERROR",
        key: Any = None,
        peer: str | None = None,
        stage: str | None = None,
        retry: str = "never",
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.name = name
        self.key = key
        self.peer = peer
        self.stage = stage
        self.retry = retry
        self.detail: dict[str, Any] = dict(detail or {})

    def __str__(self) -> str:
        return f"{self.name} ({self.code}): {self.message}"

    def __reduce__(self) -> Any:
        # Keyword-only arguments are not carried by the default form of pickling.
        return (_rebuild, (type(self), self.as_dict()))

    def as_dict(self) -> dict[str, Any]:
        """The error object of the outside contract, as a plain dictionary."""
        return {
            "code": self.code,
            "name": self.name,
            "message": self.message,
            "key": self.key,
            "peer": self.peer,
            "stage": self.stage,
            "retry": self.retry,
            "detail": dict(self.detail),
        }


class NotFound(Error, LookupError):
    """No such object."""


class Exists(Error):
    """The key is taken, and `replace` was not asked for."""


class NoSpace(Error):
    """No space within the time that a put may wait; `detail` says how the pool is used."""


class Leased(Error):
    """A live lease protects the object; wait for its end or use `force=True`."""


class Timeout(Error):
    """The deadline passed. Nothing touches the caller's memory any more."""


class Unreachable(Error):
    """The master or a node could not be reached."""


class Corrupt(Error):
    """The bytes do not have their checksum; no replica gave better ones."""


class Invalid(Error, ValueError):
    """A value in the call is not allowed; the message says what is."""


class NotSupported(Error, NotImplementedError):
    """The pool cannot do this (yet)."""


_CLASSES: dict[int, type[Error]] = {
    -10: Invalid,
    -200: NoSpace,
    -400: Invalid,
    INVALID_PARAMS: Invalid,
    -701: Invalid,
    OBJECT_NOT_FOUND: NotFound,
    -705: Exists,
    -706: Leased,
    -801: Corrupt,
    RPC_FAIL: Unreachable,
    RPC_TIMEOUT: Timeout,
    -1011: NotSupported,
    NOT_SUPPORTED: NotSupported,
}

_FIELDS = ("code", "name", "key", "peer", "stage", "retry", "detail")


def from_mapping(fields: Mapping[str, Any]) -> Error:
    """Makes the typed exception of an error object (`last_error()`, the command line's `--json`)."""
    known = {name: fields[name] for name in _FIELDS if fields.get(name) is not None}
    kind = _CLASSES.get(known.get("code", INTERNAL_ERROR), Error)
    return kind(str(fields.get("message") or known.get("name") or "failed"), **known)


def from_native(error: BaseException) -> Error:
    """Makes the typed exception of a `_native.NativeError`."""
    fields = {name: getattr(error, name, None) for name in (*_FIELDS, "message")}
    if fields["message"] is None:
        fields["message"] = str(error)
    return from_mapping(fields)


def invalid(message: str) -> Invalid:
    """The exception for a value that is not allowed."""
    return Invalid(message, code=INVALID_PARAMS, name="INVALID_PARAMS")


def not_supported(message: str) -> NotSupported:
    """The exception for what the pool cannot do (yet)."""
    return NotSupported(message, code=NOT_SUPPORTED, name="NOT_SUPPORTED")


def _rebuild(kind: type[Error], fields: dict[str, Any]) -> Error:
    message = fields.pop("message")
    return kind(message, **fields)
