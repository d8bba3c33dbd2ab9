"""Where the packaged `snowskin` program is, and a console command that becomes it."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import NoReturn

_HERE = Path(__file__).resolve().parent


def path() -> str | None:
    """The program's file: the one in this package, else in the interpreter's scripts folder, else on PATH."""
    candidates = [_HERE / "bin" / "snowskin"]
    for folder in (sysconfig.get_path("scripts"), os.path.dirname(sys.executable)):
        if folder:
            candidates.append(Path(folder) / "snowskin")
    for candidate in candidates:
        if _is_program(candidate):
            return str(candidate)
    found = shutil.which("snowskin")
    return found if found and _is_program(Path(found)) else None


def _is_program(file: Path) -> bool:
    """True for an executable that is not a script: the console command of this module would start itself."""
    try:
        with open(file, "rb") as handle:
            head = handle.read(2)
    except OSError:
        return False
    return head != b"#!" and os.access(file, os.X_OK)


def become(arguments: list[str]) -> NoReturn:
    """Replaces this process by the program; the process id stays.

    Raises:
        SystemExit: With 1 when the program is not there, and a line on stderr that says so.
    """
    program = path()
    if program is None:
        print(
            "snowskin: the program is not in this installation; install the wheel 'snowskin' again",
            file=sys.stderr,
        )
        raise SystemExit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(program, [program, *arguments])


def main() -> NoReturn:
    """The console command `snowskin`."""
    become(sys.argv[1:])
