"""Hooks in the functions that all arrays and operators of MXNet pass through, installed while GPUs are simulated.

Requirements that this module meets:

* Operators refuse arguments and outputs on different devices, as they do between a CPU and a card.  MXNet compares
  only the kind of device, and simulated GPUs are CPUs.  Operators of the NumPy interface go through
  ``FunctionBase.__call__``, all others through ``_imperative_invoke``, and ``backward`` through its C function; a
  hybridized block has a check of its own.  ``copyto``, and with it ``x[:] = y``, crosses devices natively, also here.
* Arrays are counted when they are made, and when they die (see `memory`).
* A Ctrl-C that arrives while an array dies is not lost.  MXNet's ``__del__`` (1.9.1 and 2.0.0b1) is a Python function
  that loses it, so one in C replaces it (`storage.free_in_c`).
* What the tape keeps is counted for as long: while a recording runs, arguments are noted, and so are gradient buffers.
* Switching simulation off restores MXNet completely.
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
    from devshim.simulation.memory import SimulatedDevices
    from devshim_backends._mxnet.tensors import MxnetTensors


@joined
class MixedDevicesError(DeviceMismatchError, mx.MXNetError):  # type: ignore[misc]  # MXNet is Any to the type checker
    """The error of a simulated GPU that replaces MXNet's: both ``except MXNetError`` and devshim's error catch it."""


_backend: MxnetTensors | None = None

_init, _del = NDArrayBase.__init__, NDArrayBase.__del__
_free = storage.free_in_c(NDArrayBase)
_call, _invoke = FunctionBase.__call__, _invoking._imperative_invoke
_CachedOp = mx.nd._internal.CachedOp
_cached = _CachedOp.__call__
_mark, _backward = _LIB.MXAutogradMarkVariables, _LIB.MXAutogradBackwardEx


def install(backend: MxnetTensors) -> None:
    """Install the hooks for a backend that has simulated GPUs."""
    global _backend
    _backend = backend
    NDArrayBase.__init__, NDArrayBase.__del__ = _watched_init, _free
    _CachedOp.__call__ = _watched_cached
    _LIB.MXAutogradMarkVariables, _LIB.MXAutogradBackwardEx = _watched_mark, _watched_backward
    set_operators(*operators())


def uninstall() -> None:
    """Uninstall the hooks."""
    global _backend
    _backend = None
    set_operators(*operators())
    _LIB.MXAutogradMarkVariables, _LIB.MXAutogradBackwardEx = _mark, _backward
    _CachedOp.__call__ = _cached
    NDArrayBase.__init__, NDArrayBase.__del__ = _init, _del


def operators() -> tuple[Any, Any]:
    """Return the current versions of the two functions that all operators go through."""
    return (_call, _invoke) if _backend is None else (_watched_call, _watched_invoke)


def set_operators(call: Any, invoke: Any) -> None:
    """Replace the two functions that all operators go through, in every module that has imported them."""
    FunctionBase.__call__ = call
    for module in _modules():
        module._imperative_invoke = invoke


@cache
def _modules() -> list[Any]:
    """Return the MXNet modules that have imported the older interface's function: all do when MXNet is imported."""
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
        if backend is None or " to live on the same " not in str(error):  # the error of `CachedOp`, with native names
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
    """Refuse arrays on different devices, or on a GPU that has vanished; record what a recording will keep."""
    backend, found = _backend, [*arrays_among(args)]
    if backend is None or not found:
        return
    device_of = type(backend).device_of  # the instance's own may be that of `recompiling`, and no block is asking here
    first = device_of(backend, found[0])
    for x in found[1:]:
        device = device_of(backend, x)
        if device is not first and not (CPU in (first, device) and _called_back()):
            raise _mixed(first, device)
    if first is not CPU:
        cards: SimulatedDevices = backend.simulated_devices  # type: ignore[assignment]  # it has some
        cards[first.index].check_alive("an operator")
    if is_recording():
        memory.may_outlive(x.handle for x in found)


def _called_back() -> bool:
    """Return True if MXNet has called back into Python: for an operator written there, or a kvstore's optimizer.

    In such a call MXNet labels arrays as the host's that would be on the card with real cards: ``NDArray(TBlob,
    dev_id)`` does not know the number of a CPU, and a kvstore keeps the sums for CPUs on the host.  Arrays that MXNet
    itself mislabels must not be refused.
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
    """Return the error for arrays on two native MXNet devices."""
    backend = _backend
    labelled = 0 if backend is None else backend.simulated_or_removed
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
    """An array as MXNet's C interface takes it, for functions that query its place."""

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
    """Refuse a gradient that is not on the device of its array; an array may have no gradient."""
    for i in range(count):
        device, gradient = _where(arrays[i]), _where(gradients[i])
        if gradient is not None and device is not gradient:
            raise _mixed(device, gradient)


def _where(handle: Any) -> Any:
    """Return the `Device` of an array that is only known by its handle; None without an array."""
    address, backend = _address(handle), _backend
    return read(where(_Handle(address)), backend.simulated_or_removed) if address and backend is not None else None


def _address(handle: Any) -> int:
    return int(getattr(handle, "value", handle) or 0)
