"""The translation between the devices of a program and those of MXNet's library: ``gpu(0)`` is its ``cpu(1)``.

The number of simulated GPUs may change while native names are on, so it is read at each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet.base import py_str

from devshim.devices.device import Device
from devshim.errors import DeviceNotFoundError, JoinedError
from devshim.registry import missing_devices
from devshim_backends._mxnet.internals.native import IS_2

if TYPE_CHECKING:
    from devshim_backends._mxnet.tensors import MxnetTensors

_CPU, _GPU = 1, 2
_AFTER_GPUS = 64
"""The library's CPUs up to this index may be simulated GPUs (`most_simulated_gpus`); a program's are behind them."""

_NO_GPU = "CUDA: no CUDA-capable device is detected"
"""The text of MXNet's build for CUDA on a machine without visible GPUs."""

_backend: MxnetTensors | None = None

__all__ = [
    "MissingGpuError",
    "current_backend",
    "from_library",
    "move_line",
    "number_of",
    "set_backend",
    "to_library",
    "to_library_text",
    "to_program_text",
]


class MissingGpuError(JoinedError, DeviceNotFoundError, mx.MXNetError):  # type: ignore[misc]  # MXNet is Any to the type checker
    """The error for a GPU that is not there, which replaces MXNet's."""


def set_backend(backend: MxnetTensors | None) -> None:
    """Set the backend whose simulated GPUs have MXNet's names; None if they do not have them."""
    global _backend
    _backend = backend


def current_backend() -> MxnetTensors | None:
    """Return the backend whose simulated GPUs have MXNet's names; None if none do."""
    return _backend


def to_library(kind: int, index: int) -> tuple[int, int]:
    """Return the kind and the index of a program's device, as MXNet's library knows it.

    Raises:
        MissingGpuError: The GPU does not exist.
    """
    if kind == _GPU:
        backend = _backend
        if backend is None or not 0 <= index < backend.simulated:
            raise _missing_gpu_error(index)
        return _CPU, index + 1
    return (kind, index + _AFTER_GPUS) if kind == _CPU and index > 0 else (kind, index)


def from_library(kind: int, index: int) -> tuple[int, int]:
    """Return the kind and the index of the library's device, as the program knows it."""
    if kind != _CPU or index <= 0:
        return kind, index
    backend = _backend
    if backend is not None and index <= backend.simulated_or_removed:
        return _GPU, index - 1
    return kind, index - _AFTER_GPUS if index > _AFTER_GPUS else index


def to_library_text(text: str) -> str:
    """Return the text of a device, ``"gpu(1)"``, as the library knows it; any other text is returned as it is."""
    if text[1:4] != "pu(" or text[-1] != ")" or not text[4:-1].isdecimal() or text[0] not in "cg":
        return text
    kind, index = to_library(_GPU if text[0] == "g" else _CPU, int(text[4:-1]))
    return f"{'gpu' if kind == _GPU else 'cpu'}({index})"


def to_program_text(text: bytes) -> str:
    """Return the text of the library, with a simulated GPU's device as the program knows it."""
    found = str(py_str(text))
    if found[:4] != "cpu(" or not found[4:-1].isdecimal():
        return found
    kind, index = from_library(_CPU, int(found[4:-1]))
    return f"{'gpu' if kind == _GPU else 'cpu'}({index})"


def _missing_gpu_error(index: int) -> MissingGpuError:
    backend = _backend
    if backend is None or index < 0:
        return MissingGpuError(f"MXNet has no gpu({index})", "number GPUs from 0, as in mx.gpu(0)")
    if not backend.simulated:
        return missing_devices.all_hidden_error(MissingGpuError, _NO_GPU)
    error = missing_devices.not_found_error(backend, Device("gpu", index))
    last = backend.simulated - 1
    return MissingGpuError(error.problem, f"use mx.gpu({index if index <= last else last}), or simulate more GPUs")


def move_line(device: Device) -> str | None:
    """Return MXNet's line that moves an array ``x`` to a device, or None if programs use devshim's."""
    backend = _backend
    return None if backend is None else f"x.{'to_device' if IS_2 else 'as_in_context'}({backend.native_text(device)})"


def number_of(value: Any) -> int:
    """Return an argument of the library as a number, whether it is one or a ctypes object."""
    return int(getattr(value, "value", value))
