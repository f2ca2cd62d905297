"""``torch.device(1)``: a number alone, which PyTorch's C++ takes for the custom device ``sim:1``.

C++ decides that in the constructor, ``tp_new``, of a class that Python may not change. So this module changes the
class's slot for the constructor to CPython's function that looks up ``__new__``, as the constructor of a class written
in Python is found, and puts a ``__new__`` into the class's dictionary. PyTorch's constructor still reads every
argument.

Both words are found by comparison with what Python answers, and nothing changes where they are not found.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import torch

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.native_names.names import SHOWN
from devshim_backends._torch.simulation.state import NAME

_TP_NEW = 65
"""The number of the slot in CPython's stable ABI (``typeslots.h``)."""
_SIZE = 64
"""The words of a class that are searched; it has 51 in Python 3.11."""

_device = torch.device
_get_slot = ctypes.pythonapi.PyType_GetSlot
_get_slot.restype, _get_slot.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
_forget_lookups = ctypes.pythonapi.PyType_Modified
_forget_lookups.restype, _forget_lookups.argtypes = None, [ctypes.py_object]


class _InPython:
    """A class whose constructor is CPython's function that looks up ``__new__``."""

    def __new__(cls) -> _InPython:
        return super().__new__(cls)


_PYTORCHS: int = _get_slot(_device, _TP_NEW)
_LOOKUP: int = _get_slot(_InPython, _TP_NEW)
_construct = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.py_object)(_PYTORCHS)


def _new(cls: type[torch.device], *args: Any, **kwargs: Any) -> torch.device:
    """Create a device; one that a number alone means is a CUDA card, as it is shown."""
    made: torch.device = _construct(cls, args, kwargs)
    if made.type == NAME and not isinstance(args[0] if args else next(iter(kwargs.values())), (str, _device)):
        return SHOWN.get(made) or _device("cuda", made.index)
    return made


class _Slot:
    """The constructor of `torch.device`, as an item of a dictionary for `Patches.replace_item`."""

    def __init__(self, word: ctypes.c_void_p) -> None:
        self._word = word

    def get(self, key: str, absent: object) -> int:
        """Return the address of the constructor."""
        return self._word.value or 0

    def __setitem__(self, key: str, address: int) -> None:
        self._word.value = address
        _forget_lookups(_device)


def _slot() -> ctypes.c_void_p | None:
    """Return the word of `torch.device` that contains the address of its constructor."""
    words = (ctypes.c_void_p * _SIZE).from_address(id(_device))
    found = [index for index, address in enumerate(words) if address == _PYTORCHS]
    return ctypes.c_void_p.from_buffer(words, found[0] * ctypes.sizeof(ctypes.c_void_p)) if len(found) == 1 else None


def install(patches: Patches) -> None:
    """Let ``torch.device(1)`` be ``cuda:1``, as with real cards."""
    word = _slot()
    (attributes,) = gc.get_referents(vars(_device))
    if word is not None and type(attributes) is dict:
        patches.replace_item(attributes, "__new__", staticmethod(_new))
        patches.replace_item(_Slot(word), "constructor", _LOOKUP)
