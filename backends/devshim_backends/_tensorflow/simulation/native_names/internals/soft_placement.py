"""The device of a scope whose name TensorFlow completes, or for which it takes another device, with native names.

A scope is opened with a logical CPU's name, so TensorFlow cannot do these things with the program's names:

* A name without an index, such as ``GPU``, has the index of the scope around it: ``GPU`` inside ``/GPU:1`` is
  ``/GPU:1``. ``CPU`` is ``/CPU:1`` there, which does not exist (``_EagerDeviceContext``, ``merge_device``).
* With soft placement, which is on by default, an operator on a device that does not exist runs on the best one that
  there is (``EagerContext::SelectDevice``): on ``GPU:0``, or on the host if it has no kernel for GPUs. Such names are
  ``/device:XLA_GPU:0``, which TensorFlow 2.3 had, and those of other builds and misspelt ones. In a function,
  TensorFlow itself takes the function's own device.

A missing GPU and a TPU are refused instead (`names.logical_name`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.distribute import device_util
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from devshim_backends._tensorflow.simulation.native_names.internals.clusters import CLUSTER
from devshim_backends._tensorflow.simulation.native_names.names import read_name, refuse_second_cpu, shown_name

if TYPE_CHECKING:
    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["resolve"]

_KNOWN = frozenset({"CPU", "GPU", "TPU", "XPU"})
"""The types of devices whose names `names` translates or refuses, or which are the host."""
_MISSING_CPU = "MISSING_CPU"
"""The type in a function for a CPU that does not exist: TensorFlow's own ``CPU:1`` is a simulated GPU."""


def resolve(backend: TensorflowSimulation, owner: Any, text: str) -> str:
    """Return the name of the device on which a scope computes; it is the program's name of it.

    Args:
        backend: The adapter.
        owner: The context or the graph that opens the scope.
        text: The name that the program wrote.
    """
    kind, index, given = read_name(text)
    if kind is None or not backend.simulated or (kind in _KNOWN and given.device_index is not None):
        return text
    if given.device_index is None:
        index = read_name(_outer_device(owner))[1]
        given = given.replace(device_index=index)
    if kind == "CPU" and index:
        if context.context()._soft_device_placement is False:
            refuse_second_cpu(given.to_string())
        if isinstance(owner, ops.Graph):
            return str(given.replace(device_type=_MISSING_CPU).to_string())
    elif kind in _KNOWN or isinstance(owner, ops.Graph) or not _is_missing(owner, given):
        return str(given.to_string())
    return str(given.replace(device_type="GPU", device_index=0).to_string())


def _outer_device(owner: Any) -> str:
    """Return the program's name of the device of the scope in which a scope is opened; "" without one."""
    if not isinstance(owner, ops.Graph):
        return shown_name(owner.device_name or "")
    op = device_util._FakeOperation()
    owner._apply_device_functions(op)
    return shown_name(op.device or "")


def _is_missing(owner: Any, given: Any) -> bool:
    """Return True if TensorFlow has no device of this type, with soft placement, in this process.

    A program may have registered a device of its own, which DTensor and parallel devices do.
    """
    if owner._soft_device_placement is False or CLUSTER.process_of(given) != CLUSTER.here:
        return False
    owner.ensure_initialized()
    full = tf.DeviceSpec.from_string(CLUSTER.here).make_merged_spec(given)
    known = {tf.DeviceSpec.from_string(name).device_type for name in owner._context_devices}
    return given.device_type not in known and not owner.is_custom_device(full.to_string())
