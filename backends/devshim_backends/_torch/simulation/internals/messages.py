"""The texts of errors that PyTorch's C++ raises: they name the simulated GPU instead of PyTorch's key for its kind.

With native names, they name a card instead of the device ``sim:1`` of its tensor. C++ raises these errors from any
function, below every hook of Python, so the one place that all of them pass is the class of the error. Its slot for
``__init__`` is changed (see `slots`). Existing subclasses, including devshim's own errors, keep their slots.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from devshim_backends._torch.simulation.internals import patches, slots
from devshim_backends._torch.simulation.internals.state import NAME, TYPES

__all__ = ["patch"]

_CLASSES = (RuntimeError, NotImplementedError, TypeError)
"""The classes that C++ raises for a failed check, for an operator that a device lacks, and for a wrong argument."""
_DEVICE = re.compile(
    rf"(?<![\w.]){NAME}(?=:\d)|(?<=\btorch\.){NAME}(?=\.)|(?<=device type '){NAME}(?=')|(?<=found '){NAME}(?=')"
    rf"|(?<=parameter \(){NAME}(?=\))"
)
"""The device in PyTorch's error text: ``sim:1``, ``torch.sim.FloatTensor``, ``device type 'sim'``, ``found 'sim'``,
``parameter (sim)``.
"""
_TYPE = re.compile(rf"(?<=\[){NAME}(\w+)Type(?= \[)|(?<='){NAME}(\w+)Type(?=')")
"""The type of a tensor in an error of autograd, ``[simFloatType [2]]``, and of ``pin_memory``, ``'simFloatType'``."""
_PRINTED = re.compile(rf"(?<=\[ ){NAME}(?=\w+Type{{)")
"""The type of a tensor under its printed values: ``[ simFloatType{2} ]``."""
_KEY = re.compile(
    r"PrivateUseOne\b|PrivateUse1(?=' backend)|(?<=Sparse)PrivateUse1\b|(?<=SparseCsr)PrivateUse1\b"
    r"|(?<=Quantized)PrivateUse1\b|(?<=NestedTensor)PrivateUse1\b"
)
"""The backend of simulated GPUs: ``PrivateUseOne``, ``from the 'PrivateUse1' backend``, ``QuantizedPrivateUse1``.

The plain name elsewhere is one in a list of all backends, which is the same on a card.
"""


_HOOK = re.compile(
    r"You should register `PrivateUse1HooksInterface`.* implement `(\w+)` at the same time for PrivateUse1\."
)
"""The error of a function in C++ that asks for a part of the device which a device in Python cannot have."""
_INSTEAD = {
    "getPinnedMemoryAllocator": "make the tensor without pin_memory, and pin it in Python: x.pin_memory()",
    "resizePrivateUse1Bytes": "make another tensor of the new size",
}


def _with_cards_names(text: str) -> str:
    """Return the text of an error with the names of cards."""
    text = _TYPE.sub(lambda found: f"torch.cuda.{found[1] or found[2]}Tensor", _DEVICE.sub("cuda", text))
    return _KEY.sub("CUDA", _PRINTED.sub("CUDA", text))


def _with_name(text: str) -> str:
    """Return the text of an error with the simulated GPU's name, in capitals where PyTorch writes ``CUDA``."""
    return re.sub("PrivateUse(1|One)", NAME.upper(), text).replace("privateuseone", NAME)


def _explain(found: re.Match[str]) -> str:
    msg = "a simulated GPU is a device in Python: it lacks a function of C++ that this call needs"
    instead = _INSTEAD.get(found[1])
    return msg if instead is None else f"{msg}\n\nHint: {instead}"


def _init(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for the ``__init__`` of a class of errors."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if args and type(args[0]) is str and (NAME in args[0] or "rivate" in args[0]):
            rename = _with_cards_names if "cuda" in TYPES else _with_name
            args = (rename(_HOOK.sub(_explain, args[0])), *args[1:])
        real(self, *args, **kwargs)

    return __init__


def patch() -> None:
    """Name simulated GPUs in errors that C++ code raises."""
    for each in _CLASSES:
        slots.replace(patches.ALL, each, slots.INIT, _init(vars(each)["__init__"]))
