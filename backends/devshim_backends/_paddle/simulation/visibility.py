"""How many of the plug-in's cards Paddle itself shows.

Paddle counts a plug-in's devices once and for all, and the plug-in has as many as can ever be asked for.  The functions
of its Python layer that count or list them, for its own modules and for programs, are told how many are shown; where
none are, the plug-in is not mentioned, and the machine looks as it did without.
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
    """Show the first so many cards; a default device that is not among them any more becomes the host's."""
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
    """Put what is shown before Paddle's own counts, once."""
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
