"""What a call costs before any byte moves, and how long the package takes to import.

usage: python python/bench/calls.py    (an environment with the wheels; runs an embedded pool)

Prints one JSON line per figure. A batch is the hot one of a long prompt: 8,192 keys of 80 runs of memory each. It is timed
on a store that is not set up, so that arguments are taken apart and nothing else happens.
"""

import ctypes
import hashlib
import json
import statistics
import subprocess
import sys
import time

from snowskin._native import MooncakeStoreBase

KEYS, RUNS, ROUNDS = 8192, 80, 15


def milliseconds(call):
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return {"best_ms": round(min(times), 2), "median_ms": round(statistics.median(times), 2)}


def tell(what, **figures):
    print(json.dumps({"what": what, **figures}), flush=True)


def import_ms(module):
    code = f"import time; t = time.perf_counter(); import {module}; print((time.perf_counter() - t) * 1e3)"
    times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    return {"best_ms": round(min(times), 1), "median_ms": round(statistics.median(times), 1)}


def main():
    digests = (hashlib.sha256(str(i).encode()).hexdigest() for i in range(KEYS))
    keys = [f"model@pcp0@dcp0@head_or_tp_rank:0@pp_rank:0@group:0@cache_role:kv@cache_family:c4@{d}" for d in digests]
    memory = ctypes.create_string_buffer(64 << 20)
    base = ctypes.addressof(memory)
    pointers = [[base + (i * RUNS + j) * 64 for j in range(RUNS)] for i in range(KEYS)]
    sizes = [[64] * RUNS for _ in range(KEYS)]
    closed = MooncakeStoreBase()
    tell(
        "batch of 8,192 keys x 80 runs, arguments only",
        **milliseconds(lambda: closed.batch_get_into_multi_buffers(keys, pointers, sizes)),
    )
    tell("batch of 8,192 keys, arguments only", **milliseconds(lambda: closed.batch_is_exist(keys)))
    store = MooncakeStoreBase()
    if store._open({"segment_size": 256 << 20, "local_buffer_size": 16 << 20}) != 0:
        sys.exit(f"the pool did not start: {store.last_error()}")
    store.put("k", b"v" * 100)
    tell("8,192 existence checks in one batch, embedded", **milliseconds(lambda: store.batch_is_exist(keys)))
    tell("1,000 existence checks one by one, embedded", **milliseconds(lambda: [store.is_exist("k") for _ in range(1000)]))
    store.close()
    for module in ("snowskin", "mooncake.store", "mooncake.engine"):
        tell(f"import {module}", **import_ms(module))


if __name__ == "__main__":
    main()
