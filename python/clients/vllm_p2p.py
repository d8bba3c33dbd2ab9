"""vLLM's peer-to-peer connector: `vllm_p2p.py prefill SEED` and `vllm_p2p.py decode SEED`, two processes.

The prefill worker writes the blocks of a request straight into the decode worker's memory.
Real: MooncakeConnectorWorker on both sides, its bootstrap server and its ZMQ side channel. Stood in for: the attention back
end, the device, and the parallel groups of a model that is not loaded.
"""

import os
import sys
import time
import types
from unittest.mock import MagicMock

role, seed = sys.argv[1], int(sys.argv[2])
os.environ.setdefault("VLLM_MOONCAKE_BOOTSTRAP_PORT", "51998")

import memory  # first: it may name a driver
import torch
import vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector as connector
from vllm.config import KVTransferConfig
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor

from case import HOST, passed, ready

backend = types.SimpleNamespace(get_name=lambda: "NONE", full_cls_name=lambda: "none.None")
connector.get_pp_group = lambda: types.SimpleNamespace(rank_in_group=0, world_size=1)
connector.get_tensor_model_parallel_rank = lambda: 0
connector.get_tensor_model_parallel_world_size = lambda: 1
connector.get_ip = lambda: HOST
connector.current_platform = MagicMock()
connector.get_current_attn_backends = lambda config: [backend]
connector.get_current_attn_backends_and_specs = lambda config, caches, backends: (backends, [None])
connector.select_common_block_size = lambda size, backends, specs: size
torch.accelerator.current_device_index = lambda: 0

BLOCK, BLOCKS, LAYERS = 16, 64, 4
# The blocks of each request: where the prefill worker has them, and where the decode worker wants them. Runs of consecutive
# blocks are merged by vLLM; the second request has none.
REQUESTS = {
    "long": (list(range(1, 21)), list(range(40, 60))),
    "scattered": ([33, 30, 27, 41], [2, 9, 4, 7]),
    "refused": ([50, 51], [20, 21]),
}

spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=64, dtype=torch.bfloat16)
page = spec.page_size_bytes
names = [f"model.layers.{i}.self_attn" for i in range(LAYERS)]
tensors = [KVCacheTensor(size=page * BLOCKS, layers=[name], layer_stride=page * BLOCKS, block_stride=page) for name in names]
caches = KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=tensors, kv_cache_groups=[KVCacheGroupSpec(names, spec)])

config = MagicMock()
config.cache_config.block_size = BLOCK
config.model_config.use_mla = False
config.model_config.get_total_num_kv_heads.return_value = 2
parallel = config.parallel_config
parallel.tensor_parallel_size = parallel.pipeline_parallel_size = 1
parallel.data_parallel_index = parallel.data_parallel_rank_local = 0
parallel.local_engines_only = True
engine_id = f"{role}-{seed}"
config.kv_transfer_config = KVTransferConfig(
    kv_connector="MooncakeConnector",
    kv_role="kv_producer" if role == "prefill" else "kv_consumer",
    engine_id=engine_id,
    kv_connector_extra_config={"mooncake_protocol": "tcp", "num_workers": 2},
)

# Two layers share one allocation, two have their own: vLLM registers storages, not layers.
shared = memory.zeros(2, BLOCKS, page)
kv = {names[0]: shared[0], names[1]: shared[1], names[2]: memory.zeros(BLOCKS, page), names[3]: memory.zeros(BLOCKS, page)}
for cache in kv.values():
    memory.fill(cache, 0)


def content(layer: int, block: int) -> torch.Tensor:
    return (torch.arange(page, dtype=torch.int64) * 11 + layer * 97 + block * 31 + seed).to(torch.uint8)


def holds(request: str, there: bool) -> bool:
    """Whether the decode worker's blocks of this request are the prefill worker's (or still empty)."""
    for layer, name in enumerate(names):
        for source, target in zip(*REQUESTS[request]):
            want = content(layer, source) if there else torch.zeros(page, dtype=torch.uint8)
            if not torch.equal(memory.read(kv[name][target]), want):
                return False
    return True


def until(what: str, condition, patience: float = 30.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {patience} s"
        time.sleep(0.02)


worker = connector.MooncakeConnectorWorker(config, engine_id, caches)
finished: set[str] = set()

if role == "prefill":
    for layer, name in enumerate(names):
        for block in range(BLOCKS):
            memory.write(kv[name][block], content(layer, block))
    worker.register_kv_caches(kv)
    for blocks in [False, True]:  # as the scheduler does: announced first, with its blocks once computed
        metadata = connector.MooncakeConnectorMetadata()
        for request, (source, _) in REQUESTS.items():
            metadata.reqs_to_send[f"p-{request}"] = (f"transfer-{request}", [source] if blocks else [])
        worker.start_load_kv(metadata)
    ready()

    def all_sent() -> bool:
        finished.update(worker.get_finished()[0] or ())
        return {"p-long", "p-scattered", "p-refused"} <= finished

    until("requests sent", all_sent)
    stats = worker.get_kv_connector_stats().data
    print("stats", {name: len(values) if isinstance(values, list) else values for name, values in stats.items()})
    memory.report()
    passed("vLLM P2P prefill")

worker.register_kv_caches(kv)
address = f"http://{HOST}:{os.environ['VLLM_MOONCAKE_BOOTSTRAP_PORT']}"


def pull(*requests: str) -> None:
    metadata = connector.MooncakeConnectorMetadata()
    for request in requests:
        parameters = {"transfer_id": f"transfer-{request}", "remote_engine_id": f"prefill-{seed}", "remote_bootstrap_addr": address}
        metadata.add_new_req(f"d-{request}", [REQUESTS[request][1]], parameters)
    worker.start_load_kv(metadata)

    def all_received() -> bool:
        finished.update(worker.get_finished()[1] or ())
        return {f"d-{request}" for request in requests} <= finished

    until(f"requests {requests} received", all_received)


assert all(holds(request, there=False) for request in REQUESTS)
pull("long", "scattered")
assert not worker.get_block_ids_with_load_errors()
assert holds("long", there=True) and holds("scattered", there=True) and holds("refused", there=False)
touched = {target for request in ["long", "scattered"] for target in REQUESTS[request][1]}
for name in names:
    for block in set(range(BLOCKS)) - touched:
        assert int(memory.read(kv[name][block]).sum()) == 0, f"{name}: block {block} was written to"

# Asleep: the memory is no longer registered, so the write is refused and vLLM is told which blocks are bad.
worker.unregister_kv_caches()
pull("refused")
bad = worker.get_block_ids_with_load_errors()
assert bad == set(REQUESTS["refused"][1]), bad
assert holds("refused", there=False)
print("refused while unregistered:", sorted(bad))

# Awake: registered again, the same request goes through.
worker.restore_kv_caches()
finished.clear()
pull("refused")
assert not worker.get_block_ids_with_load_errors() and holds("refused", there=True)
memory.report()
passed("vLLM P2P decode")
