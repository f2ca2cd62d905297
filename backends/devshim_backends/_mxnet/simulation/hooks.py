"""The places in MXNet that all arrays and operators pass, watched while GPUs are simulated.

Requirements this module answers:

* Operators refuse arguments and outputs on different devices, as they do between a CPU and a card.  MXNet compares the
  kind of device alone, and simulated cards are CPUs.  Operators of the NumPy interface pass ``FunctionBase.__call__``,
  all others ``_imperative_invoke``, and ``backward`` its C function; a hybridized block compares by itself.
  ``copyto``, and with it ``x[:] = y``, crosses devices natively, and does so here.
* Arrays are counted when they are made, and when they die (`counting`).
* Ctrl-C that comes while an array dies is not lost, as it is in MXNet's ``__del__`` (1.9.1 and 2.0.0b1), a function in
  Python: there is one in C in its place (`chunks.free_in_c`).
* What the tape keeps is counted as long: while a recording runs, arguments are noted; so are gradients' buffers.
* Off again leaves MXNet as it was.
"""

from __future__ import annotations

import sys
from ctypes import byref, c_void_p
from functools import cache
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet._ctypes import ndarray as _invoking
from mxnet._ctypes.ndarray import NDArrayBase
from mxnet._ffi._ctypes.function import FunctionBase
from mxnet.base import _LIB, check_call

from devshim.devices.device import CPU
from devshim.errors import DeviceMismatchError, joined
from devshim_backends._mxnet.devices import read
from devshim_backends._mxnet.native import is_recording, place_number, where
from devshim_backends._mxnet.simulation import memory, storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devshim.devices.device import Device
    from devshim.simulation.memory import Cards
    from devshim_backends._mxnet.tensors import MxnetTensors


@joined
class MixedDevicesError(DeviceMismatchError, mx.MXNetError):  # type: ignore[misc]  # MXNet is Any to the type checker
    """What a simulated card answers in MXNet's place: caught as MXNet's error, and as devshim's."""


_backend: MxnetTensors | None = None

_init, _del = NDArrayBase.__init__, NDArrayBase.__del__
_free = storage.free_in_c(NDArrayBase)
_call, _invoke = FunctionBase.__call__, _invoking._imperative_invoke
_CachedOp = mx.nd._internal.CachedOp
_cached = _CachedOp.__call__
_mark, _backward = _LIB.MXAutogradMarkVariables, _LIB.MXAutogradBackwardEx


def watch(backend: MxnetTensors) -> None:
    """Watch from now on, for a backend that has cards."""
    global _backend
    _backend = backend
    NDArrayBase.__init__, NDArrayBase.__del__ = _watched_init, _free
    _CachedOp.__call__ = _watched_cached
    _LIB.MXAutogradMarkVariables, _LIB.MXAutogradBackwardEx = _watched_mark, _watched_backward
    set_operators(*operators())


def unwatch() -> None:
    """Put everything back."""
    global _backend
    _backend = None
    set_operators(*operators())
    _LIB.MXAutogradMarkVariables, _LIB.MXAutogradBackwardEx = _mark, _backward
    _CachedOp.__call__ = _cached
    NDArrayBase.__init__, NDArrayBase.__del__ = _init, _del


def operators() -> tuple[Any, Any]:
    """Return the two functions that all operators pass, as they are to be at present."""
    return (_call, _invoke) if _backend is None else (_watched_call, _watched_invoke)


def set_operators(call: Any, invoke: Any) -> None:
    """Put two functions in the place of those that all operators pass, in every module that has imported them."""
    FunctionBase.__call__ = call
    for module in _modules():
        module._imperative_invoke = invoke


@cache
def _modules() -> list[Any]:
    """The modules of MXNet that have imported the older interface's function: all do when MXNet is imported."""
    found = [module for name, module in list(sys.modules.items()) if name.startswith("mxnet.")]
    return [module for module in found if getattr(module, "_imperative_invoke", None) is _invoke]


# ---------------------------------------------------------------------- arrays
def _watched_init(self: Any, handle: Any, writable: bool = True) -> None:
    _init(self, handle, writable)
    if handle:  # neither None nor null
        memory.made(self)


# ---------------------------------------------------------------------- operators
def _watched_call(function: Any, *args: Any) -> Any:
    _check(args)
    return _call(function, *args)


def _watched_invoke(handle: Any, arrays: Any, keys: Any, vals: Any, out: Any, *rest: Any) -> Any:
    _check(arrays if out is None or handle == COPY else [*arrays, out])
    return _invoke(handle, arrays, keys, vals, out, *rest)


