"""Letting arrays of several devices meet in one operator, while a model over several devices runs.

A residual connection or a concatenation is code of the block that has the parts.  There an array to be written stays
where it is and decides, else a parameter among the operator's arrays, else the part of the model that ran last; all
others are carried there, and gradients flow back.  Without that MXNet would compute with them as they are where both
devices are cards (`gaps`), and read foreign memory.

All operators pass the two functions that `watching` watches; they are exchanged as long as such a model runs, in any
thread, and look only at arrays of a thread in which one does.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.tensors import activations
from devshim_backends._mxnet.models.storage_swap import native_of_array
from devshim_backends._mxnet.models.traversal import parameters_of, places_of
from devshim_backends._mxnet.native import where
from devshim_backends._mxnet.simulation import hooks
from devshim_backends._mxnet.tracing import is_deferred

if TYPE_CHECKING:
    from collections.abc import Iterable

    from devshim.contract.backend import Tensor


class Run(threading.local):
    """The forward pass over several devices that is running in this thread."""

    places: frozenset[Any] = frozenset()
    """MXNet's devices of the model's parts; none while none is running."""
    parameters: frozenset[int] = frozenset()
    """The addresses of the parameters' arrays."""
    last: Any = None
    """The device of the part that ran last."""

    def ran(self, native: Any) -> None:
        """Note that a part on a device runs."""
        if self.places:
            self.last = native

    def begin(self, model: Any) -> None:
        """Note that a model runs."""
        found = [parameter for _, parameter in parameters_of(model)]
        self.places = frozenset(place for each in found for place in places_of(each))
        self.parameters = frozenset(id(each._data[0]) for each in found if each._data is not None)
        self.last = None

    def end(self) -> None:
        """Note that it has run."""
        self.places, self.parameters, self.last = frozenset(), frozenset(), None


RUN = Run()
_lock = threading.Lock()
_meetings = 0


class Meeting:
    """A block in which arrays can meet."""

    def __enter__(self) -> None:
        global _meetings
        with _lock:
            _meetings += 1
            hooks.set_operators(_call, _invoke)

    def __exit__(self, *failure: object) -> None:
        global _meetings
        with _lock:
            _meetings -= 1
            if not _meetings:
                hooks.set_operators(*hooks.operators())


def carried(held: Any, native: Any, only: frozenset[Any] | None = None) -> Any:
    """Return the same nested lists and tuples with every array in them on a device, or those alone of some devices."""
    if isinstance(held, (list, tuple)):
        return type(held)([carried(each, native, only) for each in held])
    if not isinstance(held, mx.nd.NDArray) or (only is not None and native_of_array(held) not in only):
        return held
    return activations.carry(held, native)


def _call(function: Any, *args: Any) -> Any:
    brought = _brought(args, None) if RUN.places else args
    result = hooks.operators()[0](function, *brought)
    if brought is not args:
        _refuse_lost(result, args, brought)
    return result


def _invoke(handle: Any, arrays: Any, keys: Any, vals: Any, out: Any, *rest: Any) -> Any:
    if RUN.places and handle != hooks.COPY:
        arrays = list(_brought(tuple(arrays), out))
    return hooks.operators()[1](handle, arrays, keys, vals, out, *rest)


def _brought(args: tuple[Any, ...], out: Any) -> tuple[Any, ...]:
    """An operator's arguments, with the arrays among them on one device."""
    found = list(hooks.arrays_among(args))
    written = list(hooks.arrays_among([out]))
    if len({where(x) for x in (*found, *written)}) < 2 or is_deferred():
        return args
    native = _decided(found, written)
    return args if native is None else tuple(carried(arg, native) for arg in args)


def _decided(found: list[Tensor], written: list[Tensor]) -> Any:
    """The device where an operator shall compute, or None to leave it to MXNet."""
    twice = [x for i, x in enumerate(found) if any(x is each for each in found[:i])]  # `x += y` writes to an argument
    for x in (*written, *twice):
        return native_of_array(x)
    for x in found:
        if id(x) in RUN.parameters:
            RUN.ran(native_of_array(x))
            return native_of_array(x)
    places = [native_of_array(x) for x in found]
    if RUN.last in places:
        return RUN.last
    return next((place for place in reversed(places) if place in RUN.places), None)


def _refuse_lost(result: Any, args: Iterable[Any], brought: Iterable[Any]) -> None:
    """Refuse an ``out=`` on another device: what was written is a copy of it, which nobody has.

    Raises:
        MixedDevicesError: It was one.
    """
    for x, now in zip(args, brought, strict=True):
        if result is now and now is not x and isinstance(now, mx.nd.NDArray):
            raise hooks.mixed_natives(native_of_array(now), native_of_array(x))
