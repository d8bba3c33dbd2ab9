"""SGLang's prefill/decode hand-over: `sglang_pd.py prefill SEED` and `sglang_pd.py decode SEED`, two processes.

A request in two chunks with its auxiliary data, one refused while the decode side has nothing registered, and one after the
blacklisted session was found alive again by a probe.
Real: MooncakeKVManager, sender, receiver, bootstrap server and the engine's wrapper. Stood in for: the run-time context that a
whole server would fill.
"""

import os
import sys
import time

role, seed = sys.argv[1], int(sys.argv[2])
port = int(os.environ.get("SGLANG_BOOTSTRAP_PORT", "51997"))
os.environ.update(
    MC_FORCE_TCP="1",
    SGLANG_DISAGGREGATION_QUEUE_SIZE="1",
    SGLANG_DISAGGREGATION_THREAD_POOL_SIZE="1",
    SGLANG_ENABLE_FAILED_SESSION_PROBE="1",
    SGLANG_FAILED_SESSION_PROBE_INTERVAL_S="0.3",
    SGLANG_FAILED_SESSION_PROBE_MAX_INTERVAL_S="0.3",
)

import memory  # first: it may name a driver
import numpy as np
import sglang.srt.disaggregation.mooncake.conn as mooncake
import sglang.srt.distributed.device_communicators.mooncake_transfer_engine as wrapper
import torch
from sglang.srt.disaggregation.base.conn import KVArgs, KVPoll
from sglang.srt.disaggregation.utils import DisaggregationMode

from case import HOST, passed


class Context:
    """A run-time context of one rank: every size is 1, every rank 0, every flag off."""

    dist_init_addr = None
    load_balance_method = "follow_bootstrap_room"
    disaggregation_decode_allocation_policy = "early"
    disaggregation_bootstrap_port = port
    host = HOST
    port = 0
    speculative_algorithm = None

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("_size") or name.startswith("num_"):
            return 1
        return 0 if name.endswith("_rank") else False


context = Context()
GETTERS = "parallel disagg serving observability spec memory model exec device schedule".split()
for name, module in list(sys.modules.items()):
    if name.startswith("sglang.srt.disaggregation") or module is wrapper:
        for getter in GETTERS:
            if hasattr(module, f"get_{getter}"):
                setattr(module, f"get_{getter}", lambda: context)
        for attribute, value in {"linear_attn_tp_size": lambda: 1, "get_local_ip_auto": lambda: HOST}.items():
            if hasattr(module, attribute):
                setattr(module, attribute, value)

LAYERS, PAGES, PAGE_BYTES = 3, 48, 12288
AUX_ITEMS = 8
AUX_BYTES = [64, 256]  # per request: two kinds of auxiliary data
# Per room: pages here and there, and the slots of the auxiliary data.
ROOMS = {
    101: ([4, 5, 6, 7, 8, 20, 22], [30, 31, 32, 10, 11, 12, 2], 3, 5),
    102: ([1, 2], [40, 41], 1, 6),
    103: ([1, 2], [40, 41], 1, 6),
}


def filled(rows: int, width: int, salt: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed * 1000 + salt)
    return torch.randint(1, 256, (rows, width), dtype=torch.uint8, generator=generator)


theirs = [filled(PAGES, PAGE_BYTES, i) for i in range(2 * LAYERS)]  # keys of all layers, then values of all layers
their_aux = [filled(AUX_ITEMS, width, 100 + i) for i, width in enumerate(AUX_BYTES)]
kv, aux = [memory.zeros(PAGES, PAGE_BYTES) for _ in theirs], [torch.zeros_like(t) for t in their_aux]
for ours, source in zip(kv, theirs):
    memory.write(ours, source if role == "prefill" else torch.zeros_like(source))
if role == "prefill":
    aux = their_aux  # on the host, as in SGLang

