"""``torch.device(1)``: a single number, which PyTorch's C++ takes for the custom device ``sim:1``.

C++ decides that in the constructor of a class that Python may not change. Therefore this module changes the class's
slot for ``__new__`` (see `slots`). PyTorch's constructor still reads every argument.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals import slots
from devshim_backends._torch.simulation.internals.state import NAME
from devshim_backends._torch.simulation.native_names.names import SHOWN

_device = torch.device
_construct = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.py_object)(
    slots.address(_device, slots.NEW)
)


def _new(cls: type[torch.device], *args: Any, **kwargs: Any) -> torch.device:
    """Create a device; a single number means a CUDA card, as programs see it."""
    made: torch.device = _construct(cls, args, kwargs)
    if made.type == NAME and not isinstance(args[0] if args else next(iter(kwargs.values())), (str, _device)):
        return SHOWN.get(made) or _device("cuda", made.index)
    return made


def install(patches: Patches) -> None:
    """Let ``torch.device(1)`` be ``cuda:1``, as with real cards."""
    slots.replace(patches, _device, slots.NEW, staticmethod(_new))
