"""The transfer engine of the native module, under the names of the compatible interface."""

from __future__ import annotations

from .._native import InnerTransferEngine, TransferEngine, TransferNotify, TransferOpcode

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
    "InnerTransferEngine",
    "Read",
    "SUPPORT_CUDA",
    "SUPPORT_EFA",
    "SUPPORT_HIP",
    "SUPPORT_INTRA_NVLINK",
    "SUPPORT_MNNVL",
    "SUPPORT_MUSA",
    "TransferEngine",
    "TransferNotify",
    "TransferOpcode",
    "Write",
]
