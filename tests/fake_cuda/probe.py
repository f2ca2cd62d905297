"""Queries of a scenario about the machine that does not exist: contexts, calls, the current GPU."""

from __future__ import annotations

import ctypes
import json

_LIBRARY = ctypes.CDLL("libcudart.so.13")
_LIBRARY.fake_cuda_counts.restype = ctypes.c_char_p
_COSTLY = ("copy", "kernel", "cudaMalloc", "cudaHostAlloc", "Synchronize", "nccl")
"""Parts of the names of calls that cost something; the other calls are queries."""


def contexts() -> list[int]:
    """Return the GPUs on which this process has a context."""
    return [card for card in range(64) if _LIBRARY.fake_cuda_has_context(card)]


def current() -> int:
    """Return this thread's current GPU, as CUDA reports it."""
    return int(_LIBRARY.fake_cuda_current())


class Calls:
    """The costly calls of a block, by name, in `counts`."""

    counts: dict[str, int]

    def __enter__(self) -> Calls:
        _LIBRARY.fake_cuda_forget()
        return self

    def __exit__(self, *_: object) -> None:
        counts = json.loads(_LIBRARY.fake_cuda_counts())
        self.counts = {name: n for name, n in counts.items() if any(part in name for part in _COSTLY)}


def calls_of(function: object) -> dict[str, int]:
    """Return the costly calls that a function makes."""
    with Calls() as calls:
        function()  # type: ignore[operator]
    return calls.counts
