"""LMCache's transfer channel over a transfer engine: two contexts, many chunks, a batch of unequal parts, a dead peer.

Real: LMCache's transfer channel context, server and client of type "mooncake_te". Stood in for: nothing.
"""

import socket
import time

import torch
from lmcache.v1.distributed.internal_api import L1MemoryDesc
from lmcache.v1.distributed.transfer_channel import factory
from lmcache.v1.distributed.transfer_channel.impl import mooncake_te_impl  # registers itself

from case import HOST, known_defect, passed

CHUNK = 192 << 10
CHUNKS = 64
BIG = 128 << 20


def free_url() -> str:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return f"{HOST}:{probe.getsockname()[1]}"


def context(memory: torch.Tensor):
    url = free_url()
    description = L1MemoryDesc(ptr=memory.data_ptr(), size=memory.numel(), align_bytes=4096)
    made = factory.create_transfer_channel_context("mooncake_te", l1_memory_desc=description, listen_url=url, advertise_url=url)
    return url, made


def outcome(client, task: int, patience: float = 30.0):
    """Polls as LMCache does, without a pause, so that a premature answer shows."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        result = client.query_read_status(task)
        if result.is_finished():
            return result
    raise SystemExit(f"a read was still running after {patience} s")


torch.manual_seed(3)
ours = torch.zeros(BIG + (16 << 20), dtype=torch.uint8)
theirs = torch.randint(0, 256, (BIG + (16 << 20),), dtype=torch.uint8)
_, reader = context(ours)
their_url, holder = context(theirs)
client = reader.get_transfer_channel_client(their_url)

# 64 chunks in one task, to other places than they come from.
source = [(i * CHUNK, CHUNK) for i in range(CHUNKS)]
target = [((CHUNKS - 1 - i) * CHUNK, CHUNK) for i in range(CHUNKS)]
address = reader.get_transfer_channel_address
result = outcome(client, client.submit_read(address(target), address(source)))
assert result.succeeded_mask == [True] * CHUNKS, result
for (there, size), (here, _) in zip(source, target):
    assert torch.equal(ours[here : here + size], theirs[there : there + size]), there
print(f"{CHUNKS} chunks read")

# A small part before a large one: done means that both have arrived.
ours.zero_()
parts = address([(0, 4096), (4096, BIG)])
result = outcome(client, client.submit_read(parts, parts))
whole = bool(torch.equal(ours[: 4096 + BIG], theirs[: 4096 + BIG]))
assert result.succeeded_mask == [True, True], result
known_defect(whole, "a batch is reported done once all of it has arrived")

# The holder can read from the reader, too: the handshake made both known to each other.
if not whole:
    time.sleep(2)
assert reader.get_num_connected_clients() == 1 and holder.get_num_connected_clients() == 1

# A peer that is gone: an error in good time, no hang.
gone = mooncake_te_impl.MooncakeTeTransferChannelClient(reader, free_url(), theirs.data_ptr())
start = time.monotonic()
try:
    result = outcome(gone, gone.submit_read(parts[:1], parts[:1]))
    assert result.succeeded_mask == [False], result
except RuntimeError as error:
    print("dead peer:", error)
assert time.monotonic() - start < 10, "a dead peer took too long to be noticed"

holder.close()
reader.close()
passed("LMCache transfer channel")
