"""Operators that have no kernel for GPUs, because they read or write strings or make datasets, with native names.

TensorFlow runs them on the host, also in the scope of a GPU. If ``tf.config.set_soft_device_placement(False)`` forbids
that, it raises an error. This build of TensorFlow lacks most kernels for CUDA, so a missing kernel does not show that
CUDA lacks it. But a kernel for CUDA cannot read strings: the operators that run on GPUs with strings in the host's
memory have a kernel for GPUs in this build too, and so have those for datasets.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels, op_def_registry

from devshim_backends._tensorflow.internals.locations import EAGER
from devshim_backends._tensorflow.simulation.native_names.internals.scopes import SCOPE
from devshim_backends._tensorflow.simulation.native_names.names import all_devices, is_simulated_gpu, shown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim_backends._tensorflow.simulation.simulate import TensorflowSimulation

__all__ = ["leaves_scope", "refuse_host", "runs_on_host", "runs_on_host_in_graph"]

_ON_GPUS = frozenset({"GPU", "DEFAULT"})
"""The types of devices of kernels that GPUs have."""
_STRING = tf.string.as_datatype_enum
_PYTHON = frozenset({"PyFunc", "PyFuncStateless"})
"""Operators that call a Python function with NumPy's arrays."""


def runs_on_host(op: str | bytes, inputs: Sequence[Any]) -> bool:
    """Return True if an operator with these inputs has kernels for the host only, because it needs strings there."""
    known = _host_inputs(op)
    if isinstance(known, bool):
        return known
    return any(_is_string(inputs[position]) for position in known if position < len(inputs))


@lru_cache(maxsize=4096)
def _host_inputs(op: str | bytes) -> bool | tuple[int, ...]:
    """Return True if an operator runs on the host, False if not, or the positions of inputs that decide: strings do."""
    name = op.decode() if isinstance(op, bytes) else op
    definition = op_def_registry.get(name)
    if definition is None:
        return False
    always = any(each.type == _STRING for each in (*definition.input_arg, *definition.output_arg))
    generic = {each.name for each in definition.attr if each.type == "type" and _allows_string(each)}
    positions = [i for i, each in enumerate(definition.input_arg) if each.type_attr in generic]
    if not (always or positions or "Dataset" in name):
        return False
    on_gpus = [k for k in kernels.get_registered_kernels_for_op(name).kernel if k.device_type in _ON_GPUS]
    if always or "Dataset" in name:
        return not on_gpus
    kept = {attr for attr in generic if any(_reads_strings(kernel, attr) for kernel in on_gpus)}
    return tuple(i for i in positions if definition.input_arg[i].type_attr not in kept)


def runs_on_host_in_graph(op: Any) -> bool:
    """Return True if an operator of a graph has kernels for the host only, as `runs_on_host` does."""
    known = _host_inputs(op.type)
    if known is True or op.type in _PYTHON or "Iterator" in op.type:
        return True
    strings = any(x.dtype.base_dtype == tf.string for x in op.inputs)
    if known or strings:
        return bool(known) and strings
    return any(x.dtype.base_dtype == tf.string for x in op.outputs) and not _returns_strings_on_gpus(op.type)


@lru_cache(maxsize=4096)
def _returns_strings_on_gpus(name: str) -> bool:
    """Return True if an operator has a kernel for GPUs with results of strings, which are in the host's memory."""
    definition = op_def_registry.get(name)
    on_gpus = [k for k in kernels.get_registered_kernels_for_op(name).kernel if k.device_type in _ON_GPUS]
    generic = [each.type_attr for each in definition.output_arg if each.type_attr]
    return any(all(_reads_strings(kernel, attr) for attr in generic) for kernel in on_gpus)


def _reads_strings(kernel: Any, attr: str) -> bool:
    """Return True if a kernel accepts strings for a generic dtype."""
    return all(_allows_string(each) for each in kernel.constraint if each.name == attr)


def _allows_string(attr: Any) -> bool:
    allowed = attr.allowed_values.list.type
    return not allowed or _STRING in allowed


def _is_string(value: Any) -> bool:
    """Return True for a tensor of strings, a string or an array of strings, or a list of these."""
    if isinstance(value, EAGER):
        return bool(value._datatype_enum() == _STRING)
    if isinstance(value, (list, tuple)):
        return bool(value) and _is_string(value[0])
    return isinstance(value, (str, bytes)) or (isinstance(value, np.ndarray) and value.dtype.kind in "SUO")


def leaves_scope(backend: TensorflowSimulation, op: Any, inputs: Sequence[Any], scope: str) -> bool:
    """Return True if an operator runs on the host, although the program has opened the scope of a GPU.

    Args:
        backend: The adapter.
        op: The operator's name.
        inputs: Its inputs.
        scope: TensorFlow's name of the scope's device.

    Raises:
        InvalidArgumentError: The program has forbidden it, by ``tf.config.set_soft_device_placement(False)``.
    """
    if SCOPE.strict or not is_simulated_gpu(scope) or not runs_on_host(op, inputs):
        return False
    refuse_host(op, scope)
    return True


def refuse_host(op: str | bytes, scope: str) -> None:
    """Refuse to run an operator on the host if the program wants it on a GPU, and has switched soft placement off.

    Args:
        op: The operator's name.
        scope: TensorFlow's name of the scope's device; without one, the host is accepted.

    Raises:
        InvalidArgumentError: The program has forbidden it, by ``tf.config.set_soft_device_placement(False)``.
    """
    if scope and not context.context().soft_device_placement:
        text = (
            f"Could not satisfy device specification {shown_name(scope)!r}. enable_soft_placement=0. "
            f"Supported device types [CPU]. All available devices [{all_devices()}]."
        )
        raise tf.errors.InvalidArgumentError(None, None, f"{text} [Op:{op.decode() if isinstance(op, bytes) else op}]")
