"""LMCache with the setting names of its own documentation, and what it is told once the master is gone.

LMCache reads every answer to "does this key exist?" as a truth value, so an error code would be a hit. Its master is this
script's own, to be killed.
Real: LMCache's MooncakestoreConnector with its configuration. Stood in for: nothing.
"""

import asyncio
import os
import pathlib
import socket
import subprocess
import sys
import time
import uuid

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.connector import CreateConnector
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

from case import HOST, META, REFERENCE, known_defect, passed

SHAPE = (4, 2, 16, 2, 32)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def start_master() -> tuple[subprocess.Popen, str]:
    port = free_port()
    program = pathlib.Path(sys.executable).with_name("mooncake_master")
    options = [f"--rpc_port={port}", f"--rpc_address={HOST}", f"--metrics_port={free_port()}", f"--metrics_host={HOST}"]
    master = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while not listens(port):
        assert master.poll() is None and time.monotonic() < end, "the master does not start"
        time.sleep(0.05)
    return master, f"{HOST}:{port}"


def key() -> CacheEngineKey:
    return CacheEngineKey("org/model", 1, 0, uuid.uuid4().int, torch.bfloat16)


async def main(address: str, master: subprocess.Popen) -> None:
    # The released package knows the address by another name only, and dials a default for a minute and a half.
    named = "mooncake_master_server_addr" if REFERENCE else "mooncake_master_server_address"
    settings = {
        "save_chunk_meta": False,
        "transfer_timeout": 5,
        "mooncake_local_hostname": HOST,
        "mooncake_metadata_server": META,
        named: address,
        "mooncake_device_name": "",
        "mooncake_protocol": "tcp",
        "mooncake_global_segment_size": "67108864",
        "mooncake_local_buffer_size": "33554432",
    }
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=16, local_cpu=False, max_local_cpu_size=0.125, remote_url=f"mooncakestore://{address}", remote_serde="naive", extra_config=settings
    )
    metadata = LMCacheMetadata(
        model_name="org/model", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0, kv_dtype=torch.bfloat16, kv_shape=SHAPE, chunk_size=16
    )
    memory = LocalCPUBackend(config, metadata, dst_device="cpu")
    connector = CreateConnector(config.remote_url, asyncio.get_running_loop(), memory, config, metadata)
    while hasattr(connector, "_connector"):
        connector = connector._connector

    there, absent = key(), key()
    chunk = memory.allocate(metadata.get_shapes(), metadata.get_dtypes(), MemoryFormat.KV_2LTD)
    chunk.raw_tensor.copy_(torch.randint(0, 256, chunk.raw_tensor.shape, dtype=torch.uint8))
    await connector.put(there, chunk)
    assert await connector.exists(there) and not await connector.exists(absent)
    [got] = await connector.batched_get([there])
    assert got is not None and torch.equal(got.raw_tensor, chunk.raw_tensor)
    print("stored and loaded by the documented setting names")

    master.kill()
    master.wait()
    start = time.monotonic()
    first = connector.exists_sync(absent)
    waited = time.monotonic() - start
    start = time.monotonic()
    second = connector.exists_sync(absent)
    again = time.monotonic() - start
    print(f"after the master was killed: {first} after {waited:.2f} s, then {second} after {again:.3f} s")
    known_defect(not first and not second, "without a master nothing is said to exist")
    known_defect(waited < 10 and again < 0.1, "the answer comes by the deadline, then at once")
    [lost] = await connector.batched_get([absent])
    known_defect(lost is None, "without a master a load is a miss")


master, address = start_master()
try:
    asyncio.run(asyncio.wait_for(main(address, master), 120))
finally:
    master.kill()
    master.wait()
passed("LMCache without a master")
