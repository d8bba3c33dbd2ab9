"""vLLM's store of encoder outputs, the strictest reader of return values: an unknown one poisons the client for ever.

Real: MooncakeEmbeddingStoreClient, its configuration and set-up. Stood in for: nothing but the host's address.
"""

import json
import os
import pathlib
import tempfile
import uuid

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
passed("vLLM encoder store")
