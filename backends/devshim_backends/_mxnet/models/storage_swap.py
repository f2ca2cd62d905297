"""Storage swaps: putting the memory of another array into an array object that a program already holds.

An MXNet array is a Python object with a handle, and the handle refers to the memory: when handles are swapped, everyone
who holds the object gets the new memory.  Other state of the handle has to be set again: a gradient's buffer belongs to
the array that it was marked for, and so does the flag that ``backward`` has written it since the last step
(``_fresh_grad``).

Gluon's own ``reset_ctx`` (2.0: ``reset_device``) makes new arrays, zeroes gradients, and loses that flag.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import mxnet as mx

from devshim_backends._mxnet.models.traversal import PLACE_MAP, PLACES
from devshim_backends._mxnet.native import NATIVE, where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Tensor

MOVED: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""The last move of a parameter to another device, as a growing number: it dates what was compiled before the move."""
_now = count(1)


def exchange(array: Tensor) -> Callable[[Tensor], None]:
    """Return a function that puts the memory of another array into this object."""
    return lambda new: _put(array, new)


def _put(array: Tensor, new: Tensor) -> None:
    other = new.detach()  # its own handle to the same memory: `new` may also be swapped into tied arrays
    array.handle, other.handle = other.handle, array.handle


class Held:
    """The array of a parameter, and the buffer of its gradient."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._data = parameter._data[0]
        self._gradient = None if parameter._grad is None else parameter._grad[0]
        self._fresh = False

    def write_data(self, new: Tensor) -> None:
        """Swap the values; the parameter is then on their device."""
        self._look()
        before = where(self._data)
        _put(self._data, new)
        if where(self._data) != before:
            self._settle()
        self._mark()

    def write_gradient(self, new: Tensor) -> None:
        """Swap the gradient."""
        self._look()
        _put(self._gradient, new)
        self._mark()

    def _look(self) -> None:
        """Record whether the gradient is fresh, as long as the array knows it."""
        if self._gradient is not None and where(self._data) == where(self._gradient):
            self._fresh = bool(self._data._fresh_grad)

    def _mark(self) -> None:
        """Register the gradient's buffer with MXNet, once both arrays are on one device."""
        if self._gradient is not None and where(self._data) == where(self._gradient):
            mx.autograd.mark_variables([self._data], [self._gradient], self._parameter.grad_req)
            self._data._fresh_grad = self._fresh

    def _settle(self) -> None:
        """Record the device in the parameter, as Gluon's ``_init_impl`` does."""
        native = native_of_array(self._data)
        known: list[list[int | None]] = [[], []]
        known[native.device_typeid & 1] = [None] * native.device_id + [0]
        setattr(self._parameter, PLACES, [native])
        setattr(self._parameter, PLACE_MAP, known)
        MOVED[self._parameter] = next(_now)


def native_of_array(x: Tensor) -> Any:
    """Return MXNet's device object for an array of either interface."""
    number = where(x)
    return NATIVE(NATIVE.devtype2str[number & 0xFFFFFFFF], number >> 32)


def arrays_in(path: str, held: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield every array in nested dictionaries, lists and tuples, with its path."""
    if isinstance(held, mx.nd.NDArray):
        yield path, held
    elif isinstance(held, dict):
        for key, value in held.items():
            yield from arrays_in(f"{path}.{key}" if path else str(key), value)
    elif isinstance(held, (list, tuple)):
        for i, value in enumerate(held):
            yield from arrays_in(f"{path}.{i}" if path else str(i), value)
