"""The console command `mooncake_master`: becomes `snowskin master`, with the released command's flags."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from . import _flags, _master_flags

COMMAND = "mooncake_master"


def main(words: list[str] | None = None) -> NoReturn:
    """Runs the command; the process id stays."""
    words = sys.argv[1:] if words is None else words
    try:
        arguments = prepare(words)
    except _flags.UsageError as error:
        _flags.leave_with_usage(COMMAND, error)
    from snowskin import program

    program.become(arguments)


def prepare(words: list[str]) -> list[str]:
    """Understands the flags, says what has no effect, starts what the master needs beside itself.

    Returns:
        The words for `snowskin`.

    Raises:
        UsageError: The flags cannot be understood, or the metadata server's port cannot be used.
    """
    parsed = _flags.parse(words, _master_flags.ALL_FLAGS)
    if parsed.wants_help:
        print(_flags.help_text(COMMAND, "Serves the directory of a cluster.", _master_flags.ALL_FLAGS))
        raise SystemExit(0)
    if parsed.wants_version:
        return ["--version"]
    values, given = parsed.values, parsed.given
    lines: list[str] = []
    if values["config_path"]:
        from_file, lines = _master_flags.from_file(values["config_path"])
        for name, value in from_file.items():
            if name not in given:
                values[name] = value
        given = given | set(from_file)
    for line in [*lines, *_master_flags.warnings(values)]:
        print(f"{COMMAND}: warning: {line}", file=sys.stderr)
    arguments = _master_flags.arguments(values, given)
    level = _master_flags.log_filter(values)
    if level is not None:
        os.environ.setdefault("SNOWSKIN_LOG", level)
    if values["enable_http_metadata_server"]:
        from .http_metadata_server import start_beside

        try:
            start_beside(values["http_metadata_server_host"], values["http_metadata_server_port"])
        except OSError as error:
            raise _flags.UsageError(f"--http_metadata_server_port: {error}") from None
    return arguments


if __name__ == "__main__":
    main()
