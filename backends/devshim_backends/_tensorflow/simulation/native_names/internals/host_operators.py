"""Operators that have no kernel for GPUs, because they read or write strings, with native names.

TensorFlow runs them on the host, also in the scope of a GPU. If ``tf.config.set_soft_device_placement(False)`` forbids
that, it raises an error. This build of TensorFlow lacks most kernels for CUDA, so a missing kernel does not show that
CUDA lacks it. But a kernel for CUDA cannot read strings: the operators with arguments that are always strings, and that
run on GPUs with strings in the host's memory, have a kernel for GPUs in this build too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels, op_def_registry

from devshim_backends._tensorflow.simulation.native_names.internals.scopes import SCOPE
from devshim_backends._tensorflow.simulation.native_names.names import is_simulated_gpu, shown_name

if TYPE_CHECKING:
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["leaves_scope", "runs_on_host"]

_HOST = frozenset({"CPU", "XLA_CPU"})


@lru_cache(maxsize=4096)
def runs_on_host(op: str | bytes) -> bool:
    """Return True if an operator with arguments that are always strings has kernels for the host only."""
    name = op.decode() if isinstance(op, bytes) else op
    definition = None if "Dataset" in name else op_def_registry.get(name)  # some of these have kernels for GPUs
    if definition is None:
        return False
    strings = any(each.type == tf.string.as_datatype_enum for each in (*definition.input_arg, *definition.output_arg))
    found = kernels.get_registered_kernels_for_op(name).kernel if strings else ()
    return strings and {kernel.device_type for kernel in found} <= _HOST


def leaves_scope(backend: TensorflowSimulation, op: Any, scope: str) -> bool:
    """Return True if an operator runs on the host, although the program has opened the scope of a GPU.

    Args:
        backend: The adapter.
        op: The operator's name.
        scope: TensorFlow's name of the scope's device.

    Raises:
        InvalidArgumentError: The program has forbidden it, by ``tf.config.set_soft_device_placement(False)``.
    """
    if SCOPE.strict or not is_simulated_gpu(scope) or not runs_on_host(op):
        return False
    if not context.context().soft_device_placement:
        names = ["CPU:0", *(f"GPU:{index}" for index in range(backend.count("gpu")))]
        known = ", ".join(f"/job:localhost/replica:0/task:0/device:{name}" for name in names)
        text = (
            f"Could not satisfy device specification {shown_name(scope)!r}. enable_soft_placement=0. "
            f"Supported device types [CPU]. All available devices [{known}]."
        )
        raise tf.errors.InvalidArgumentError(None, None, f"{text} [Op:{op.decode() if isinstance(op, bytes) else op}]")
    return True
