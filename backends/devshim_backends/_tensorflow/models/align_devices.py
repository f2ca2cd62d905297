"""Copies of inputs between devices, which are allowed while a split model or its optimizer runs.

A real TensorFlow copies inputs from other devices to the scope's device. Simulated GPUs refuse such inputs, except in
the cases of this module: in the code of a model that is split over several devices (a residual connection), and in an
optimizer's update of the model's variables. Gradients flow back through the copies.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.tensors import activations
from devshim_backends._tensorflow.internals.locations import COMPOSITES, EAGER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.devices.device import Device

__all__ = ["SPLIT", "allow_mixed_devices", "copy_tensors"]

_HANDLES = (tf.string, tf.resource, tf.variant)


class SplitState(threading.local):
    """The state of this thread while a split model, or an optimizer of one, runs."""

    active: bool = False
    """True while a split model or its optimizer runs: operators may mix devices."""
    in_forward: bool = False
    """True while it is the forward pass of a model."""
    last_device: Device | None = None
    """The device of the part of the model that ran last."""


SPLIT = SplitState()


@contextmanager
def allow_mixed_devices(in_forward: bool = False) -> Iterator[None]:
    """Allow operators on tensors of several devices inside this context."""
    before = SPLIT.active, SPLIT.in_forward, SPLIT.last_device
    SPLIT.active, SPLIT.in_forward, SPLIT.last_device = True, in_forward, None
    try:
        yield
    finally:
        SPLIT.active, SPLIT.in_forward, SPLIT.last_device = before


def copy_tensors(tree: Any, device: Device) -> Any:
    """Copy the eager tensors in a tree of arguments to a device; gradients flow back."""
    return tf.nest.map_structure(lambda x: _copy_tensor(x, device), tree)


def _copy_tensor(x: Any, device: Device) -> Any:
    if not _is_eager(x) or x.dtype in _HANDLES:
        return x
    copied = activations.move_activation(x, device)
    mask = getattr(x, "_keras_mask", None)
    if mask is not None and copied is not x:  # Keras stores the mask on the tensor
        copied._keras_mask = _copy_tensor(mask, device)
    return copied


def _is_eager(x: Any) -> bool:
    if isinstance(x, COMPOSITES):
        return all(isinstance(part, EAGER) for part in tf.nest.flatten(x, expand_composites=True))
    return isinstance(x, EAGER)
