"""The transfer engine of the native module, under the names of the compatible interface."""

from __future__ import annotations

from .._native import InnerTransferEngine, TransferEngine, TransferNotify, TransferOpcode
from .engine_niche import (
    ReceivedData,
    ReceivedTensor,
    RpcInterface,
    SharedSegment,
    create_rpc_client,
    create_rpc_server,
)

# An older name of the same class.
CoroRPCInterface = RpcInterface

Read = TransferOpcode.Read
Write = TransferOpcode.Write

# Fabrics and devices whose own paths this build has: bytes go over TCP, device memory is staged by the driver's copy.
SUPPORT_CUDA = False
SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_INTRA_NVLINK = False
SUPPORT_MNNVL = False
SUPPORT_MUSA = False

__all__ = [
    "CoroRPCInterface",
    "InnerTransferEngine",
    "Read",
    "ReceivedData",
    "ReceivedTensor",
    "RpcInterface",
    "SUPPORT_CUDA",
    "SUPPORT_EFA",
    "SUPPORT_HIP",
    "SUPPORT_INTRA_NVLINK",
    "SUPPORT_MNNVL",
    "SUPPORT_MUSA",
    "SharedSegment",
    "TransferEngine",
    "TransferNotify",
    "TransferOpcode",
    "Write",
    "create_rpc_client",
    "create_rpc_server",
]
