"""A patch that labels the arrays of operators written in Python with the simulated GPU that they are on.

MXNet calls ``CustomOp.forward``, ``CustomOp.backward`` and ``autograd.Function.backward`` with new arrays in the memory
of the operator's arrays: ``NDArray(TBlob, dev_id)``. That C++ constructor (1.9.1, 2.0.0b1) uses ``dev_id`` only for a
GPU, and labels every CPU as ``cpu(0)``. On a real GPU these arrays are on that GPU, so here the index of the CPU is
written into each of them before Python's array is made (`storage.set_cpu`).

* ``MXCustomFunctionRecord`` records a ``Function`` with its inputs and outputs, which have the devices of its
  gradients. The replacement puts a function of devshim before the recorded ``backward_entry``.
* The entries of a ``CustomOp`` know its device as ``ctx``. They cast each handle, so ``mxnet.operator.cast`` is
  replaced: operators may have been registered before the simulation began.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import CFUNCTYPE, c_int
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet.autograd import Function
from mxnet.base import _LIB, NDArrayHandle

from devshim.devices.device import CPU
from devshim_backends._mxnet.simulation import memory
from devshim_backends._mxnet.simulation.device_rules import address_in, device_of_handle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.devices.device import Device
    from devshim_backends._mxnet.tensors import MxnetTensors

_backend: MxnetTensors | None = None
_record, _cast = _LIB.MXCustomFunctionRecord, mx.operator.cast


def install(backend: MxnetTensors) -> None:
    """Label the arrays of operators that are written in Python from now on."""
    global _backend
    _backend = backend
    _LIB.MXCustomFunctionRecord = _record_labelling
    mx.operator.cast = _cast_labelled


def uninstall() -> None:
    """Restore MXNet's own functions."""
    global _backend
    _backend = None
    mx.operator.cast = _cast
    _LIB.MXCustomFunctionRecord = _record


def _label(handle: Any, device: Device | None) -> None:
    """Write the device of an array that MXNet has just made into it, if that is a simulated GPU."""
    if device is not None and device is not CPU and (address := address_in(handle)):
        memory.label_borrowed(address, device.index)


# ---------------------------------------------------------------------- autograd.Function
def _record_labelling(inputs: Any, input_handles: Any, outputs: Any, output_handles: Any, info: Any) -> Any:
    """Record a function whose ``backward`` gets each gradient on the device of its output."""
    backend = _backend
    assert backend is not None
    devices = [
        device_of_handle(backend, handles[i])
        for count, handles in ((outputs, output_handles), (inputs, input_handles))
        for i in range(count.value)
    ]
    if any(device is not CPU for device in devices):
        _label_gradients(info._obj, devices)
    return _record(inputs, input_handles, outputs, output_handles, info)


def _label_gradients(callbacks: Any, devices: Sequence[Device | None]) -> None:
    """Put a function that labels the gradients before the one that computes them, in a ``MXCallbackList``."""
    backward = ctypes.cast(callbacks.callbacks[0], Function._bwd_functype)

    def label_and_run(outputs: int, inputs: int, handles: Any, *rest: Any) -> Any:
        for i, device in enumerate(devices):
            _label(handles[i], device)
        return backward(outputs, inputs, handles, *rest)

    labelling = Function._bwd_functype(label_and_run)
    callbacks.devshim_kept = labelling  # MXNet keeps the list until it deletes the function
    callbacks.callbacks[0] = ctypes.cast(labelling, CFUNCTYPE(c_int))


# ---------------------------------------------------------------------- CustomOp
def _cast_labelled(value: Any, kind: Any) -> Any:
    """Replace ``cast`` in ``mxnet.operator``, where the entries of a custom operator cast the handles of arrays."""
    backend = _backend
    if kind is NDArrayHandle and backend is not None:
        device = sys._getframe(1).f_locals.get("ctx")
        if device is not None:
            _label(value, backend.from_native(device))
    return _cast(value, kind)
