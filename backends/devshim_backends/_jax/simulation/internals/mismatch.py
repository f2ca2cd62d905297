"""The error for arrays on several simulated devices, written from the error of JAX.

JAX collects the devices that differ, and writes a text just before it raises a ``ValueError``. The functions that write
it raise devshim's error instead, which is also a ``ValueError``. Without native names, the devices have devshim's names
in the text of JAX. A program that has native names reads the text of JAX first, which says what it says on real GPUs.

If only one of the two is an argument that JAX can name, as in a function that is being differentiated, the text of JAX
(0.7.2 to 0.11) may name the devices of this argument twice. So the devices are read from what JAX collected.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jax._src import pjit, stages

from devshim.errors import DeviceMismatchError
from devshim_backends._jax.internals import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["install", "uninstall"]

_FUNCTION = "_device_assignment_mismatch_error"
_DEVICES = re.compile(r"(?:with )?device ids \[([\d, ]+)\] on platform (CPU|GPU)")
"""The devices of an array in the text of JAX."""
_UNNAMED = re.compile(r"ARG_SHARDING on .*")
"""The argument that JAX cannot name, with the devices that it may not be on; the end of the text."""


def install() -> None:
    """Let JAX raise devshim's error."""
    for module, _, refuse in _replaced:
        setattr(module, _FUNCTION, refuse)


def uninstall() -> None:
    """Let JAX raise its own error."""
    for module, original, _ in _replaced:
        setattr(module, _FUNCTION, original)


def _raising(original: Callable[..., str]) -> Callable[..., str]:
    """Wrap the function that writes the text of JAX so that it raises devshim's error."""

    def refuse(fun_name: Any, fails: Any, *args: Any, **kwargs: Any) -> str:
        text = original(fun_name, fails, *args, **kwargs)
        found = [each.da for each in fails if not isinstance(each.da, int)]
        devices = list(dict.fromkeys(_names((each.id for each in da), da[0].platform.upper()) for da in found))
        several = any(len(da) > 1 for da in found)
        if "on platform GPU" not in text:
            move = "jax.device_put(x, y.sharding)" if several else "ds.place(x, ds.device_of(y))"
            raise DeviceMismatchError(_in_own_names(text, devices), _hint(move, several)) from None
        msg = f"{text}\nthe arrays are on {' and on '.join(devices)}"
        move = f"jax.device_put(x, y.{'sharding' if several else 'device'})"
        raise DeviceMismatchError(msg, _hint(move, several)) from None

    return refuse


def _hint(move: str, several: bool) -> str:
    return f"move one of them to the other's device{'s' if several else ''}: {move}"


def _in_own_names(text: str, devices: list[str]) -> str:
    """Return the text of JAX with devshim's names, and with all devices that differ."""
    text = _DEVICES.sub(lambda match: f"on {_names(map(int, match[1].split(',')), match[2])}", text)
    for missing in (each for each in devices if f"on {each}" not in text):
        text = _UNNAMED.sub(f"another argument on {missing}", text)
    return text


def _names(ids: Iterable[int], platform: str) -> str:
    """Return devshim's names of devices, and JAX's for GPUs of other processes.

    Simulated GPUs are JAX's CPU devices after those of the host, unless they have the name of a real GPU.
    """
    natives = enumerate(layout.simulated_gpus())
    names_of_gpus = {native.id: f"gpu:{index}" for index, native in natives if native.platform.upper() == platform}
    names = [names_of_gpus.get(each, "cpu" if platform == "CPU" else f"cuda:{each}") for each in ids]
    simulated = " (simulated)" if set(names) != {"cpu"} else ""
    if len(names) == 1:
        return names[0] + simulated
    return f"a mesh of {', '.join(names[:-1])} and {names[-1]}{simulated}"


_replaced = [
    (module, getattr(module, _FUNCTION), _raising(getattr(module, _FUNCTION)))
    for module in (pjit, stages)
    if hasattr(module, _FUNCTION)
]
"""The modules that have the function, JAX's own function, and the one that replaces it."""
