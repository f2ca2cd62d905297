"""Putting another array's memory under an array that others hold.

An array of MXNet is a Python object with a handle, and the handle refers to the memory: exchanged, it takes everybody
who holds the object along.  What a handle had besides has to be made anew: a gradient's buffer belongs to the array it
was marked for, and whether ``backward`` has written it since the last step (``_fresh_grad``) is noted there, too.

Gluon's own ``reset_ctx`` (2.0: ``reset_device``) makes new arrays, zeroes gradients, and forgets that they are fresh.
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
"""When a parameter last went to another device, as a number that grows: for what was compiled before that."""
_now = count(1)


def exchange(array: Tensor) -> Callable[[Tensor], None]:
    """Return what puts another array's memory under this object."""
    return lambda new: _put(array, new)


def _put(array: Tensor, new: Tensor) -> None:
    other = new.detach()  # a handle of its own to the same memory: `new` may be put under ties as well
    array.handle, other.handle = other.handle, array.handle


class Held:
    """The array of a parameter, and the buffer of its gradient."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._data = parameter._data[0]
        self._gradient = None if parameter._grad is None else parameter._grad[0]
        self._fresh = False

    def write_data(self, new: Tensor) -> None:
        """Exchange the values; the parameter is then where they are."""
        self._look()
        before = where(self._data)
        _put(self._data, new)
        if where(self._data) != before:
            self._settle()
        self._mark()

    def write_gradient(self, new: Tensor) -> None:
        """Exchange the gradient."""
        self._look()
        _put(self._gradient, new)
        self._mark()

    def _look(self) -> None:
        """Note whether the gradient is fresh, as long as the array knows."""
        if self._gradient is not None and where(self._data) == where(self._gradient):
            self._fresh = bool(self._data._fresh_grad)

    def _mark(self) -> None:
        """Tell MXNet which buffer the gradient goes to, once both are on one device."""
        if self._gradient is not None and where(self._data) == where(self._gradient):
            mx.autograd.mark_variables([self._data], [self._gradient], self._parameter.grad_req)
            self._data._fresh_grad = self._fresh

    def _settle(self) -> None:
        """Note in the parameter which device it is on, as Gluon's ``_init_impl`` does."""
        native = native_of_array(self._data)
        known: list[list[int | None]] = [[], []]
        known[native.device_typeid & 1] = [None] * native.device_id + [0]
        setattr(self._parameter, PLACES, [native])
        setattr(self._parameter, PLACE_MAP, known)
        MOVED[self._parameter] = next(_now)


def native_of_array(x: Tensor) -> Any:
    """Return MXNet's own object for the device of an array, also of one of another interface."""
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
