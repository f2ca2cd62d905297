"""Sums over several TensorFlow devices by ``tf.distribute``, which uses NCCL on NVIDIA GPUs.

TensorFlow offers these sums only through a ``MirroredStrategy``, one for each set of devices, and they are fast only
inside a ``tf.function``. devshim caches both objects, because TensorFlow keeps its communicators as well.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.contract.backend import Tensor

REDUCED_DTYPES = frozenset({tf.float16, tf.float32, tf.float64, tf.int64})
"""The dtypes that TensorFlow's NCCL operator accepts, without int32, which a function passes to it in host memory."""


def all_reduce_on_gpus(names: Sequence[str], xs: Sequence[Tensor], op: str) -> Sequence[Tensor]:
    """Return the sum or mean of tensors on several TensorFlow devices, once on each of the devices.

    Args:
        names: TensorFlow's names of the devices, each once.
        xs: One tensor for each device.
        op: ``"sum"`` or ``"mean"``.
    """
    strategy, reduced = _build_reducer(tuple(names), op)
    values = [tf.stop_gradient(tf.convert_to_tensor(x)) for x in xs]
    spread = strategy.experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group]
    )
    found: Sequence[Tensor] = strategy.experimental_local_results(reduced(spread))
    return found


@lru_cache(maxsize=8)
def _build_reducer(names: tuple[str, ...], op: str) -> tuple[Any, Callable[[Any], Any]]:
    strategy = tf.distribute.MirroredStrategy(list(names))

    def reduce(x: Tensor) -> Tensor:
        return tf.distribute.get_replica_context().all_reduce(op, x)

    return strategy, tf.function(lambda spread: strategy.run(reduce, (spread,)), reduce_retracing=True)
