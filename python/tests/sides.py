"""What the compatibility tests run against: our package or an installed peer wheel, and its processes.

One option (`--peer`, or SNOWSKIN_TEST_PEER=1) chooses. Everything here works the same for both, so that a
test says what a caller may rely on and not whose code it is.
"""

import ctypes
import json
import mmap
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

MIB = 1 << 20
LEASE_MS = 500
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# A process that is asked to end does so within this time, else it is killed and the test run fails.
END_SECONDS = 8


class Side:
    """The package under test."""

    def __init__(self, peer):
        self.is_peer = peer
        self.name = "peer" if peer else "ours"

    def pick(self, *, ours, peer):
        """The value this side is known to give where the two differ."""
        return peer if self.is_peer else ours


def wait_until(condition, seconds, what):
    """Polls until the condition holds and returns its value; fails with `what` after the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def fetch(url, seconds=2):
    """(status, body) of a GET; None when nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError:
        return None


def stopped(pid):
    """True once a process that was sent SIGSTOP runs in none of its threads any more."""
    states = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return all(state == "T" for state in states)


class Process:
    """A child process that ends with the test run."""

    def __init__(self, command, env=None, log=None):
        self.command = [str(c) for c in command]
        self.log = log
        with open(log or os.devnull, "ab") as errors:
            self.child = subprocess.Popen(
                self.command,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def line(self, seconds):
        """The next line of its output; fails when none comes in time."""
        ready, _, _ = select.select([self.child.stdout], [], [], seconds)
        text = self.child.stdout.readline().decode() if ready else ""
        if not text:
            raise AssertionError(f"{self.command[0]} said nothing in {seconds} s; log: {self.log}")
        return text.strip()

    def running(self):
        return self.child.poll() is None

    def end(self, with_signal=signal.SIGTERM):
        """Ends it and returns its exit code; kills it when it does not obey."""
        if self.running():
            self.child.send_signal(with_signal)
        try:
            code = self.child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            code = self.child.wait(END_SECONDS)
        if self.child.stdout:
            self.child.stdout.close()
        return code


def our_program():
    """The `snowskin` program: the one named by SNOWSKIN_BIN, a release build of this tree, or the installed one."""
    named = os.environ.get("SNOWSKIN_BIN")
    if named:
        return named
    built = REPOSITORY / "target" / "release" / "snowskin"
    if built.exists():
        return str(built)
    beside = pathlib.Path(sys.executable).parent / "snowskin"
    found = str(beside) if beside.exists() else shutil.which("snowskin")
    if not found:
        raise AssertionError("no snowskin program: set SNOWSKIN_BIN or build it with cargo build --release")
    return found


def peer_program(name):
    beside = pathlib.Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


class Master:
    """A master process of the side under test, on ports of its own."""

    def __init__(self, side, folder, lease_ms=LEASE_MS, rpc_port=None, metrics_port=None, options=()):
        self.side = side
        self.rpc_port = rpc_port or free_port()
        self.metrics_port = metrics_port or free_port()
        self.address = f"127.0.0.1:{self.rpc_port}"
        self.http = f"http://127.0.0.1:{self.metrics_port}"
        self.log = str(pathlib.Path(folder) / f"master-{self.rpc_port}.log")
        shared = [
            f"--rpc_port={self.rpc_port}",
            "--rpc_address=127.0.0.1",
            f"--metrics_port={self.metrics_port}",
            "--metrics_host=127.0.0.1",
            f"--default_kv_lease_ttl={lease_ms}",
            *options,
        ]
        if side.is_peer:
            self.process = Process([peer_program("mooncake_master"), *shared], log=self.log)
            # The peer logs to both streams and announces nothing: its HTTP port tells that it serves.
            wait_until(
                lambda: (fetch(self.http + "/health", 1) or (0,))[0] == 200, 15, f"{self.http}/health of the master"
            )
        else:
            state = pathlib.Path(folder) / f"state-{self.rpc_port}"
            self.process = Process([our_program(), "master", *shared, f"--state-dir={state}"], log=self.log)
            self.ready = json.loads(self.process.line(15))

    def end(self, with_signal=signal.SIGTERM):
        return self.process.end(with_signal)


class Memory:
    """Page-aligned memory of this process with a raw address, as an engine would own it."""

    def __init__(self, size, fill=None):
        self.size = size
        self.map = mmap.mmap(-1, max(size, 1))
        self.holder = ctypes.c_char.from_buffer(self.map)
        self.address = ctypes.addressof(self.holder)
        if fill is not None:
            self[:] = fill

    def __getitem__(self, part):
        return self.map[part]

    def __setitem__(self, part, data):
        if part == slice(None):
            part = slice(0, len(data))
        self.map[part] = data

    def free(self):
        self.holder = None
        self.map.close()


def pattern(size, seed=0):
    """Bytes of which any shift or swap of a part shows."""
    block = bytes((i * 7 + seed * 31 + (i >> 8)) & 0xFF for i in range(min(size, 65521)))
    return (block * (size // max(len(block), 1) + 1))[:size]


def run_python(code, env=None, seconds=30, arguments=()):
    """Runs code in an interpreter of its own: (exit code, list of the JSON lines it printed)."""
    done = subprocess.run(
        [sys.executable, "-c", code, *[str(a) for a in arguments]],
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent), **(env or {})},
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    lines = []
    for line in done.stdout.decode(errors="replace").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            pass
    if done.returncode > 0:
        sys.stderr.write(done.stderr.decode(errors="replace")[-4000:])
    return done.returncode, lines