def _watched_cached(op: Any, *args: Any, **kwargs: Any) -> Any:
    memory.require_shown(x.handle.value for x in arrays_among(args))
    if is_recording():
        memory.may_outlive(x.handle for x in arrays_among(args))
    try:
        return _cached(op, *args, **kwargs)
    except mx.MXNetError as error:
        backend = _backend
        if backend is None or " to live on the same " not in str(error):  # as `CachedOp` refuses, by native names
            raise
        found = dict.fromkeys(type(backend).device_of(backend, x) for x in arrays_among(args))
        if len(found) != 2:
            raise
        raise _mixed(*found) from error


def _operator(name: str) -> int:
    found = c_void_p()
    check_call(_LIB.NNGetOpHandle(name.encode(), byref(found)))
    return found.value or 0


COPY = _operator("_copyto")


def _check(args: Iterable[Any]) -> None:
    """Refuse arrays on different devices, or on a card that has vanished; note what a recording will keep."""
    backend, found = _backend, [*arrays_among(args)]
    if backend is None or not found:
        return
    device_of = type(backend).device_of  # the backend's own may be `recompiling`'s, and this is no block that asks
    first = device_of(backend, found[0])
    for x in found[1:]:
        device = device_of(backend, x)
        if device is not first and not (CPU in (first, device) and _called_back()):
            raise _mixed(first, device)
    if first is not CPU:
        cards: Cards = backend.cards  # type: ignore[assignment]  # it has some
        cards[first.index].answer("an operator")
    if is_recording():
        memory.may_outlive(x.handle for x in found)


def _called_back() -> bool:
    """Whether MXNet has called Python back: for an operator written there, or a kvstore's optimizer.

    There it calls arrays the host's that are with the card's on real ones: ``NDArray(TBlob, dev_id)`` knows no number
    of a CPU, and a kvstore keeps what it sums for CPUs on the host.  What MXNet itself mislabels is not to be refused.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name.endswith(("_entry", "_handle")) and frame.f_globals.get("__name__") in _CALLING:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


_CALLING = ("mxnet.operator", "mxnet.autograd", "mxnet.kvstore.kvstore")


def _mixed(first: Device, second: Device) -> MixedDevicesError:
    return MixedDevicesError(
        f"an MXNet operator got arrays on {first} and {second}", f"move one of them first: ds.place(x, {str(first)!r})"
    )


def mixed_natives(first: Any, second: Any) -> MixedDevicesError:
    """Return the error of arrays on two of MXNet's own devices."""
    backend = _backend
    labelled = 0 if backend is None else backend.labelled
    return _mixed(*(read(place_number(each), labelled) or CPU for each in (first, second)))


def arrays_among(args: Iterable[Any]) -> Iterator[Any]:
    """Yield the arrays among an operator's arguments, and in lists among them."""
    for arg in args:
        if isinstance(arg, NDArrayBase):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from arrays_among(arg)


# ---------------------------------------------------------------------- the tape
class _Handle:
    """An array as MXNet's C interface takes it, for those who ask where it is."""

    def __init__(self, handle: int) -> None:
        self.handle = c_void_p(handle)


def _watched_mark(number: Any, variables: Any, reqs: Any, gradients: Any) -> Any:
    count = getattr(number, "value", number)
    _check_pairs(count, variables, gradients)
    memory.may_outlive(c_void_p(_address(each[i])) for each in (variables, gradients) for i in range(count))
    return _mark(number, variables, reqs, gradients)


def _watched_backward(number: Any, heads: Any, gradients: Any, *rest: Any) -> Any:
    memory.require_shown(_address(heads[i]) for i in range(getattr(number, "value", number)))
    if gradients:
        _check_pairs(getattr(number, "value", number), heads, gradients)
    return _backward(number, heads, gradients, *rest)


def _check_pairs(count: int, arrays: Any, gradients: Any) -> None:
    """Refuse a gradient that is not where its array is; an array may have none."""
    for i in range(count):
        device, gradient = _where(arrays[i]), _where(gradients[i])
        if gradient is not None and device is not gradient:
            raise _mixed(device, gradient)


def _where(handle: Any) -> Any:
    """The `Device` of an array that is only known by its handle; None for no array."""
    address, backend = _address(handle), _backend
    return read(where(_Handle(address)), backend.labelled) if address and backend is not None else None


def _address(handle: Any) -> int:
    return int(getattr(handle, "value", handle) or 0)
