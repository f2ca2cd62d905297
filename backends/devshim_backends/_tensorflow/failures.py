"""Errors that are both TensorFlow's and devshim's, so that code which catches either type catches them.

Keras creates the error again, with the same class and TensorFlow's arguments, to add a layer's name to its text. So
TensorFlow's ``message`` is the whole text, including the hint.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import core

from devshim.devices.device import CPU
from devshim.errors import (
    DeviceMismatchError,
    DeviceNotFoundError,
    DevshimError,
    JoinedError,
    OutOfMemoryError,
    SimulationError,
    messages,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.devices.device import Device

__all__ = [
    "FAILURES",
    "FullDeviceError",
    "MissingDeviceError",
    "MixedDevicesError",
    "RemovedDeviceError",
    "full_device_error",
]

FAILURES: tuple[type[Exception], ...] = (core._NotOkStatusException, tf.errors.OpError)
"""The types of an operator's error: the fast path raises the status, and the slow path raises the error."""


_FULL_HOST = re.compile(
    r"OOM when allocating tensor with shape\[(?P<shape>[\d,]*)\] and type (?P<dtype>\w+) on (?P<device>\S+)"
)


class FullDeviceError(JoinedError, OutOfMemoryError, tf.errors.ResourceExhaustedError):  # type: ignore[misc]  # TensorFlow is Any
    """The error for a full simulated GPU."""

    def __init__(self, *args: Any) -> None:
        _init_both(self, tf.errors.ResourceExhaustedError, args)

    @classmethod
    def _real_text(cls, device: Device, nbytes: int | None, free: int | None) -> str | None:
        name = f"/job:localhost/replica:0/task:0/device:GPU:{device.index}"
        return f"OOM when allocating a tensor of {nbytes} bytes on {name} by allocator GPU_{device.index}_bfc"


def full_device_error(message: str, device_named: Callable[[str], Device | None]) -> OutOfMemoryError | None:
    """Return the error for a simulated GPU, if TensorFlow's message is that the host has too little memory for it."""
    found = _FULL_HOST.search(message)
    device = None if found is None else device_named(found["device"])
    if found is None or device is None or device is CPU:
        return None
    nbytes = prod(map(int, filter(None, found["shape"].split(",")))) * int(tf.as_dtype(found["dtype"]).size)
    return messages.full_device(device, nbytes, None, FullDeviceError)


class RemovedDeviceError(JoinedError, SimulationError, tf.errors.InternalError):  # type: ignore[misc]  # TensorFlow is Any
    """The error for a tensor on a simulated GPU that was removed."""

    _real_text = "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"

    def __init__(self, *args: Any) -> None:
        _init_both(self, tf.errors.InternalError, args)


class MixedDevicesError(JoinedError, DeviceMismatchError, tf.errors.InvalidArgumentError):  # type: ignore[misc]  # TensorFlow is Any
    """The error for an operator whose tensors are on different simulated GPUs."""

    def __init__(self, *args: Any) -> None:
        _init_both(self, tf.errors.InvalidArgumentError, args)


class MissingDeviceError(JoinedError, DeviceNotFoundError, tf.errors.InvalidArgumentError):  # type: ignore[misc]  # TensorFlow is Any
    """The error for TensorFlow's name of a GPU that is not simulated."""

    def __init__(self, *args: Any) -> None:
        _init_both(self, tf.errors.InvalidArgumentError, args)


def _init_both(error: Any, theirs: Any, args: tuple[Any, ...]) -> None:
    """Set up an error from ``(problem, hint)``, or from TensorFlow's ``(node, operator, message, ...)``."""
    node, operator, *text = args[:3] if len(args) > 2 else (None, None, *args)
    DevshimError.__init__(error, *text)
    message = error.args[0]
    theirs.__init__(error, node, operator, message)
    error.args = (message,)  # TensorFlow's constructor has cleared them
