"""Moving arrays of several devices to one device for an operator, while a model over several devices runs.

A residual connection or a concatenation is code of the block that contains the parts, so its arrays can be on different
devices.  The operator then computes on one of them: that of the array to be written, if there is one; otherwise that of
a parameter among the operator's arrays; otherwise that of the part of the model that ran last.  All other arrays are
copied there, and gradients flow back.  Without this, where both devices are cards, MXNet would compute with the arrays
as they are (see `capabilities`), and read unrelated memory.

All operators go through the two functions that `simulation.hooks` wraps.  They are replaced as long as such a model
runs, in any thread, and handle arrays only in a thread in which one runs.
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
    """The state of the forward pass over several devices that is running in this thread."""

    places: frozenset[Any] = frozenset()
    """MXNet's devices of the model's parts; empty while no model runs."""
    parameters: frozenset[int] = frozenset()
    """The addresses of the parameters' arrays."""
    last: Any = None
    """The device of the part that ran last."""

    def ran(self, native: Any) -> None:
        """Record that a part on a device runs."""
        if self.places:
            self.last = native

    def begin(self, model: Any) -> None:
        """Record that a model starts to run."""
        found = [parameter for _, parameter in parameters_of(model)]
        self.places = frozenset(place for each in found for place in places_of(each))
        self.parameters = frozenset(id(each._data[0]) for each in found if each._data is not None)
        self.last = None

    def end(self) -> None:
        """Record that the model has run."""
        self.places, self.parameters, self.last = frozenset(), frozenset(), None


RUN = Run()
_lock = threading.Lock()
_meetings = 0


class Meeting:
    """A context in which operators accept arrays of several devices."""

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
    """Return the same nested lists and tuples with their arrays on a device: all, or only those of some devices."""
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
    """Return an operator's arguments, with the arrays among them on one device."""
    found = list(hooks.arrays_among(args))
    written = list(hooks.arrays_among([out]))
    if len({where(x) for x in (*found, *written)}) < 2 or is_deferred():
        return args
    native = _decided(found, written)
    return args if native is None else tuple(carried(arg, native) for arg in args)


def _decided(found: list[Tensor], written: list[Tensor]) -> Any:
    """Return the device where an operator must compute, or None to let MXNet decide."""
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
    """Refuse an ``out=`` on another device: the operator wrote to a copy of it, which the program cannot see.

    Raises:
        MixedDevicesError: The result is such a copy.
    """
    for x, now in zip(args, brought, strict=True):
        if result is now and now is not x and isinstance(now, mx.nd.NDArray):
            raise hooks.mixed_natives(native_of_array(now), native_of_array(x))
