"""Arrays as bytes, and reading one's own memory without risk."""

import mmap

import pytest

from snowskin.mooncake.arrays import cut, host_tensor, is_tensor, read_own

numpy = pytest.importorskip("numpy")


def test_an_array_is_made_contiguous_and_native():
    value = numpy.arange(12, dtype=">i4").reshape(3, 4).T
    host = host_tensor(value)
    assert host.shape == (4, 3)
    assert numpy.frombuffer(bytes(host.bytes()), numpy.int32).reshape(4, 3).tolist() == value.tolist()


def test_a_contiguous_array_is_not_copied():
    value = numpy.ones(5)
    assert host_tensor(value).address == value.ctypes.data


def test_what_has_no_number_is_no_tensor():
    assert host_tensor(numpy.ones(2, dtype=complex)) is None
    assert host_tensor([1, 2]) is None
    assert not is_tensor([1, 2])


def test_a_cut_is_a_slice_of_one_dimension():
    value = numpy.arange(24).reshape(2, 3, 4)
    assert cut(value, 1, 1, 2).tolist() == value[:, 1:3].tolist()


def test_memory_that_the_cpu_cannot_read_is_an_answer():
    import ctypes

    region = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    first = ctypes.c_char.from_buffer(region)
    start = ctypes.addressof(first)
    region[:3] = b"abc"
    assert read_own(start, 3) == b"abc"
    none = 0
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), mmap.PAGESIZE, none) == 0
    assert read_own(start, 3) is None
    assert read_own(4096, 1) is None
    del first
    region.close()
