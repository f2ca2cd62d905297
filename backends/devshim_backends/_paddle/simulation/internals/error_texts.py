"""The words of errors while Paddle's own names for GPUs mean the simulated ones.

A program that is written for CUDA does not know the plug-in's kind of device, nor devshim's functions. `hooks` passes
each error of Paddle's C++ code to `rename`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddle.base import framework

from devshim_backends._paddle.devices import core
from devshim_backends._paddle.simulation.internals.visibility import NAME

if TYPE_CHECKING:
    from devshim.devices.device import Device

__all__ = ["is_native", "move_line", "rename", "use_native_names"]

_TEXTS = {
    f", '{NAME}', '{NAME}:x'": "",  # in a list of accepted names, which has those of CUDA
    f"{NAME}:": "gpu:",
    NAME: "GPU",
}
"""Text about a device of the plug-in -> text about a GPU, in the order of replacement."""

_is_native = False


def use_native_names(named: bool) -> None:
    """Use the program's words in errors from now on, or stop that."""
    global _is_native
    _is_native = named


def is_native() -> bool:
    """Return True if errors use the program's words."""
    return _is_native


def rename(error: Exception) -> None:
    """Let an error of Paddle call a simulated GPU as the program does."""
    if _is_native:
        error.args = tuple(_renamed(each) if isinstance(each, str) else each for each in error.args)


def _renamed(text: str) -> str:
    for own, native in _TEXTS.items():
        text = text.replace(own, native)
    return text


def move_line(device: Device) -> str | None:
    """Return Paddle's line that moves a tensor ``x``, or None if programs use devshim's.

    Paddle's layers create tensors, such as the first states of an LSTM, on the current GPU. A program cannot move them,
    so if the current GPU is another one, the line also chooses that GPU.
    """
    if not _is_native:
        return None
    line = f"x = x.to({str(device)!r})"
    place = framework._current_expected_place_()
    is_other = isinstance(place, core.CustomPlace) and place.get_device_id() != device.index
    return f"{line}; for tensors that a layer creates: paddle.set_device({str(device)!r})" if is_other else line
