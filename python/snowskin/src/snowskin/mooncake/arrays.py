"""Tensors of numpy and torch as contiguous host bytes, and back.

Neither library is imported before a tensor has to be made; a value that is one shows that its library is there.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from dataclasses import dataclass
from typing import Any

from .tensor_header import DTYPE_NUMBERS, HEADER_SIZE, Header


@dataclass
class HostTensor:
    """A tensor's description and its bytes, which stay valid while this lives."""

    dtype: int
    shape: tuple[int, ...]
    owner: Any
    """The contiguous tensor in host memory: the one that was given, or a copy."""
    address: int
    size: int

    def bytes(self) -> Any:
        """The data as a buffer of unsigned bytes."""
        if self.size == 0:
            return b""
        return (ctypes.c_ubyte * self.size).from_address(self.address)


def is_tensor(value: Any) -> bool:
    """True for arrays of numpy and tensors of torch."""
    return _library_of(value) is not None


def host_tensor(value: Any) -> HostTensor | None:
    """Describes an array or tensor, made contiguous and copied to host memory when needed.

    Returns:
        None for what is neither, for element types without a number in the header, and for tensors without strides
        (sparse, quantised).
    """
    library = _library_of(value)
    if library == "numpy":
        return _of_numpy(value)
    if library == "torch":
        return _of_torch(value)
    return None


def _library_of(value: Any) -> str | None:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return "numpy"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return "torch"
    return None


def _of_numpy(value: Any) -> HostTensor | None:
    numpy = sys.modules["numpy"]
    dtype = DTYPE_NUMBERS.get(value.dtype.name)
    if dtype is None:
        return None
    shape = tuple(int(extent) for extent in value.shape)
    native = value.dtype.newbyteorder("=")
    owner = numpy.ascontiguousarray(value, dtype=native)
    return HostTensor(dtype, shape, owner, owner.ctypes.data, int(owner.nbytes))


def _of_torch(value: Any) -> HostTensor | None:
    torch = sys.modules["torch"]
    dtype = DTYPE_NUMBERS.get(str(value.dtype).rpartition(".")[2])
    if dtype is None or value.layout is not torch.strided or value.is_quantized or value.is_meta:
        return None
    owner = value.detach().resolve_neg().contiguous().to("cpu")
    shape = tuple(int(extent) for extent in value.shape)
    return HostTensor(dtype, shape, owner, int(owner.data_ptr()), int(owner.numel() * owner.element_size()))


def cut(value: Any, dim: int, start: int, extent: int) -> Any:
    """The slice `start .. start + extent` along `dim`."""
    return value[(slice(None),) * dim + (slice(start, start + extent),)]


_torch: Any = None
_torch_was_tried = False


def torch_or_none() -> Any:
    """The module `torch`, or None when it is not installed or cannot be loaded."""
    global _torch, _torch_was_tried
    if not _torch_was_tried:
        try:
            _torch = importlib.import_module("torch")
        except (ImportError, OSError):
            # A torch whose libraries are missing fails with OSError.
            _torch = None
        _torch_was_tried = True
    return _torch


class NoLibrary(Exception):
    """Nothing that is installed can hold the tensor; the message says what would."""


def tensor_of(header: Header, buffer: Any) -> Any:
    """Makes a tensor (torch when it is there, else numpy) on writable memory of exactly the header's data size.

    The tensor keeps `buffer` alive and aliases it. A tensor without dimensions comes back with the shape `(1,)`.

    Raises:
        NoLibrary: Neither library is installed, or numpy has no such element type.
    """
    shape = header.local_shape or (1,)
    torch = torch_or_none()
    if torch is not None:
        dtype = getattr(torch, header.dtype_name, None)
        if dtype is not None:
            if header.data_size == 0:
                return torch.empty(shape, dtype=dtype)
            return torch.frombuffer(buffer, dtype=dtype).reshape(shape)
    try:
        numpy = importlib.import_module("numpy")
    except ImportError:
        raise NoLibrary("a tensor needs numpy or torch, and neither is installed") from None
    kind = _numpy_dtype(numpy, header.dtype_name)
    if header.data_size == 0:
        return numpy.empty(shape, dtype=kind)
    return numpy.frombuffer(buffer, dtype=kind).reshape(shape)


def _numpy_dtype(numpy: Any, name: str) -> Any:
    try:
        return numpy.dtype(name)
    except TypeError:
        pass
    try:
        return numpy.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except (ImportError, AttributeError):
        raise NoLibrary(f"a tensor of {name} needs torch or ml_dtypes, and neither is installed") from None


def copied(data: bytes) -> bytearray:
    """The data of a stored tensor (without its header) in memory of its own."""
    return bytearray(memoryview(data)[HEADER_SIZE:])


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("len", ctypes.c_size_t))


def read_own(address: int, size: int) -> bytes | None:
    """Bytes of this process's own memory, or None when the CPU cannot read them (device memory, not mapped).

    Asks the kernel for the copy, so that a bad address is an answer and never a signal.
    """
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    call = libc.process_vm_readv
    call.restype = ctypes.c_ssize_t
    call.argtypes = (
        ctypes.c_int,
        ctypes.POINTER(_IoVec),
        ctypes.c_ulong,
        ctypes.POINTER(_IoVec),
        ctypes.c_ulong,
        ctypes.c_ulong,
    )
    into = ctypes.create_string_buffer(size)
    local = _IoVec(ctypes.cast(into, ctypes.c_void_p), size)
    remote = _IoVec(ctypes.c_void_p(address), size)
    got = call(os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return into.raw if got == size else None


def memory_at(address: int, size: int) -> Any:
    """Writable memory of this process as a buffer; the caller has seen that it is there."""
    return (ctypes.c_ubyte * size).from_address(address)
