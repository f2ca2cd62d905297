"""Wrappers of MXNet functions that check devices and count memory while GPUs are simulated.

A simulated GPU is a CPU for MXNet, so MXNet does not limit its memory or refuse to mix it with others. All arrays
and operators go through a few functions of MXNet. `install` replaces them, and `uninstall` restores them:

* ``NDArrayBase.__init__`` makes every array: the wrapper counts its memory (see `memory`).
* ``copy.copy`` and ``copy.deepcopy`` of an array go through saved bytes, which a build without CUDA loads to the host:
  ``NDArrayBase.__deepcopy__`` and ``__copy__`` are added, and copy an array on its device, as on a card.
* ``NDArrayBase.__del__`` frees every array. MXNet's own (1.9.1 and 2.0.0b1) is a Python function, and loses a Ctrl-C
  that arrives in it: the replacement runs no Python (see `storage.free_in_c`).
* ``FunctionBase.__call__`` runs the operators of the NumPy interface, and ``_imperative_invoke`` all others: the
  wrappers check that arguments and outputs are on one device (see `device_rules`). ``copyto``, and with it
  ``x[:] = y``, may cross devices, as it does on cards.
* ``CachedOp.__call__`` runs hybridized blocks. It compares devices natively: the wrapper makes its error name
  simulated GPUs.
* Both of these also compute in float32 what has no kernel for float16 on the CPU (see ``internals/half_operators.py``
  and ``half_graphs.py``).
* ``MXAutogradMarkVariables`` and ``MXAutogradBackwardEx`` attach and compute gradients: the wrappers check that each
  gradient is on the device of its array.
* ``MXNDArrayToDLPack`` exports memory: the replacement refuses that of a simulated GPU. DLPack would call it the
  host's, the importer would compute there, and its writes would not wait for MXNet's reads.

The tape of a recording keeps memory that Python has released. So while one runs, the wrappers report the arguments
to `memory.track_chunks`.
"""

from __future__ import annotations

import sys
from ctypes import byref, c_void_p
from functools import cache
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet._ctypes.ndarray import NDArrayBase
from mxnet._ffi._ctypes.function import FunctionBase
from mxnet.base import _LIB, check_call

from devshim.devices.device import CPU
from devshim.errors import OutOfMemoryError, UnsupportedError
from devshim_backends._mxnet.internals import numpy_operators
from devshim_backends._mxnet.internals.native import IS_2, is_recording, iter_arrays, numpy_shapes
from devshim_backends._mxnet.simulation import memory, storage
from devshim_backends._mxnet.simulation.device_rules import (
    MixedDevicesError,
    address_in,
    check_gradients,
    check_operands,
    device_of_handle,
    mixed_devices,
)
from devshim_backends._mxnet.simulation.internals import half_graphs, half_operators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from devshim_backends._mxnet.tensors import MxnetTensors

_backend: MxnetTensors | None = None
TO_LIBRARY: Callable[[str], str] | None = None
"""Translates the text of a device in an operator's arguments, while native names are on (see `native_names`)."""

_init, _del = NDArrayBase.__init__, NDArrayBase.__del__
_free = storage.free_in_c(NDArrayBase)
_call, _invoke = numpy_operators.call, numpy_operators.invoke
_CachedOp = mx.nd._internal.CachedOp
_call_cached = _CachedOp.__call__
_export = _LIB.MXNDArrayToDLPack
_mark, _backward = _LIB.MXAutogradMarkVariables, _LIB.MXAutogradBackwardEx


def install(backend: MxnetTensors) -> None:
    """Install the wrappers for a backend that has simulated GPUs."""
    global _backend
    _backend = backend
    NDArrayBase.__init__, NDArrayBase.__del__ = _init_counted, _free
    NDArrayBase.__copy__, NDArrayBase.__deepcopy__ = _copied, _copied
    _CachedOp.__call__ = _call_cached_checked
    _LIB.MXAutogradMarkVariables, _LIB.MXAutogradBackwardEx = _mark_checked, _backward_checked
    _LIB.MXNDArrayToDLPack = _export_checked
    set_operators(*operators())
    half_graphs.install(backend)


def uninstall() -> None:
    """Restore MXNet's own functions."""
    global _backend
    _backend = None
    half_graphs.uninstall()
    set_operators(*operators())
    _LIB.MXNDArrayToDLPack = _export
    _LIB.MXAutogradMarkVariables, _LIB.MXAutogradBackwardEx = _mark, _backward
    _CachedOp.__call__ = _call_cached
    del NDArrayBase.__copy__, NDArrayBase.__deepcopy__
    NDArrayBase.__init__, NDArrayBase.__del__ = _init, _del


def operators() -> tuple[Any, Any]:
    """Return the two functions that run all operators: the wrappers if installed, otherwise `numpy_operators`."""
    return (_call, _invoke) if _backend is None else (_call_checked, _invoke_checked)


def set_operators(call: Any, invoke: Any) -> None:
    """Replace the two functions that run all operators, in every module that has imported them."""
    FunctionBase.__call__ = call
    for module in _modules():
        module._imperative_invoke = invoke


