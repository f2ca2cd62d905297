"""`tf.distribute.NcclAllReduce`: TensorFlow's own operators carry it, since NCCL has no kernels for the CPU."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.ops import nccl_ops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from devshim.simulation.patching import Patches
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["install"]

_COMBINE: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "sum": tf.add_n,
    "prod": partial(reduce, tf.multiply),
    "min": partial(reduce, tf.minimum),
    "max": partial(reduce, tf.maximum),
}


def _all_reduce(reduction: str, tensors: Sequence[Any]) -> list[Any]:
    """Return the combined tensors, one on the device of each given tensor."""
    if not tensors:
        msg = "Must pass >0 tensors to all reduce operations"
        raise ValueError(msg)
    combined = []
    for each in tensors:
        with tf.device(each.device):
            combined.append(_COMBINE[reduction](tensors))
    return combined


def install(patches: Patches, backend: TensorflowSimulation) -> None:
    """Replace the operator."""
    patches.replace(nccl_ops, "_apply_all_reduce", _all_reduce)
