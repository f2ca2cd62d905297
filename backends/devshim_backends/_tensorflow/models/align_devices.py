"""Letting tensors of several devices meet in one operator, while something over several devices runs.

A real TensorFlow copies what is elsewhere by itself, to where the scope is.  Simulated cards refuse a mix, and here it
is let pass: in the code of a model that has parts on several devices (a residual connection), and in an optimizer's
update of such a model's variables.  Gradients flow back through what was carried.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.tensors import activations
from devshim_backends._tensorflow.locations import COMPOSITES, EAGER

if TYPE_CHECKING:
    from devshim.devices.device import Device

__all__ = ["RUN", "carried"]

_HANDLES = (tf.string, tf.resource, tf.variant)


class Run(threading.local):
    """What is running over several devices in this thread."""

    active: bool = False
    """Whether anything is."""
    within: bool = False
    """Whether it is the forward pass of a model."""
    last: Device | None = None
    """The device of the part that ran last."""


RUN = Run()


def carried(tree: Any, device: Device) -> Any:
    """A tree of arguments with its eager tensors on a device; gradients flow back."""
    return tf.nest.map_structure(lambda x: _carry(x, device), tree)


def _carry(x: Any, device: Device) -> Any:
    if not _is_eager(x) or x.dtype in _HANDLES:
        return x
    made = activations.carry(x, device)
    mask = getattr(x, "_keras_mask", None)
    if mask is not None and made is not x:  # Keras hangs it on the tensor
        made._keras_mask = _carry(mask, device)
    return made


def _is_eager(x: Any) -> bool:
    if isinstance(x, COMPOSITES):
        return all(isinstance(part, EAGER) for part in tf.nest.flatten(x, expand_composites=True))
    return isinstance(x, EAGER)
