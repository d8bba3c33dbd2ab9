"""vllm-ascend's Mooncake back end: `ascend.py put` and `ascend.py get`, two processes.

40 prefixes x 4 cache groups x 3 layers; memory is registered on the transfer engine alone, and the store shares its table.
Real: MooncakeBackend, its process-wide engine, PoolKey. Stood in for: torch_npu, and the helpers that need an NPU.
"""

import hashlib
import json
import os
import pathlib
import sys
import tempfile
import types
from unittest.mock import MagicMock

import memory  # first: it may name a driver
import torch
import transformers  # noqa: F401  before torch_npu is stood in for
import vllm.config  # noqa: F401
import vllm.distributed.parallel_state  # noqa: F401

from case import HOST, MASTER, META, passed, ready

sys.path.insert(0, os.environ["VLLM_ASCEND_SRC"])
for name in ["torch_npu", "vllm_ascend.utils", "vllm_ascend.envs", "vllm_ascend._build_info"]:
    sys.modules[name] = MagicMock()
state = types.ModuleType("vllm_ascend.distributed.parallel_state")
state.get_global_rank = lambda parallel_config: 0
sys.modules[state.__name__] = state
torch.npu = MagicMock()

settings = {
    "metadata_server": META,
    "protocol": "ascend",
    "device_name": "",
    "master_server_address": MASTER,
    "global_segment_size": "256MB",
    "local_buffer_size": "32MB",
    "preferred_segment": True,
    "prefer_alloc_in_same_node": True,
}
path = pathlib.Path(tempfile.mkdtemp(), "mooncake.json")
path.write_text(json.dumps(settings))
os.environ["MOONCAKE_CONFIG_PATH"] = str(path)

from vllm_ascend.distributed.kv_transfer.kv_pool.ascend_store.backend import mooncake_backend
from vllm_ascend.distributed.kv_transfer.kv_pool.ascend_store.config_data import KeyMetadata, PoolKey

mooncake_backend.get_ip = lambda: HOST
role, seed = sys.argv[1], sys.argv[2]

PREFIXES, LAYERS = 40, 3
# Cache family and bytes of one block of one layer, as with compressed attention: a few are not powers of two.
GROUPS = [("default", 16384), ("c1", 9216), ("c4", 4608), ("c128", 1152)]


def key(group: int, prefix: str) -> str:
    metadata = KeyMetadata("DeepSeek-V4", 0, 0, 0, 0, kv_cache_group_id=group, cache_role="kv", cache_family=GROUPS[group][0])
    return PoolKey(metadata, hashlib.sha256(f"{seed}/{prefix}".encode()).hexdigest()).to_string()


def caches() -> list[list[torch.Tensor]]:
    """For every group and layer: twice as many blocks as prefixes, so that what was put can be got elsewhere."""
    generator = torch.Generator().manual_seed(int(seed))
    made = []
    for _, block in GROUPS:
        layers = [memory.zeros(2 * PREFIXES, block) for _ in range(LAYERS)]
        for layer in layers:
            memory.write(layer[:PREFIXES], torch.randint(0, 256, (PREFIXES, block), dtype=torch.uint8, generator=generator))
            memory.fill(layer[PREFIXES:], 0)
        made.append(layers)
    return made


def batch(groups: list[int], shift: int):
    """Keys, addresses and sizes of all prefixes of these groups, `shift` blocks further on."""
    keys, addresses, sizes = [], [], []
    for group in groups:
        block = GROUPS[group][1]
        for i in range(PREFIXES):
            keys.append(key(group, str(i)))
            addresses.append([layer[i + shift].data_ptr() for layer in kv[group]])
            sizes.append([block] * LAYERS)
    return keys, addresses, sizes


kv = caches()
backend = mooncake_backend.MooncakeBackend(MagicMock())
layers = [layer for group in kv for layer in group]
backend.register_buffer([t.data_ptr() for t in layers], [t.nbytes for t in layers])
everything = batch(list(range(len(GROUPS))), PREFIXES)
total = len(everything[0])
assert everything[0][0].startswith("DeepSeek-V4@pcp0@dcp0@head_or_tp_rank:0@pp_rank:0@group:0@cache_role:kv@cache_family:default@")
print("sample key", everything[0][-1])

if role == "put":
    assert backend.exists(everything[0]) == [0] * total
    # vllm-ascend puts group by group; the back end only logs failures, so existence is the proof.
    for group in range(len(GROUPS)):
        backend.put(*batch([group], 0))
    assert backend.exists(everything[0]) == [1] * total
    backend.put(*batch([0], PREFIXES))  # a second put of other bytes changes nothing
    ready()
    memory.report()
    backend.store.close()
    passed("vllm-ascend put")

# One get over all groups of the request, from the other process.
assert backend.exists(everything[0]) == [1] * total
assert backend.get(*everything) == [0] * total
for layer in layers:
    assert torch.equal(memory.read(layer[:PREFIXES]), memory.read(layer[PREFIXES:]))
print(f"got {total} objects of {LAYERS} parts")

# Misses stay negative and touch nothing; the hits beside them succeed.
keys, addresses, sizes = batch([1], PREFIXES)
memory.fill(kv[1][0][PREFIXES:], 0)
keys[3] = key(1, "never put")
answers = backend.get(keys, addresses, sizes)
assert answers[3] < 0 and answers[:3] + answers[4:] == [0] * (PREFIXES - 1), answers
assert int(memory.read(kv[1][0][PREFIXES + 3]).sum()) == 0
assert torch.equal(memory.read(kv[1][0][PREFIXES + 4 :]), memory.read(kv[1][0][4:PREFIXES]))

# The scheduler's client holds no memory and only asks.
scheduler = mooncake_backend.MooncakeBackend.create_scheduler_client(MagicMock())
assert scheduler.exists(keys) == [1, 1, 1, 0] + [1] * (PREFIXES - 4)
memory.report()
scheduler.store.close()
backend.store.close()
passed("vllm-ascend")
