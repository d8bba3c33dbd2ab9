"""Classes of the compatible engine module that nothing serves here: remote calls between processes of one job, and host
segments shared by them. They can be made and asked; every operation says that it is not supported."""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import NOT_SUPPORTED, not_supported


class RpcInterface:
    """Messages between processes: not supported. Set-up answers False, sending -1012."""

    def initialize(
        self, listen_address: str = "", thread_count: int = 0, timeout_seconds: int = 30, pool_size: int = 100
    ) -> bool:
        """False."""
        return False

    def initialize_client(self, pool_size: int = 100, timeout_seconds: int = 30) -> bool:
        """False."""
        return False

    def initialize_server(self, listen_address: str, thread_count: int = 8, timeout_seconds: int = 30) -> bool:
        """False."""
        return False

    def start_server(self) -> bool:
        """False."""
        return False

    def start_server_async(self) -> bool:
        """False."""
        return False

    def stop_server(self) -> None:
        """Nothing runs, so nothing ends."""

    def send_data(self, target_address: str, data: Any) -> int:
        """-1012."""
        return NOT_SUPPORTED

    def send_data_async(self, target_address: str, data: Any, loop: Any) -> NoReturn:
        """Raises `NotSupported`."""
        raise not_supported("RpcInterface.send_data_async is not supported")

    def send_tensor(self, target_address: str, tensor: Any) -> int:
        """-1012."""
        return NOT_SUPPORTED

    def send_tensor_async(self, target_address: str, tensor: Any, loop: Any) -> NoReturn:
        """Raises `NotSupported`."""
        raise not_supported("RpcInterface.send_tensor_async is not supported")

    def set_data_receive_callback(self, callback: Any) -> NoReturn:
        """Raises `NotSupported`."""
        raise not_supported("RpcInterface.set_data_receive_callback is not supported")

    def set_tensor_receive_callback(self, callback: Any) -> NoReturn:
        """Raises `NotSupported`."""
        raise not_supported("RpcInterface.set_tensor_receive_callback is not supported")


class ReceivedData:
    """What a callback of `RpcInterface` would get; there is none."""

    def __init__(self) -> None:
        raise not_supported("ReceivedData: nothing is received")

    @property
    def source_address(self) -> str:
        """Never asked: there are no instances."""
        raise not_supported("ReceivedData: nothing is received")

    @property
    def data_size(self) -> int:
        """Never asked: there are no instances."""
        raise not_supported("ReceivedData: nothing is received")

    def get_bytes(self) -> bytes:
        """Never called: there are no instances."""
        raise not_supported("ReceivedData: nothing is received")

    def get_memory_view(self) -> memoryview:
        """Never called: there are no instances."""
        raise not_supported("ReceivedData: nothing is received")


class ReceivedTensor:
    """What a callback of `RpcInterface` would get; there is none."""

    def __init__(self) -> None:
        raise not_supported("ReceivedTensor: nothing is received")

    @property
    def source_address(self) -> str:
        """Never asked: there are no instances."""
        raise not_supported("ReceivedTensor: nothing is received")

    @property
    def dtype(self) -> str:
        """Never asked: there are no instances."""
        raise not_supported("ReceivedTensor: nothing is received")

    @property
    def shape(self) -> list[int]:
        """Never asked: there are no instances."""
        raise not_supported("ReceivedTensor: nothing is received")

    @property
    def total_bytes(self) -> int:
        """Never asked: there are no instances."""
        raise not_supported("ReceivedTensor: nothing is received")

    def get_data_as_bytes(self) -> bytes:
        """Never called: there are no instances."""
        raise not_supported("ReceivedTensor: nothing is received")

    def get_data_size(self) -> int:
        """Never called: there are no instances."""
        raise not_supported("ReceivedTensor: nothing is received")

    def get_memory_view(self) -> memoryview:
        """Never called: there are no instances."""
        raise not_supported("ReceivedTensor: nothing is received")


class SharedSegment:
    """A host segment with one writer and many readers: not supported, `supported` says so."""

    def __init__(self) -> None:
        raise not_supported("SharedSegment is not supported")

    @staticmethod
    def supported(mmap: bool = True, host_register: bool = False) -> bool:
        """False."""
        return False

    @staticmethod
    def create(
        name: str,
        size: int,
        world_size: int,
        rank_id: int,
        owner_rank: int = 0,
        device_id: int = 0,
        mmap: bool = True,
        host_register: bool = False,
    ) -> NoReturn:
        """Raises `NotSupported`."""
        raise not_supported("SharedSegment is not supported")

    def complete(self, blobs: list[bytes]) -> None:
        """Never called: there are no instances."""
        raise not_supported("SharedSegment is not supported")

    def ready(self) -> bool:
        """Never called: there are no instances."""
        raise not_supported("SharedSegment is not supported")

    def base_addr(self) -> int:
        """Never called: there are no instances."""
        raise not_supported("SharedSegment is not supported")

    def device_addr(self) -> int:
        """Never called: there are no instances."""
        raise not_supported("SharedSegment is not supported")

    def size(self) -> int:
        """Never called: there are no instances."""
        raise not_supported("SharedSegment is not supported")


def create_rpc_client(local_rank: int = 0, world_size: int = 1) -> RpcInterface:
    """An interface whose operations are not supported."""
    return RpcInterface()


def create_rpc_server(local_rank: int = 0, world_size: int = 1) -> RpcInterface:
    """An interface whose operations are not supported."""
    return RpcInterface()
