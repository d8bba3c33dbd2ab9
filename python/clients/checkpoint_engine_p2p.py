"""checkpoint-engine's P2PStore: weights are read from one rank by another in odd-sized pieces.

Real: checkpoint_engine.p2p_store.P2PStore. Stood in for: the device manager, which insists on a GPU or an NPU.
"""

import os
import types

os.environ["RANK"] = "0"

import memory  # first: it may name a driver
import torch
from checkpoint_engine import p2p_store

from case import HOST, passed

p2p_store.get_ip = lambda: HOST
manager = types.SimpleNamespace(
    device_module=types.SimpleNamespace(device_count=lambda: 1),
    transfer_engine_protocol="tcp",
    rdma_device=lambda rank: "",
)
owner, taker = p2p_store.P2PStore(manager), p2p_store.P2PStore(manager)
assert owner.addr != taker.addr

torch.manual_seed(7)
expected = {f"memory_pool_{i}": torch.randint(0, 256, (size,), dtype=torch.uint8) for i, size in enumerate([48 << 20, 3_000_001, 4097])}
weights = {name: memory.zeros(pool.numel()) for name, pool in expected.items()}
for name, pool in expected.items():
    memory.write(weights[name], pool)
owner.register_named_tensors(weights)
bucket = memory.zeros(64 << 20)
memory.fill(bucket, 0)
taker.register_named_tensors({"ipc_buffer": bucket})

# One bucket gathers pieces of every pool, at odd offsets and of odd lengths.
pieces = []
for name, pool in weights.items():
    offset, length = 1, 1
    while offset + length <= pool.numel():
        pieces.append((name, offset, length))
        offset, length = offset + length + 3, length * 3 + 1
local, remote, lengths, at = [], [], [], 5
for name, offset, length in pieces:
    local.append(bucket.data_ptr() + at)
    remote.append(weights[name].data_ptr() + offset)
    lengths.append(length)
    at += length + 11
assert at < bucket.numel()
taker.batch_transfer_sync_read(owner.addr, local, remote, lengths)
for (name, offset, length), address in zip(pieces, local):
    start = address - bucket.data_ptr()
    assert torch.equal(memory.read(bucket[start : start + length]), expected[name][offset : offset + length]), (name, offset)
assert int(memory.read(bucket[:5]).sum()) == 0, "bytes before the first piece were touched"
print(f"read {len(pieces)} pieces, {sum(lengths)} bytes")

# Memory that is no longer registered is refused, and can be registered again.
names = list(weights)
assert owner.unregister_named_tensors(names) == len(names)
try:
    taker.batch_transfer_sync_read(owner.addr, local[:1], remote[:1], lengths[:1])
except AssertionError:
    print("refused after unregistering")
else:
    raise SystemExit("a read of unregistered memory succeeded")
owner.register_named_tensors(weights)
memory.fill(bucket, 0)
taker.batch_transfer_sync_read(owner.addr, local, remote, lengths)
last_name, last_offset, last_length = pieces[-1]
start = local[-1] - bucket.data_ptr()
assert torch.equal(memory.read(bucket[start : start + last_length]), expected[last_name][last_offset : last_offset + last_length])
assert taker.unregister_named_tensors(["ipc_buffer"]) == 1
memory.report()
passed("checkpoint-engine P2PStore")
