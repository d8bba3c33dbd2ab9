"""The 304 bytes in front of a stored tensor, and the 96 bytes of a manifest.

Little-endian, natural alignment; the layout is shared with every other writer of the compatible interface, so it is
never changed here. No array library is needed by this module.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

MAGIC = 0x4D4F4F4E
VERSION = 1
HEADER_SIZE = 304
DIMS_MAX = 8
AXES_MAX = 4

# Layout kinds.
FULL = 0
SHARD = 1

# Kinds of parallel axes.
AXIS_KINDS = {"dp": 0, "tp": 1, "ep": 2, "pp": 3}

# Number in the header, name in numpy and torch, bytes per element.
DTYPES: tuple[tuple[str, int], ...] = (
    ("float32", 4),
    ("float64", 8),
    ("int8", 1),
    ("uint8", 1),
    ("int16", 2),
    ("uint16", 2),
    ("int32", 4),
    ("uint32", 4),
    ("int64", 8),
    ("uint64", 8),
    ("bool", 1),
    ("float16", 2),
    ("bfloat16", 2),
    ("float8_e4m3fn", 1),
    ("float8_e5m2", 1),
)
DTYPE_NUMBERS = {name: number for number, (name, _) in enumerate(DTYPES)}

_FIXED = struct.Struct("<IHHiiIIQQ8q8qII")
_AXIS = struct.Struct("<iiiiiiq")
assert _FIXED.size + AXES_MAX * _AXIS.size == HEADER_SIZE


class MalformedHeader(ValueError):
    """The bytes are not a tensor's; the message says which field is wrong."""


@dataclass(frozen=True)
class Axis:
    """One axis along which a tensor is split over processes."""

    kind: int
    rank: int
    count: int
    split_dim: int = -1
    index: int = 0
    member: int = 0
    """Expert or stage number of axes that have one."""
    extent: int = 0
    """Local extent along `split_dim`."""


@dataclass(frozen=True)
class Header:
    """What the header says."""

    dtype: int
    """Number of the element type, see `DTYPES`."""
    local_shape: tuple[int, ...]
    global_shape: tuple[int, ...]
    layout: int = FULL
    axes: tuple[Axis, ...] = field(default=())

    @property
    def dtype_name(self) -> str:
        """Name of the element type in numpy and torch."""
        return DTYPES[self.dtype][0]

    @property
    def data_size(self) -> int:
        """Bytes of the tensor's data."""
        return math.prod(self.local_shape) * DTYPES[self.dtype][1]

    def pack(self) -> bytes:
        """The header's bytes.

        Raises:
            MalformedHeader: More dimensions or axes than the layout has room for.
        """
        if len(self.local_shape) > DIMS_MAX or len(self.global_shape) != len(self.local_shape):
            raise MalformedHeader(f"a tensor has at most {DIMS_MAX} dimensions, not {len(self.local_shape)}")
        if len(self.axes) > AXES_MAX:
            raise MalformedHeader(f"a tensor has at most {AXES_MAX} axes, not {len(self.axes)}")
        head = _FIXED.pack(
            MAGIC,
            VERSION,
            HEADER_SIZE,
            self.dtype,
            len(self.local_shape),
            self.layout,
            0,
            HEADER_SIZE,
            self.data_size,
            *_padded(self.global_shape),
            *_padded(self.local_shape),
            len(self.axes),
            0,
        )
        axes = [_AXIS.pack(a.kind, a.index, a.rank, a.count, a.split_dim, a.member, a.extent) for a in self.axes]
        return (head + b"".join(axes)).ljust(HEADER_SIZE, b"\0")


def unpack(data: bytes | bytearray | memoryview, total: int) -> Header:
    """Reads the header of a stored tensor.

    Args:
        data: At least the first 304 bytes of the object.
        total: Bytes of the whole object.

    Raises:
        MalformedHeader: A field is not what this version writes, or the object's size does not fit.
    """
    if len(data) < HEADER_SIZE:
        raise MalformedHeader(f"{len(data)} bytes are too few for a tensor's header of {HEADER_SIZE}")
    fields = _FIXED.unpack_from(data)
    magic, version, header_size, dtype, ndim, layout, _flags, offset, data_size = fields[:9]
    axis_count = fields[25]
    if magic != MAGIC:
        raise MalformedHeader(f"the magic number is {magic:#x}, not {MAGIC:#x}")
    if version != VERSION or header_size != HEADER_SIZE or offset != HEADER_SIZE:
        raise MalformedHeader(f"version {version}, header of {header_size} bytes and data at {offset} are not known")
    if not 0 <= dtype < len(DTYPES):
        raise MalformedHeader(f"the element type {dtype} is not known")
    if not 0 <= ndim <= DIMS_MAX:
        raise MalformedHeader(f"{ndim} dimensions are not possible")
    if axis_count > AXES_MAX:
        raise MalformedHeader(f"{axis_count} axes are not possible")
    header = Header(
        dtype=dtype,
        global_shape=tuple(fields[9 : 9 + ndim]),
        local_shape=tuple(fields[17 : 17 + ndim]),
        layout=layout,
        axes=tuple(_axis(data, index) for index in range(axis_count)),
    )
    if any(extent < 0 for extent in header.local_shape):
        raise MalformedHeader(f"the shape {header.local_shape} has a negative extent")
    if data_size != header.data_size or data_size != total - HEADER_SIZE:
        raise MalformedHeader(
            f"the header says {data_size} bytes of data, its shape {header.data_size}, the object {total - HEADER_SIZE}"
        )
    return header


def _axis(data: bytes | bytearray | memoryview, number: int) -> Axis:
    kind, index, rank, count, split_dim, member, extent = _AXIS.unpack_from(data, _FIXED.size + number * _AXIS.size)
    return Axis(kind, rank, count, split_dim, index, member, extent)


def _padded(shape: Sequence[int]) -> list[int]:
    return [*shape, *([-1] * (DIMS_MAX - len(shape)))]
