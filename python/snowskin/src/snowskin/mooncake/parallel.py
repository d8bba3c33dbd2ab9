"""Requests of the unified parallel tensor calls. The pool takes them as they are and answers -1012 to most."""

from __future__ import annotations

from typing import Any

_MODES = ("as_stored", "shard", "full")


class ParallelAxis:
    """One axis along which tensors are split: `kind` is tp, dp, ep or pp."""

    def __init__(self) -> None:
        self.kind: str = ""
        self.rank: int = 0
        self.size: int = 1
        self.split_dim: int | None = None
        self.expert_id: int | None = None
        self.stage_id: int | None = None


class TensorParallelism:
    """The axes of one tensor. `axes` is read as a copy; assign a whole list."""

    def __init__(self) -> None:
        self._axes: list[Any] = []

    @property
    def axes(self) -> list[Any]:
        """A copy of the axes."""
        return list(self._axes)

    @axes.setter
    def axes(self, value: list[Any]) -> None:
        self._axes = list(value)


class ReadTarget:
    """What a read gives: the tensor as stored, a shard, or the full tensor."""

    def __init__(self) -> None:
        self._mode = "as_stored"
        self.parallelism: Any = None

    @property
    def mode(self) -> str:
        """`as_stored`, `shard` or `full`; set in any case of letters."""
        return self._mode

    @mode.setter
    def mode(self, value: str) -> None:
        mode = str(value).lower()
        if mode not in _MODES:
            raise RuntimeError(f"mode must be one of {', '.join(_MODES)}, not {value!r}")
        self._mode = mode
