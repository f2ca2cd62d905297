"""The device where Keras computes with PyTorch: a patch of ``get_device`` that returns the data's device.

Keras 3 (3.15.1) moves every argument of an operator to one device: ``KERAS_TORCH_DEVICE``, the first GPU of the
process, or the host, unless ``keras.device`` names another. It does not support other GPUs. All of Keras calls one
function, ``keras.src.backend.torch.core.get_device``. This module replaces it; for each thread it returns:

* inside ``keras.device``: its device, as without devshim;
* inside a call that follows its data (`devshim_backends._torch.models.keras.patching`): the device of the data;
* inside ``ds.on`` or ``with torch.device(...)``: its device;
* otherwise: the device that Keras would choose.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from devshim.registry import default_devices
from devshim_backends._keras.traversal import is_variable
from devshim_backends._torch.devices import TYPES, native
from devshim_backends._torch.tracing import compiles_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "CURRENT",
    "ComputeOn",
    "current_device",
    "explicit_device",
    "find_device",
    "keras_name",
    "set_keras_state",
    "tensor_of",
]


class CurrentCall(threading.local):
    """The call in this thread that follows its data."""

    device: str | None = None
    """The device of the data; None outside of such calls."""
    copies: bool = False
    """True if all tensors are copied to the device, as Keras does; if False, PyTorch refuses mixed devices."""


CURRENT = CurrentCall()


class ComputeOn:
    """A context in which Keras computes on a device."""

    __slots__ = ("_before", "_copies", "_device")

    def __init__(self, device: torch.device | None, copies: bool) -> None:
        self._device, self._copies = None if device is None else keras_name(device), copies

    def __enter__(self) -> None:
        self._before = CURRENT.device, CURRENT.copies
        CURRENT.device, CURRENT.copies = self._device, self._copies

    def __exit__(self, *failure: object) -> None:
        CURRENT.device, CURRENT.copies = self._before


class _Cuda(str):
    """The name of a GPU other than the first. It equals ``cuda``, because Keras compares it."""

    def __eq__(self, other: object) -> bool:
        return other == "cuda" or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


_NAMES: dict[torch.device, str] = {}


def keras_name(device: torch.device) -> str:
    """Return Keras's text for a device."""
    found = _NAMES.get(device)
    if found is None:
        text = str(device)
        found = _NAMES[device] = _Cuda(text) if device.type == "cuda" else text
    return found


# ---------------------------------------------------------------------- the current device
_KERAS_STATE: list[object] = [None]


def explicit_device() -> str | None:
    """Return the device of ``keras.device`` in this thread, or ``"meta"`` while Keras infers shapes, or None."""
    found: str | None = getattr(_KERAS_STATE[0], "torch_device", None)
    return found


def set_keras_state(state: object) -> None:
    """Store Keras's thread-local state, where ``keras.device`` writes."""
    _KERAS_STATE[:] = [state]


def current_device(default: Callable[[], str]) -> str:
    """Return the device where Keras creates tensors and computes in this thread; ``default`` asks Keras."""
    scope = explicit_device()
    if scope is not None:
        simulated = TYPES["gpu"] != "cuda" and scope.startswith("cuda")  # ``keras.device("gpu:1")``
        return TYPES["gpu"] + scope[len("cuda") :] if simulated else scope
    if CURRENT.device is not None:
        return CURRENT.device
    if torch._C._len_torch_function_stack():
        for mode in reversed(_get_current_function_mode_stack()):
            if isinstance(mode, DeviceContext) and mode.device.type != "meta":
                return keras_name(mode.device)
    if compiles_here():  # dynamo cannot trace a context variable
        return default()
    chosen = default_devices.innermost()  # `ds.on("cpu")` opens no mode where PyTorch's own default is the CPU
    return default() if chosen is None else keras_name(native(chosen))


# ---------------------------------------------------------------------- devices of data
def tensor_of(x: Any) -> Any:
    """Return the tensor of an argument, which may be a Keras variable; None for any other argument."""
    if isinstance(x, torch.Tensor):
        return x
    return x._value if type(x).__module__.startswith("keras.") and is_variable(x) else None


def find_device(values: Iterable[Any]) -> torch.device | None:
    """Return the device of the first tensor on a GPU, otherwise the host if a tensor is there; None without tensors.

    Lists, tuples and dictionaries are searched.
    """
    host = None
    stack = list(values)
    while stack:
        x = stack.pop(0)
        if isinstance(x, (list, tuple)):
            stack[:0] = x
        elif isinstance(x, dict):
            stack[:0] = x.values()
        else:
            tensor = tensor_of(x)
            if tensor is not None:
                kind = tensor.device.type
                if kind not in ("cpu", "meta"):
                    return tensor.device
                host = tensor.device if kind == "cpu" else host
    return host
