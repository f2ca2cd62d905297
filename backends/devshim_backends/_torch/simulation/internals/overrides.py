"""Replacements of PyTorch's functions, methods and properties, which a ``__torch_function__`` gets as PyTorch's own.

Libraries have tables whose keys are PyTorch's functions, and PyTorch passes the function that it finds under a name to
the ``__torch_function__`` of an argument or a mode. A replacement is equal to the function that it replaces. Therefore
a table that was made before the replacement works, too.
"""

from __future__ import annotations

import copy
import ctypes
import functools
from collections.abc import Callable
from operator import attrgetter
from types import FunctionType
from typing import Any

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

__all__ = ["Override", "as_method", "as_property", "with_handlers"]

_bind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.py_object)
"""The type of ``__get__`` in C, of an attribute, an instance or None, and a class."""
_slot = ctypes.pythonapi["PyType_GetSlot"]
_slot.restype, _slot.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
_DESCR_GET = 54
"""The number of ``__get__`` in Python's stable ABI (``Py_tp_descr_get``)."""


class Override(staticmethod):  # type: ignore[type-arg]
    """A function that replaces another one, and is equal to it.

    The base class calls the function in C.

    Args:
        function: The function to call.
        replaced: PyTorch's function, or another replacement of it.
    """

    replaced: Any

    def __init__(self, function: Callable[..., Any], replaced: Any) -> None:
        super().__init__(function)
        self.replaced = replaced.replaced if isinstance(replaced, Override) else replaced
        self._kind = type(self.replaced)
        for name in ("__name__", "__qualname__", "__doc__", "__module__", "__self__"):
            if hasattr(self.replaced, name):
                setattr(self, name, getattr(self.replaced, name))

    __class__ = property(attrgetter("_kind"))
    """The type of PyTorch's function, by which ``isinstance`` recognizes a function."""

    def __get__(self, instance: object, owner: type | None = None) -> Override:
        """Return the function itself as an attribute of a class, as for every function in C."""
        return self

    def __eq__(self, other: object) -> bool:
        """Return True for PyTorch's function and for every replacement of it."""
        return bool(self.replaced == (other.replaced if isinstance(other, Override) else other))

    def __hash__(self) -> int:
        """Return the hash of PyTorch's function."""
        return hash(self.replaced)

    def __repr__(self) -> str:
        """Return the text of PyTorch's function."""
        return repr(self.replaced)

    def __copy__(self) -> Override:
        """Return the same function, as for every function."""
        return self

    def __deepcopy__(self, memo: Any) -> Override:
        """Return the same function, as for every function."""
        return self

    def __reduce__(self) -> Any:
        """Let ``pickle`` store PyTorch's function, so that the file can be read without devshim."""
        return copy.copy, (self.replaced,)


class _Method(Override):
    """A method of a class of tensors, which C looks up and binds like a function.

    PyTorch reads the attribute while it calls a ``__torch_function__``. It takes an exception there, such as that of
    Ctrl-C, for a fault of its own.
    """

    __get__: Any = _bind(_slot(FunctionType, _DESCR_GET))

    def __reduce__(self) -> Any:
        """Let ``pickle`` store the name in `torch.Tensor`: PyTorch stores that of its base class, which keeps its own.

        The file can be read without devshim, and with it the replacement is found.
        """
        return getattr, (Tensor, self.__name__)


class _Property(property):
    """A property whose ``__get__``, as an attribute, is equal to that of the property that it replaces."""


def as_method(function: Callable[..., Any], replaced: Any) -> Any:
    """Return a method for a class of tensors; as an attribute of the class it is an `Override`."""
    return _Method(function, replaced)


def as_property(get: Callable[[Any], Any], replaced: Any, set: Callable[[Any, Any], None] | None = None) -> property:
    """Return a property that replaces one of a class of tensors."""
    made = _Property(get, set)
    vars(made)["__get__"] = Override(lambda instance, owner=None: get(instance), replaced.__get__)
    return made


def with_handlers(function: Callable[..., Any], name: str, owner: type) -> Callable[..., Any]:
    """Return a method that calls the ``__torch_function__`` of a tensor or a mode, as PyTorch's methods do."""

    @functools.wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function_unary(self):
            return handle_torch_function(getattr(owner, name), (self,), self, *args, **kwargs)
        return function(self, *args, **kwargs)

    return method
