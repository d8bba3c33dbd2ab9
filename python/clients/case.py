"""What the client scripts share: where the services are, and how a case ends.

The chore that runs them (`cargo xtask clients`) sets the variables; the defaults suit a run by hand.
"""

import os
import sys

MASTER = os.environ.get("MASTER", "127.0.0.1:51951")
META = os.environ.get("META", "P2PHANDSHAKE")
HOST = "127.0.0.1"
# Set in reference runs with the released package: defects known of it are printed, not failed on.
REFERENCE = os.environ.get("SNOWSKIN_CLIENTS_REFERENCE") == "1"


def known_defect(fixed: bool, what: str) -> None:
    """A check that the released package is known to fail; it binds us."""
    print(f"{what}: {'right' if fixed else 'WRONG'}")
    assert fixed or REFERENCE, what


def ready() -> None:
    """First of two processes: lets the other one start, and waits for its end."""
    print("READY", flush=True)
    sys.stdin.readline()


def passed(name: str) -> None:
    """Ends the process at once: the consumers leave threads behind that would keep it."""
    print(f"{name} OK", flush=True)
    sys.stderr.flush()
    os._exit(0)
