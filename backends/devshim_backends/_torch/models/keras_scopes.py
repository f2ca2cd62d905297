"""The device where Keras computes with PyTorch: a patch of ``get_device`` that answers with the data's device.

Keras 3 (3.15.1) moves every tensor that an operator is given to one device, which is ``KERAS_TORCH_DEVICE``, or the
first card of the process, or the host, unless ``keras.device`` says another; it knows no other card.  All of that asks
one function, ``keras.src.backend.torch.core.get_device``, so that one is answered here, for each thread:

* inside ``keras.device`` what that says, as ever;
* inside a call that follows its data (`devshim_backends._torch.models.keras_patches`) the device of the data;
* inside ``ds.on`` or ``with torch.device(...)`` what that says; else the device that Keras would choose.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from devshim_backends._keras.traversal import is_variable
from devshim_backends._torch.devices import TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["FOLLOWING", "Within", "attach", "device_asked", "explicit", "found_in", "named", "value_of"]


class Following(threading.local):
    """The call in this thread that follows its data."""

    device: str | None = None
    """The device of the data; None outside of such calls."""
    carries: bool = False
    """True if all tensors are copied there, as Keras does; else they stay, and PyTorch refuses to mix devices."""


FOLLOWING = Following()


class Within:
    """A context in which Keras computes on a device."""

    __slots__ = ("_before", "_carries", "_device")

    def __init__(self, device: torch.device | None, carries: bool) -> None:
        self._device, self._carries = None if device is None else named(device), carries

    def __enter__(self) -> None:
        self._before = FOLLOWING.device, FOLLOWING.carries
        FOLLOWING.device, FOLLOWING.carries = self._device, self._carries

    def __exit__(self, *failure: object) -> None:
        FOLLOWING.device, FOLLOWING.carries = self._before


class _Cuda(str):
    """The name of a card other than the first: equal to ``cuda``, by which Keras chooses what a card can compute."""

    def __eq__(self, other: object) -> bool:
        return other == "cuda" or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


_NAMES: dict[torch.device, str] = {}


def named(device: torch.device) -> str:
    """Return the text by which Keras knows a device."""
    found = _NAMES.get(device)
    if found is None:
        text = str(device)
        found = _NAMES[device] = _Cuda(text) if device.type == "cuda" else text
    return found


# ---------------------------------------------------------------------- what Keras asks
_KERAS: list[object] = [None]


def explicit() -> str | None:
    """Return what ``keras.device`` says in this thread, or ``"meta"`` while Keras infers shapes; else None."""
    found: str | None = getattr(_KERAS[0], "torch_device", None)
    return found


def attach(state: object) -> None:
    """Note Keras's own state of each thread, in which ``keras.device`` writes."""
    _KERAS[:] = [state]


def device_asked(default: Callable[[], str]) -> str:
    """Return where Keras puts what it makes and computes in this thread; ``default`` asks Keras."""
    scope = explicit()
    if scope is not None:
        simulated = TYPES["gpu"] != "cuda" and scope.startswith("cuda")  # ``keras.device("gpu:1")``
        return TYPES["gpu"] + scope[len("cuda") :] if simulated else scope
    if FOLLOWING.device is not None:
        return FOLLOWING.device
    if torch._C._len_torch_function_stack():
        for mode in reversed(_get_current_function_mode_stack()):
            if isinstance(mode, DeviceContext) and mode.device.type != "meta":
                return named(mode.device)
    return default()


# ---------------------------------------------------------------------- where data is
def value_of(x: Any) -> Any:
    """Return the tensor that an argument is, or holds as a variable of Keras's; None for anything else."""
    if isinstance(x, torch.Tensor):
        return x
    return x._value if type(x).__module__.startswith("keras.") and is_variable(x) else None


def found_in(values: Iterable[Any]) -> torch.device | None:
    """Return the device of the first tensor on a card, else the host where there is one on it; None without tensors.

    Lists, tuples and dictionaries are looked into.
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
            tensor = value_of(x)
            if tensor is not None:
                kind = tensor.device.type
                if kind not in ("cpu", "meta"):
                    return tensor.device
                host = tensor.device if kind == "cpu" else host
    return host
