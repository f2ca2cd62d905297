"""Calls of TorchScript from Python: a device in an argument is ``sim:1`` for the script, and a card in a result.

In a script, the device of a tensor is ``sim:1`` (see `scripting`), and C++ knows no other name for the simulated GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.jit._state import _get_script_class

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.native_names.names import SHOWN
from devshim_backends._torch.tracing import compiles_here

_Device = torch.device
_HIDDEN = {shown: device for device, shown in SHOWN.items()}
_CONTAINERS = frozenset({list, dict})


def _translate(value: Any, translate: Callable[[Any], Any]) -> Any:
    """Return a value of TorchScript with the devices in it translated; containers without a device stay as they are.

    All items of a list, and all values of a dictionary, have one type in TorchScript: the first one shows it.
    """
    kind = type(value)
    if kind is _Device:
        return translate(value)
    if isinstance(value, tuple):
        items = [_translate(each, translate) for each in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return kind._make(items) if hasattr(kind, "_make") else kind(items)
    if kind not in _CONTAINERS or not value:
        if _get_script_class(kind) is not None and translate is _shown:
            _show_in_attributes(value)
        return value
    first = next(iter(value.values() if kind is dict else value))
    if _translate(first, translate) is first:
        return value
    if kind is dict:
        return {key: _translate(each, translate) for key, each in value.items()}
    return [_translate(each, translate) for each in value]


def _show_in_attributes(made: Any) -> None:
    """Translate the attributes of an instance of a scripted class, which C++ has just made for Python."""
    for name, value in list(vars(made).items()):
        new = _translate(value, _shown)
        if new is not value:
            setattr(made, name, new)


def _shown(device: Any) -> Any:
    return SHOWN.get(device, device)


def _simulated(device: Any) -> Any:
    """Return the simulated GPU's device for a card; one without an index stays, because C++ would use the first."""
    return _HIDDEN.get(device, device)


def _call(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for the call of a script's function or method."""

    @functools.wraps(real)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if compiles_here():
            return real(self, *args, **kwargs)
        given = [_translate(each, _simulated) for each in args]
        named = {name: _translate(each, _simulated) for name, each in kwargs.items()}
        return _translate(real(self, *given, **named), _shown)

    return call


def _read(real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for a function that returns a value from a script."""

    @functools.wraps(real)
    def read(*args: Any) -> Any:
        return _translate(real(*args), _shown)

    return read


def install(patches: Patches) -> None:
    """Install the replacements."""
    for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        patches.replace(kind, "__call__", _call(kind.__call__))
    for name in ("__getattr__", "getattr"):
        patches.replace(torch._C.ScriptObject, name, _read(getattr(torch._C.ScriptObject, name)))
    for name in ("wait", "value"):
        patches.replace(torch._C.Future, name, _read(getattr(torch._C.Future, name)))
    patches.replace(torch._C, "wait", _read(torch._C.wait))
