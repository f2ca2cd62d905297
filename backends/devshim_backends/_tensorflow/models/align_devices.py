"""Operators on tensors of several devices, which are allowed while a split model or its optimizer runs.

A real TensorFlow copies inputs from other devices to the scope's device. Simulated GPUs refuse such inputs, except in
the cases of this module: in the code of a model that is split over several devices (a residual connection), and in an
optimizer's update of such a model's variables. Gradients flow back through the copies.
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
    """The state of this thread while a model or optimizer on several devices runs."""

    active: bool = False
    """True while such a model or optimizer runs."""
    within: bool = False
    """True while it is the forward pass of a model."""
    last: Device | None = None
    """The device of the part of the model that ran last."""


RUN = Run()


def carried(tree: Any, device: Device) -> Any:
    """Copy the eager tensors in a tree of arguments to a device; gradients flow back."""
    return tf.nest.map_structure(lambda x: _carry(x, device), tree)


def _carry(x: Any, device: Device) -> Any:
    if not _is_eager(x) or x.dtype in _HANDLES:
        return x
    made = activations.carry(x, device)
    mask = getattr(x, "_keras_mask", None)
    if mask is not None and made is not x:  # Keras stores the mask on the tensor
        made._keras_mask = _carry(mask, device)
    return made


def _is_eager(x: Any) -> bool:
    if isinstance(x, COMPOSITES):
        return all(isinstance(part, EAGER) for part in tf.nest.flatten(x, expand_composites=True))
    return isinstance(x, EAGER)