arguments = KVArgs()
values = dict(
    engine_rank=0, gpu_id=0, ib_device="", pp_rank=0, system_dp_rank=0, rust_http_port=None, page_size=16,
    kv_head_num=2, total_kv_head_num=2, kv_cache_dtype_str="torch.bfloat16", is_hybrid_mla_backend=False,
    prefill_start_layer=0, prefill_end_layer=None, mla_compression_ratios=None, swa_kv_cache_layout=None, kv_layer_ids=[],
    kv_data_ptrs=[t.data_ptr() for t in kv], kv_data_lens=[t.nbytes for t in kv], kv_item_lens=[PAGE_BYTES] * len(kv),
    aux_data_ptrs=[t.data_ptr() for t in aux], aux_data_lens=[t.nbytes for t in aux], aux_item_lens=AUX_BYTES,
    state_types=[], state_data_ptrs=[], state_data_lens=[], state_item_lens=[], state_layer_ids=[], state_dim_per_tensor=[],
    state_slice_outer_counts=[], state_conv_shard_groups=[],
)  # fmt: skip
for name, value in values.items():
    setattr(arguments, name, value)

wrapper.init_mooncake_transfer_engine(HOST)
address = f"{HOST}:{port}"


def until(what: str, condition, patience: float = 30.0) -> None:
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {patience} s"
        time.sleep(0.01)


def outcome(part) -> int:
    until(f"room {part.bootstrap_room}", lambda: part.poll() in (KVPoll.Success, KVPoll.Failed))
    return part.poll()


def recoveries() -> float:
    [metric] = mooncake.FAILED_SESSION_RECOVERIES.collect()
    return metric.samples[0].value


if role == "prefill":
    server = mooncake.MooncakeKVBootstrapServer(HOST, port)
    manager = mooncake.MooncakeKVManager(arguments, DisaggregationMode.PREFILL, context)
    print("READY", flush=True)
    for room, (here, _, slot, _) in ROOMS.items():
        sender = mooncake.MooncakeKVSender(manager, address, room)
        sender.init(len(here), slot)
        until(f"room {room} asked for", lambda: sender.poll() == KVPoll.WaitingForInput, 60)
        first = len(here) // 2
        sender.send(np.array(here[:first], dtype=np.int32))
        sender.send(np.array(here[first:], dtype=np.int32))
        expected = KVPoll.Failed if room == 102 else KVPoll.Success
        assert outcome(sender) == expected, f"room {room}"
        if room == 102:
            until("the session blacklisted, and found alive by a probe", lambda: recoveries() == 1)
    sys.stdin.readline()
    memory.report()
    passed("SGLang PD prefill")

manager = mooncake.MooncakeKVManager(arguments, DisaggregationMode.DECODE, context)
until("the bootstrap server", lambda: manager.try_ensure_parallel_info(address))


def receive(room: int) -> int:
    _, there, _, slot = ROOMS[room]
    receiver = mooncake.MooncakeKVReceiver(manager, address, room)
    receiver.init(0)
    receiver.send_metadata(np.array(there, dtype=np.int32), slot)
    return outcome(receiver)


def check(room: int) -> None:
    here, there, slot, our_slot = ROOMS[room]
    for ours, source in zip(kv, theirs):
        assert torch.equal(memory.read(ours)[there], source[here]), f"room {room}: pages differ"
    for ours, source in zip(aux, their_aux):
        assert torch.equal(ours[our_slot], source[slot]), f"room {room}: auxiliary data differ"


assert receive(101) == KVPoll.Success
check(101)
untouched = sorted(set(range(PAGES)) - set(ROOMS[101][1]))
assert all(int(memory.read(ours)[untouched].sum()) == 0 for ours in kv), "pages of no request were written to"

manager.deregister_buffer_to_engine()
assert receive(102) == KVPoll.Failed
assert all(int(memory.read(ours)[ROOMS[102][1]].sum()) == 0 for ours in kv)
print("refused while nothing is registered")

manager.register_buffer_to_engine()
assert receive(103) == KVPoll.Success
check(103)
memory.report()
passed("SGLang PD decode")
