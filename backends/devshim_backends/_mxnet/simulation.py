"""Simulated GPUs: MXNet's ``cpu(1)`` to ``cpu(N)`` stand for ``gpu:0`` to ``gpu:N-1``.

Requirements this module answers:

* They hold real data in memory of their own, copies between them are copies, and Gluon refuses inputs from another one
  by itself.  They can be switched on and off at any time, because MXNet starts nothing.
* Operators refuse arguments from different devices, as they do between a CPU and a card.  MXNet compares the kind of
  device alone, and all of these are CPUs, so the two doors all operators go through are watched while GPUs are
  simulated: ``FunctionBase.__call__`` (operators of the NumPy interface) and ``_imperative_invoke`` (all others).
  ``copyto`` and ``x[:] = y`` cross devices natively, and do so here.
* Off again leaves MXNet as it was.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet._ctypes import ndarray as _invoking
from mxnet._ffi._ctypes.function import FunctionBase

from devshim import _refusals
from devshim.errors import DeviceMismatchError
from devshim_backends._mxnet.devices import HAS_CUDA
from devshim_backends._mxnet.tensors import MxnetTensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devshim._cards import Fault
    from devshim.device import Device


class MixedDevicesError(DeviceMismatchError, mx.MXNetError):  # type: ignore[misc]  # MXNet is Any to the type checker
    """What a simulated card answers in MXNet's place: caught as MXNet's error, and as devshim's."""


class MxnetSimulation(MxnetTensors):
    """The room of simulation."""

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        if memory is not None and gpus:
            raise _refusals.unsupported(self, "simulate_memory")
        if gpus and HAS_CUDA and not self.simulated and (real := self.count("gpu")):
            raise _refusals.real_cards(self, real)
        with _LOCK:
            self.simulated = gpus
            self._devices = {}
            _watch(self) if gpus else _unwatch()


_LOCK = Lock()
_call = FunctionBase.__call__
_invoke = _invoking._imperative_invoke
_backend: MxnetTensors | None = None


def _watch(backend: MxnetTensors) -> None:
    global _backend
    _backend = backend
    FunctionBase.__call__ = _watched_call
    _exchange(_invoke, _watched_invoke)


def _unwatch() -> None:
    global _backend
    _exchange(_watched_invoke, _invoke)
    FunctionBase.__call__ = _call
    _backend = None


def _exchange(old: object, new: object) -> None:
    """Replace a function in every module of MXNet that has imported it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("mxnet.") and getattr(module, "_imperative_invoke", None) is old:
            module._imperative_invoke = new  # type: ignore[attr-defined]


def _watched_call(function: Any, *args: Any) -> Any:
    _refuse_mixed(args)
    return _call(function, *args)


def _watched_invoke(handle: Any, arrays: Any, *rest: Any) -> Any:
    _refuse_mixed(arrays)
    return _invoke(handle, arrays, *rest)


def _refuse_mixed(args: Iterable[Any]) -> None:
    backend = _backend
    if backend is None:
        return
    first: Device | None = None
    for x in _arrays(args):
        device = backend.device_of(x)
        if first is None:
            first = device
        elif device is not first:
            raise MixedDevicesError(
                f"an MXNet operator got arrays on {first} and {device}",
                f"move one of them first: ds.place(x, {str(first)!r})",
            )


def _arrays(args: Iterable[Any]) -> Iterable[Any]:
    for arg in args:
        if isinstance(arg, mx.nd.NDArray):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from _arrays(arg)
