"""The number of simulated GPUs that Paddle itself shows.

Paddle counts a plug-in's devices only once, and the plug-in has as many as can ever be requested.  The functions of
Paddle's Python layer that count or list devices, for its own modules and for programs, are replaced, and return only
the visible ones.  If none is visible, the plug-in is not mentioned, and the machine looks as it does without it.
"""

from __future__ import annotations

from typing import Any

from devshim_backends._paddle.devices import core, device_at, forget_places
from devshim_backends._paddle.scopes import process_wide, set_process_wide

__all__ = ["NAME", "show"]

NAME = "sim_gpu"
"""The plug-in's name for its kind of device."""

_count = 0
_diverted = False


def show(gpus: int) -> None:
    """Show this many GPUs; a default device that is no longer among them becomes the host."""
    global _count
    _divert()
    _count = gpus
    forget_places(gpus)
    place = core.Place()
    place.set_place(process_wide())
    device = device_at(place)
    if device is not None and device.kind == "gpu" and device.index >= gpus:
        set_process_wide(core.CPUPlace())


def _divert() -> None:
    """Replace Paddle's functions that count devices, once."""
    global _diverted
    if _diverted:
        return
    _diverted = True
    own = {name: getattr(core, name) for name in _DIVERTED}
    for name, make in _DIVERTED.items():
        setattr(core, name, make(own[name]))


def _counting(own: Any) -> Any:
    def get_custom_device_count(device_type: str) -> int:
        return _count if device_type == NAME else int(own(device_type))

    return get_custom_device_count


def _naming(own: Any) -> Any:
    def names() -> list[str]:
        return [name for name in own() or () if name != NAME or _count]

    return names


def _listing(own: Any) -> Any:
    def devices() -> list[str]:
        return [each for each in own() or () if not each.startswith(f"{NAME}:") or int(each.partition(":")[2]) < _count]

    return devices


_DIVERTED = {
    "get_custom_device_count": _counting,
    "get_all_custom_device_type": _naming,
    "get_all_device_type": _naming,
    "get_available_custom_device": _listing,
    "get_available_device": _listing,
}
