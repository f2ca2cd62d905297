"""The memory of simulated GPUs and of tensors, for the tests of TensorFlow."""

from __future__ import annotations

import gc
from typing import Any

import devshim as ds
from devshim.transfers import dlpack

ROUND = 512
"""Simulated GPUs count memory in multiples of this number of bytes."""


def used(gpu: str = "gpu:1") -> int | None:
    """Return the bytes in use on a simulated GPU, after dead tensors are freed."""
    gc.collect()
    return ds.memory(gpu).used


def rounded(nbytes: int) -> int:
    """Return the bytes that a tensor of this size takes on a simulated GPU."""
    return -(-nbytes // ROUND) * ROUND


def pointer(x: Any) -> int:
    """Return the address of a tensor's values, from its DLPack capsule."""
    tf = ds.framework("tensorflow")
    return dlpack.read(tf.experimental.dlpack.to_dlpack(x)).address
