"""The texts of errors that PyTorch's C++ raises: they name a card instead of the device ``sim:1`` of its tensor.

C++ raises these errors from any function, below every hook of Python, so the one place that all of them pass is the
class of the error. Its slot for ``__init__`` is changed (see `slots`) while native names are on. Existing subclasses,
including devshim's own errors, keep their slots.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from devshim.simulation.patching import Patches
from devshim_backends._torch.simulation.internals.state import NAME
from devshim_backends._torch.simulation.native_names.internals import slots

__all__ = ["install", "with_cards_names"]

_CLASSES = (RuntimeError, NotImplementedError, TypeError)
"""The classes that C++ raises for a failed check, for an operator that a device lacks, and for a wrong argument."""
_DEVICE = re.compile(
    rf"(?<![\w.]){NAME}(?=:\d)|(?<=\btorch\.){NAME}(?=\.)|(?<=device type '){NAME}(?=')|(?<=found '){NAME}(?=')"
    rf"|(?<=parameter \(){NAME}(?=\))"
)
"""The device in PyTorch's error text: ``sim:1``, ``torch.sim.FloatTensor``, ``device type 'sim'``, ``found 'sim'``,
``parameter (sim)``.
"""
_TYPE = re.compile(rf"(?<=\[){NAME}(\w+)Type(?= \[)")
"""The type of a tensor with its shape in an error of autograd: ``[simFloatType [2]]``."""
_KEY = re.compile(
    r"PrivateUseOne\b|PrivateUse1(?=' backend)|(?<=Sparse)PrivateUse1\b|(?<=SparseCsr)PrivateUse1\b"
    r"|(?<=Quantized)PrivateUse1\b|(?<=NestedTensor)PrivateUse1\b"
)
"""The backend of simulated GPUs: ``PrivateUseOne``, ``from the 'PrivateUse1' backend``, ``QuantizedPrivateUse1``.

The plain name elsewhere is one in a list of all backends, which is the same on a card.
"""


def with_cards_names(text: str) -> str:
    """Return the text of an error with the names of cards."""
    return _KEY.sub("CUDA", _TYPE.sub(r"torch.cuda.\1Tensor", _DEVICE.sub("cuda", text)))


def _init(real: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement for the ``__init__`` of a class of errors."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if args and type(args[0]) is str and (NAME in args[0] or "PrivateUse" in args[0]):
            args = (with_cards_names(args[0]), *args[1:])
        real(self, *args, **kwargs)

    return __init__


def install(patches: Patches) -> None:
    """Name CUDA devices in errors that C++ code raises."""
    for each in _CLASSES:
        slots.replace(patches, each, slots.INIT, _init(vars(each)["__init__"]))
