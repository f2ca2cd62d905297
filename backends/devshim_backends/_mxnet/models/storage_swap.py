"""Storage swaps: an existing array object gets the memory of another array.

An MXNet array is a Python object with a handle, and the handle refers to the memory: when handles are swapped, every
reference to the object sees the new memory. Other state of the handle has to be set again: a gradient's buffer belongs
to the array that it was attached to, and so does the flag that ``backward`` has written it since the last step
(``_fresh_grad``).

Gluon's own ``reset_ctx`` (2.0: ``reset_device``) makes new arrays, zeroes gradients, and loses that flag.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import mxnet as mx

from devshim.contract.blocks import join_path
from devshim_backends._mxnet.internals.native import IS_2, device_code
from devshim_backends._mxnet.models.traversal import DEVICE_MAP_ATTRIBUTE, DEVICES_ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Tensor

LAST_MOVE: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""The last move of a parameter to another device, as a growing number: it dates what was compiled before the move."""
_now = count(1)


def swap_storage(array: Tensor, new: Tensor) -> None:
    """Give an array the memory of another array."""
    other = new.detach()  # its own handle to the same memory: `new` may also be swapped into tied arrays
    array.handle, other.handle = other.handle, array.handle


class ParameterArrays:
    """The array of a parameter, and the buffer of its gradient."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._data = parameter._data[0]
        self._gradient = None if parameter._grad is None else parameter._grad[0]
        self._fresh = False

    def swap_data(self, new: Tensor) -> None:
        """Swap the values; the parameter is then on their device."""
        self._read_freshness()
        before = device_code(self._data)
        swap_storage(self._data, new)
        if device_code(self._data) != before:
            self._record_device()
        self._attach_gradient()

    def swap_gradient(self, new: Tensor) -> None:
        """Swap the gradient."""
        self._read_freshness()
        swap_storage(self._gradient, new)
        self._attach_gradient()

    def _read_freshness(self) -> None:
        """Record whether the gradient is fresh, as long as the array has this information."""
        if self._gradient is not None and device_code(self._data) == device_code(self._gradient):
            self._fresh = bool(self._data._fresh_grad)

    def _attach_gradient(self) -> None:
        """Register the gradient's buffer with MXNet, once both arrays are on one device."""
        if self._gradient is not None and device_code(self._data) == device_code(self._gradient):
            mx.autograd.mark_variables([self._data], [self._gradient], self._parameter.grad_req)
            self._data._fresh_grad = self._fresh

    def _record_device(self) -> None:
        """Record the device in the parameter, as Gluon's ``_init_impl`` does."""
        native = native_device(self._data)
        known: list[list[int | None]] = [[], []]
        known[native.device_typeid & 1] = [None] * native.device_id + [0]
        setattr(self._parameter, DEVICES_ATTRIBUTE, [native])
        setattr(self._parameter, DEVICE_MAP_ATTRIBUTE, known)
        LAST_MOVE[self._parameter] = next(_now)


def native_device(x: Tensor) -> Any:
    """Return MXNet's device object for an array of either interface."""
    return x.device if IS_2 else x.ctx


def arrays_in(path: str, values: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield every array in nested dictionaries, lists and tuples, with its path."""
    if isinstance(values, mx.nd.NDArray):
        yield path, values
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from arrays_in(join_path(path, str(key)), value)
    elif isinstance(values, (list, tuple)):
        for i, value in enumerate(values):
            yield from arrays_in(join_path(path, str(i)), value)
