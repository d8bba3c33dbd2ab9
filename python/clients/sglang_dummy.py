"""SGLang's HiCache store with stand-alone storage: the pool is another process's, this one only lends its host memory.

Real: MooncakeStore with its MooncakeHostTensorAllocator and the thin client. Stood in for: the host pool around one tensor.
"""

import os
import uuid

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
from sglang.srt.mem_cache.storage.mooncake_store.mooncake_store import MooncakeHostTensorAllocator, MooncakeStore

from case import HOST, passed

PAGES, PAGE_BYTES = 64, 24576


class Pool:
    """A page-first host pool of an MLA model: one object per page."""

    layout = "page_first"
    page_size = 1

    def __init__(self) -> None:
        self.allocator = MooncakeHostTensorAllocator()
        self.kv_buffer = self.allocator.allocate((PAGES, PAGE_BYTES), torch.uint8)

    def get_page_buffer_meta(self, indices):
        return [self.kv_buffer[int(i)].data_ptr() for i in indices], [PAGE_BYTES] * len(indices)

    def get_ksize_per_token(self) -> int:
        return PAGE_BYTES


config = HiCacheStorageConfig(
    tp_rank=0, tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, is_mla_model=True, enable_storage_metrics=False,
    is_page_first_layout=True, model_name="org/Tiny",
    extra_config=dict(client_server_address=os.environ.get("CLIENT", f"{HOST}:52952"), standalone_storage=True, check_server=False),
)  # fmt: skip
pool = Pool()
half = PAGES // 2
pool.kv_buffer.copy_(torch.randint(0, 256, pool.kv_buffer.shape, dtype=torch.uint8))
pool.kv_buffer[half:] = 0
store = MooncakeStore(config, pool)
store.register_mem_pool_host(pool)

keys = [uuid.uuid4().hex for _ in range(half)]
assert store.batch_exists(keys) == 0
assert all(store.batch_set_v1(keys, torch.arange(half)))
assert store.batch_exists(keys) == half
assert all(store.batch_set_v1(keys, torch.arange(half, PAGES))), "a second set of other bytes must be a success"
pool.kv_buffer[half:] = 0
assert all(store.batch_get_v1(keys, torch.arange(half, PAGES)))
assert torch.equal(pool.kv_buffer[:half], pool.kv_buffer[half:])
assert store.batch_get_v1(["never set"], torch.tensor([0])) == [False]
assert store.batch_exists(keys[:3] + ["never set"] + keys[3:]) == 3
passed("SGLang stand-alone storage")