@cache
def _modules() -> list[Any]:
    """Return the MXNet modules that have imported the older interface's function: all do when MXNet is imported."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("mxnet.")]
    return [
        module for module in modules if getattr(module, "_imperative_invoke", None) is numpy_operators.NATIVE_INVOKE
    ]


def mixed_native_devices(first: Any, second: Any) -> MixedDevicesError:
    """Return the error for arrays on two native MXNet devices."""
    backend = _backend
    found = [None if backend is None else backend.from_native(native) for native in (first, second)]
    return mixed_devices(*(device or CPU for device in found))


# ---------------------------------------------------------------------- arrays
def _init_counted(self: Any, handle: Any, writable: bool = True) -> None:
    _init(self, handle, writable)
    if handle:  # not None, and not null
        try:
            memory.count_array(self)
        except OutOfMemoryError:
            # MXNet may have begun to compute the array, and lack memory for it, too. It would raise that from a later
            # `waitall`: waiting here takes its error away.
            _LIB.MXNDArrayWaitToRead(self.handle)
            raise


def _copied(x: Any, memo: Any = None) -> Any:
    """Return a copy of an array on its device, without a gradient."""
    with mx.autograd.pause(), numpy_shapes():
        return x.copyto(x.device if IS_2 else x.ctx)


def _export_checked(handle: Any, out: Any) -> Any:
    backend = _backend
    device = None if backend is None else device_of_handle(backend, handle)
    if device is not None and device is not CPU:
        msg = f"the array is on the simulated {device}, which DLPack cannot name"
        copy = "copy it first: x.copyto(mx.cpu())"
        raise UnsupportedError(msg, copy if TO_LIBRARY is not None else f"use ds.convert(x, 'torch'), or {copy}")
    return _export(handle, out)


# ---------------------------------------------------------------------- operators
def _operator(name: str) -> int:
    """Return the address of an operator in MXNet's registry."""
    handle = c_void_p()
    check_call(_LIB.NNGetOpHandle(name.encode(), byref(handle)))
    return handle.value or 0


COPY = _operator("_copyto")


def _call_checked(function: Any, *args: Any) -> Any:
    _check(args)
    translate = TO_LIBRARY
    if translate is not None:
        args = tuple(translate(x) if type(x) is str else x for x in args)
    dtype = half_operators.FUNCTIONS.get(function)
    if dtype is not None and _is_half_on_gpu([*iter_arrays(args)]):
        has_out = isinstance(args[-1], mx.nd.NDArray) and len(args) == 3
        given, out, end = (args[:-1], args[-1], (None,)) if has_out else (args, None, ())
        return half_operators.compute(lambda wide: _call(function, *wide, *end), dtype, given, out)
    if function in half_graphs.LOOPS and _has_half_on_gpu([*iter_arrays(args)]):
        args, _kept = half_graphs.widen_loop(function, args)
    return _call(function, *args)


def _invoke_checked(handle: Any, arrays: Any, keys: Any, vals: Any, out: Any, *rest: Any) -> Any:
    _check(arrays if out is None or handle == COPY else [*arrays, out])
    translate = TO_LIBRARY
    if translate is not None and "ctx" in keys:
        vals = [translate(str(value)) if key == "ctx" else value for key, value in zip(keys, vals, strict=True)]
    dtype = half_operators.HANDLES.get(handle)
    if dtype is not None and _is_half_on_gpu(arrays):
        return half_operators.compute(lambda wide: _invoke(handle, wide, keys, vals, None, *rest), dtype, arrays, out)
    return _invoke(handle, arrays, keys, vals, out, *rest)


def _is_half_on_gpu(arrays: Sequence[Any]) -> bool:
    """Return True if an operator without a kernel for float16 gets it on a simulated GPU."""
    return _is_on_gpu(arrays) and half_operators.is_needed(arrays)


def _has_half_on_gpu(arrays: Sequence[Any]) -> bool:
    """Return True if a loop or branch gets float16 on a simulated GPU, and is not being recorded."""
    return _is_on_gpu(arrays) and half_operators.has_float16(arrays)


def _is_on_gpu(arrays: Sequence[Any]) -> bool:
    backend = _backend
    return backend is not None and bool(arrays) and type(backend).device_of(backend, arrays[0]) is not CPU


def _check(args: Iterable[Any]) -> None:
    """Check the arrays among an operator's arguments, and report what a recording will keep."""
    backend, arrays = _backend, [*iter_arrays(args)]
    if backend is None or not arrays:
        return
    check_operands(backend, arrays)
    if is_recording():
        memory.track_chunks(x.handle for x in arrays)


def _call_cached_checked(op: Any, *args: Any, **kwargs: Any) -> Any:
    memory.require_present(x.handle.value for x in iter_arrays(args))
    if is_recording():
        memory.track_chunks(x.handle for x in iter_arrays(args))
    try:
        backend = _backend
        wide = op if backend is None or not args or args[0] is None else half_graphs.with_casts(backend, op, args)
        return _call_cached(wide, *args, **kwargs)
    except mx.MXNetError as error:
        backend = _backend
        if backend is None or " to live on the same " not in str(error):  # the error of `CachedOp`, with native names
            raise
        devices = dict.fromkeys(type(backend).device_of(backend, x) for x in iter_arrays(args))
        if len(devices) != 2:
            raise
        raise mixed_devices(*devices) from error


# ---------------------------------------------------------------------- gradients
def _mark_checked(number: Any, variables: Any, reqs: Any, gradients: Any) -> Any:
    backend, count = _backend, getattr(number, "value", number)
    if backend is not None:
        check_gradients(backend, count, variables, gradients)
    memory.track_chunks(c_void_p(address_in(handles[i])) for handles in (variables, gradients) for i in range(count))
    return _mark(number, variables, reqs, gradients)


def _backward_checked(number: Any, heads: Any, gradients: Any, *rest: Any) -> Any:
    backend, count = _backend, getattr(number, "value", number)
    memory.require_present(address_in(heads[i]) for i in range(count))
    if gradients and backend is not None:
        check_gradients(backend, count, heads, gradients)
    return _backward(number, heads, gradients, *rest)
