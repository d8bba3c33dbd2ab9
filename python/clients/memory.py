"""Memory of the caches: the host's, or that of a device that does not exist.

Import it before any consumer. With FAKE_DRIVER set to the library that tests/fake-driver builds, and FAKE_DRIVER_FAMILY to
"cuda" or "ascend", `zeros` hands out tensors over device memory: a processor that touches it ends the process, as with a real
device. The consumers only ever compute addresses from such tensors; their bytes go through `write` and `read`.
"""

import ctypes
import os

LIBRARY = os.environ.get("FAKE_DRIVER")
if LIBRARY:
    os.environ["SNOWSKIN_DRIVER_LIBRARIES"] = f"{os.environ.get('FAKE_DRIVER_FAMILY', 'cuda')}:{LIBRARY}"

import torch  # noqa: E402  the libraries must be named before anything asks for them

if LIBRARY:
    _driver = ctypes.CDLL(LIBRARY)
    _driver.fake_device_alloc.argtypes = [ctypes.c_size_t, ctypes.c_int]
    _driver.fake_device_alloc.restype = ctypes.c_size_t
    for _name in ["fake_device_poke", "fake_device_peek"]:
        getattr(_driver, _name).argtypes = [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
    _driver.fake_copies.restype = ctypes.c_ulonglong


def zeros(*shape: int) -> torch.Tensor:
    """Bytes of this shape."""
    if not LIBRARY:
        return torch.zeros(shape, dtype=torch.uint8)
    size = 1
    for extent in shape:
        size *= extent
    address = _driver.fake_device_alloc(size, 0)
    assert address, f"the driver has no room for {size} bytes"
    whole = torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=torch.uint8)
    return whole.view(shape)


def write(target: torch.Tensor, value: torch.Tensor) -> None:
    """Copies host bytes into a contiguous part of such a tensor."""
    assert target.is_contiguous() and target.shape == value.shape
    if not LIBRARY:
        target.copy_(value)
        return
    value = value.contiguous()
    assert _driver.fake_device_poke(target.data_ptr(), value.data_ptr(), value.nbytes) == 0


def read(source: torch.Tensor) -> torch.Tensor:
    """A copy on the host of a contiguous part of such a tensor."""
    assert source.is_contiguous()
    if not LIBRARY:
        return source.clone()
    value = torch.empty(source.shape, dtype=torch.uint8)
    assert _driver.fake_device_peek(source.data_ptr(), value.data_ptr(), value.nbytes) == 0
    return value


def fill(target: torch.Tensor, byte: int) -> None:
    """Sets every byte."""
    write(target, torch.full(target.shape, byte, dtype=torch.uint8))


def report() -> None:
    """Says whose memory it was; that of a device must have been reached through its driver."""
    if LIBRARY:
        copies = _driver.fake_copies()
        print(f"device memory: {copies} copies by the driver")
        assert copies > 0
