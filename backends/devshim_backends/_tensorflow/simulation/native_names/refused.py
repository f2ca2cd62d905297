"""TensorFlow's own GPU names, such as ``/GPU:1``, which are refused while GPUs are simulated.

A simulated GPU is a logical CPU (see `simulate`), so ``/GPU:1`` names a device that does not exist. With soft
placement, which is on by default, TensorFlow would compute on the host instead. The error shows the line that computes
on the simulated GPU. All scopes (of `tf.device`, Keras and `tf.distribute`, even inside a `tf.function`) call one of
two methods, which are patched while GPUs are simulated.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from devshim.errors import DeviceNotFoundError
from devshim_backends._tensorflow.devices import parse

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NAME_CHECKS"]


def _wrap_device(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def device(self: Any, name: Any) -> Any:
        return open_scope(original, self, name)

    return device


def open_scope(original: Callable[..., Any], owner: Any, name: Any) -> Any:
    """Open a scope by TensorFlow's method; `native_names` replaces this function."""
    refuse_gpu_name(name)
    return original(owner, name)


def refuse_gpu_name(name: Any) -> None:
    """Refuse TensorFlow's name of a GPU.

    Raises:
        DeviceNotFoundError: The name is one of a GPU, in any spelling.
    """
    text = name.name if isinstance(name, tf.config.LogicalDevice) else name
    text = text.to_string() if hasattr(text, "to_string") else text
    if not isinstance(text, str):
        return
    read = parse(text.replace("*", "0")) or parse(f"{text}:0")
    if read is not None and read[0] != "CPU":
        kind, index = read
        msg = f"TensorFlow has no device {text!r}: the GPUs are simulated, and TensorFlow would compute on the CPU"
        raise DeviceNotFoundError(msg, f'with ds.on("{kind.lower()}:{index}"):')


NAME_CHECKS: tuple[tuple[type, str, Any], ...] = tuple(
    (owner, "device", _wrap_device(owner.device)) for owner in (context.Context, ops.Graph)
)
"""TensorFlow classes, the method that opens a scope, and the patch that refuses GPU names."""
