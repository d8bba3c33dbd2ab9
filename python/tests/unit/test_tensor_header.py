"""The 304 bytes in front of a stored tensor."""

import struct

import pytest

from snowskin.mooncake.tensor_header import (
    AXIS_KINDS,
    DTYPE_NUMBERS,
    HEADER_SIZE,
    SHARD,
    Axis,
    Header,
    MalformedHeader,
    unpack,
)

# Offset, form and value of every field of a float32 tensor of shape (2, 3).
FIELDS = [
    (0, "4s", b"NOOM"),
    (4, "<H", 1),
    (6, "<H", 304),
    (8, "<i", 0),
    (12, "<i", 2),
    (16, "<I", 0),
    (20, "<I", 0),
    (24, "<Q", 304),
    (32, "<Q", 24),
    (40, "<q", 2),
    (48, "<q", 3),
    (56, "<q", -1),
    (96, "<q", -1),
    (104, "<q", 2),
    (112, "<q", 3),
    (120, "<q", -1),
    (160, "<q", -1),
    (168, "<I", 0),
    (172, "<I", 0),
]


def whole():
    return Header(DTYPE_NUMBERS["float32"], (2, 3), (2, 3))


def test_each_field_lies_at_its_offset():
    data = whole().pack()
    assert len(data) == HEADER_SIZE == 304
    for offset, form, value in FIELDS:
        assert struct.unpack_from(form, data, offset) == (value,), offset
    assert data[176:] == bytes(128)


def test_a_shard_says_which_one_it_is():
    axis = Axis(AXIS_KINDS["tp"], rank=1, count=2, split_dim=1, extent=3)
    data = Header(DTYPE_NUMBERS["int16"], (4, 3), (4, 6), SHARD, (axis,)).pack()
    assert struct.unpack_from("<I", data, 16) == (1,)
    assert struct.unpack_from("<2q", data, 40) == (4, 6)
    assert struct.unpack_from("<2q", data, 104) == (4, 3)
    assert struct.unpack_from("<I", data, 168) == (1,)
    assert struct.unpack_from("<iiiiiiq", data, 176) == (1, 0, 1, 2, 1, 0, 3)
    assert unpack(data, 304 + 24).axes == (axis,)


@pytest.mark.parametrize("name", sorted(DTYPE_NUMBERS))
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (1, 2, 3, 4, 5, 6, 7, 8)])
def test_what_was_packed_is_read_again(name, shape):
    header = Header(DTYPE_NUMBERS[name], shape, shape)
    assert unpack(header.pack(), HEADER_SIZE + header.data_size) == header


@pytest.mark.parametrize(
    ("offset", "form", "value"),
    [
        (0, "<I", 0),
        (4, "<H", 2),
        (6, "<H", 300),
        (8, "<i", 15),
        (8, "<i", -1),
        (12, "<i", 9),
        (12, "<i", -1),
        (24, "<Q", 300),
        (32, "<Q", 25),
        (104, "<q", -2),
        (112, "<q", 4),
        (168, "<I", 5),
    ],
)
def test_a_wrong_field_is_refused(offset, form, value):
    data = bytearray(whole().pack())
    struct.pack_into(form, data, offset, value)
    with pytest.raises(MalformedHeader):
        unpack(data, HEADER_SIZE + 24)


def test_a_wrong_total_is_refused():
    for total in (HEADER_SIZE, HEADER_SIZE + 23, HEADER_SIZE + 25):
        with pytest.raises(MalformedHeader):
            unpack(whole().pack(), total)
    with pytest.raises(MalformedHeader):
        unpack(whole().pack()[:303], HEADER_SIZE + 24)


def test_too_many_dimensions_are_refused():
    with pytest.raises(MalformedHeader):
        Header(0, (1,) * 9, (1,) * 9).pack()
