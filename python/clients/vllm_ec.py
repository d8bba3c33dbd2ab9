"""vLLM's encoder outputs: through the store, and pushed from the encoder to the consumer's memory.

The store's client is the strictest reader of return values: an unknown one poisons it for ever. The push registers its
sources, sibling views of one tensor, around each write, from several threads.
Real: MooncakeEmbeddingStoreClient with its configuration and set-up, MooncakeTransfer. Stood in for: nothing but the host's
address.
"""

import json
import os
import pathlib
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor

from case import HOST, MASTER, META, passed

settings = {
    "metadata_server": META,
    "master_server_address": MASTER,
    "protocol": "tcp",
    "device_name": "",
    "global_segment_size": "128MB",
    "local_buffer_size": "32MB",
}
path = pathlib.Path(tempfile.mkdtemp(), "mooncake.json")
path.write_text(json.dumps(settings))
os.environ["MOONCAKE_CONFIG_PATH"] = str(path)
os.environ["MOONCAKE_REQUESTER_LOCAL_HOSTNAME"] = HOST

import torch
import vllm.distributed.ec_transfer.ec_connector.mooncake_store_embedding.store_client as embedding
from vllm.distributed.ec_transfer.ec_connector.mooncake.transfer import MooncakeTransfer
from vllm.distributed.ec_transfer.ec_connector.mooncake_store_embedding.data import TensorSpec

READ_BUFFER = 4 << 20
client = embedding.create_mooncake_embedding_store_client(READ_BUFFER)


def spec(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(shape=tuple(tensor.shape), dtype=str(tensor.dtype), nbytes=tensor.nbytes)


def key() -> str:
    return f"embedding@model:org/Vision@revision:main@encoder:vit@dtype:torch.bfloat16@protocol:v3@id:{uuid.uuid4().hex}"


# Different sizes and types; together more than one read buffer holds, so that they are loaded in several batches.
tensors = {key(): torch.randn(tokens, 1024).to(dtype) for tokens, dtype in [(1, torch.float32), (333, torch.bfloat16), (700, torch.float16), (900, torch.float32), (577, torch.bfloat16)]}
assert client.batch_exists(list(tensors)) == [False] * len(tensors)
for name, tensor in tensors.items():
    client.put_tensor(name, tensor)
    client.put_tensor(name, tensor)  # a second put of the same object is no failure
assert client.batch_exists(list(tensors)) == [True] * len(tensors)

absent = key()
wanted = {name: spec(tensor) for name, tensor in tensors.items()} | {absent: TensorSpec(shape=(4, 1024), dtype="torch.float32", nbytes=4 * 4096)}
loaded = client.load_tensors(wanted, "cpu")
assert set(loaded) == set(tensors)
for name, tensor in tensors.items():
    assert torch.equal(loaded[name], tensor), name

# A room too small for the object is refused by a code that leaves the client healthy.
first = next(iter(tensors))
assert client.load_tensors({list(tensors)[1]: TensorSpec(shape=(2, 1024), dtype="torch.bfloat16", nbytes=2 * 2048)}, "cpu") == {}
assert torch.equal(client.load_tensors({first: wanted[first]}, "cpu")[first], tensors[first])
assert not client._poisoned
client.close()

# Push: one encoder batch is one tensor, its outputs are views of odd sizes side by side in it.
ROUNDS, THREADS = 40, 4
producer, consumer = MooncakeTransfer(HOST, "tcp"), MooncakeTransfer(HOST, "tcp")
room = torch.zeros((THREADS, 1 << 20), dtype=torch.uint8)
assert consumer.register_memory(room) == 0
session = consumer.local_session()


def push(thread: int) -> None:
    generator = torch.Generator().manual_seed(thread)
    for _ in range(ROUNDS):
        outputs = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8, generator=generator)
        views = list(outputs.split([100_001, 4096, 3, (1 << 20) - 104_100]))
        held = producer.acquire_sources(views)
        again = producer.acquire_sources(views[:2])  # a second request of the same outputs
        targets, at = [], room[thread].data_ptr()
        for view in views:
            targets.append(at)
            at += view.nbytes
        producer.write(session, [view.data_ptr() for view in views], targets, [view.nbytes for view in views])
        assert torch.equal(room[thread], outputs), f"thread {thread}: the bytes pushed differ"
        assert producer.release_sources(again) and producer.release_sources(held)


with ThreadPoolExecutor(THREADS) as threads:
    list(threads.map(push, range(THREADS)))
assert consumer.unregister_memory(room)
try:
    producer.write(session, [room.data_ptr()], [room.data_ptr()], [16])
except RuntimeError as error:
    print("refused after unregistering:", error)
else:
    raise SystemExit("a write to unregistered memory succeeded")
producer.close()
consumer.close()
passed("vLLM encoder outputs")
