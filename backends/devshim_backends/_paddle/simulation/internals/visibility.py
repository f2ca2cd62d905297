"""The number of simulated GPUs that Paddle itself shows.

Paddle counts a plug-in's devices only once, and the plug-in has as many as can ever be requested. The functions of
Paddle's Python layer that count or list devices, for its own modules and for programs, are replaced, and return only
the visible ones. If none is visible, the plug-in is not mentioned, and the machine looks as it does without it.
"""

from __future__ import annotations

from typing import Any

from devshim_backends._paddle.devices import core, device_at, forget_places
from devshim_backends._paddle.scopes import process_wide_place, set_process_wide_place

__all__ = ["NAME", "show"]

NAME = "sim_gpu"
"""The plug-in's name for its kind of device."""

_count = 0
_replaced = False


def show(gpus: int) -> None:
    """Show this many GPUs; a default device that is no longer among them becomes the host."""
    global _count
    _replace_functions()
    _count = gpus
    forget_places(gpus)
    place = core.Place()
    place.set_place(process_wide_place())
    device = device_at(place)
    if device is not None and device.kind == "gpu" and device.index >= gpus:
        set_process_wide_place(core.CPUPlace())


def _replace_functions() -> None:
    """Replace Paddle's functions that count devices, once."""
    global _replaced
    if _replaced:
        return
    _replaced = True
    for name, replace in _REPLACEMENTS.items():
        setattr(core, name, replace(getattr(core, name)))


def _count_visible(original: Any) -> Any:
    def get_custom_device_count(device_type: str) -> int:
        return _count if device_type == NAME else int(original(device_type))

    return get_custom_device_count


def _name_visible(original: Any) -> Any:
    def names() -> list[str]:
        return [name for name in original() or () if name != NAME or _count]

    return names


def _list_visible(original: Any) -> Any:
    def devices() -> list[str]:
        return [
            name for name in original() or () if not name.startswith(f"{NAME}:") or int(name.partition(":")[2]) < _count
        ]

    return devices


_REPLACEMENTS = {
    "get_custom_device_count": _count_visible,
    "get_all_custom_device_type": _name_visible,
    "get_all_device_type": _name_visible,
    "get_available_custom_device": _list_visible,
    "get_available_device": _list_visible,
}
