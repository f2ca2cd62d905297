"""Operators that accept arrays on several devices, while a model that is split over devices runs.

The code of a block can combine the results of parts on different devices, as in a residual connection or a
concatenation. MXNet's operators do not support that: with two cards they would read unrelated memory (see
`capabilities`). So while a split model runs, `align_operators` replaces the two functions that run all operators (see
`simulation.hooks`) by wrappers that choose one device for an operator and copy its other arrays there. Gradients flow
back through these copies. The device is that of the array to be written, if there is one; otherwise that of a
parameter among the arguments; otherwise that of the part of the model that ran last.

The wrappers are installed for all threads. `PASS` belongs to one thread, and says if a split model runs in it: in the
other threads the wrappers copy nothing.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.tensors import activations
from devshim.trees.sequences import rebuild_sequence
from devshim_backends._mxnet.internals.native import device_code, iter_arrays
from devshim_backends._mxnet.models.storage_swap import native_device
from devshim_backends._mxnet.models.traversal import parameter_devices, parameters_of
from devshim_backends._mxnet.simulation import hooks
from devshim_backends._mxnet.tracing import is_deferred

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devshim.contract.backend import Tensor


class SplitPass(threading.local):
    """The forward pass of a split model that runs in this thread, if one does."""

    devices: frozenset[Any] = frozenset()
    """MXNet's devices of the model's parts; empty while no split model runs."""
    parameters: frozenset[int] = frozenset()
    """The addresses of the parameters' arrays."""
    last_device: Any = None
    """The device of the part that ran last."""

    def begin(self, model: Any) -> None:
        """Record that a split model starts to run."""
        parameters = [parameter for _, parameter in parameters_of(model)]
        self.devices = frozenset(native for each in parameters for native in parameter_devices(each))
        self.parameters = frozenset(id(each._data[0]) for each in parameters if each._data is not None)
        self.last_device = None

    def visit(self, native: Any) -> None:
        """Record the device of a part that runs, if a split model runs."""
        if self.devices:
            self.last_device = native

    def end(self) -> None:
        """Record that the model has run."""
        self.devices, self.parameters, self.last_device = frozenset(), frozenset(), None


PASS = SplitPass()
_lock = threading.Lock()
_users = 0
"""The number of `align_operators` contexts in all threads."""


@contextmanager
def align_operators() -> Iterator[None]:
    """Let operators accept arrays on several devices inside this context."""
    global _users
    with _lock:
        _users += 1
        hooks.set_operators(_call_aligned, _invoke_aligned)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                hooks.set_operators(*hooks.operators())


def move_arrays(values: Any, native: Any, sources: frozenset[Any] | None = None) -> Any:
    """Return nested lists, tuples and dicts with their arrays on a device: all, or those on certain source devices."""
    if type(values) is dict:
        return {key: move_arrays(value, native, sources) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        moved = [move_arrays(value, native, sources) for value in values]
        return rebuild_sequence(values, moved)
    if not isinstance(values, mx.nd.NDArray) or (sources is not None and native_device(values) not in sources):
        return values
    return activations.move_activation(values, native)


def _call_aligned(function: Any, *args: Any) -> Any:
    aligned = _align(args, None) if PASS.devices else args
    result = hooks.operators()[0](function, *aligned)
    if aligned is not args:
        _refuse_lost_output(result, args, aligned)
    return result


def _invoke_aligned(handle: Any, arrays: Any, keys: Any, vals: Any, out: Any, *rest: Any) -> Any:
    if PASS.devices and handle != hooks.COPY:
        arrays = list(_align(tuple(arrays), out))
    return hooks.operators()[1](handle, arrays, keys, vals, out, *rest)


def _align(args: tuple[Any, ...], out: Any) -> tuple[Any, ...]:
    """Return an operator's arguments, with the arrays among them on one device."""
    arrays, outputs = list(iter_arrays(args)), list(iter_arrays([out]))
    if len({device_code(x) for x in (*arrays, *outputs)}) < 2 or is_deferred():
        return args
    native = _choose_device(arrays, outputs)
    return args if native is None else tuple(move_arrays(arg, native) for arg in args)


def _choose_device(arrays: list[Tensor], outputs: list[Tensor]) -> Any:
    """Return the device where an operator must compute, or None to let MXNet decide."""
    repeated = [x for i, x in enumerate(arrays) if any(x is each for each in arrays[:i])]  # `x += y` writes to `x`
    for x in (*outputs, *repeated):
        return native_device(x)
    for x in arrays:
        if id(x) in PASS.parameters:
            PASS.visit(native_device(x))
            return native_device(x)
    devices = [native_device(x) for x in arrays]
    if PASS.last_device in devices:
        return PASS.last_device
    return next((native for native in reversed(devices) if native in PASS.devices), None)


def _refuse_lost_output(result: Any, args: Iterable[Any], aligned: Iterable[Any]) -> None:
    """Refuse an ``out=`` on another device: the operator wrote to a copy of it, which the program cannot see.

    Raises:
        MixedDevicesError: The result is a copy on another device.
    """
    for x, moved in zip(args, aligned, strict=True):
        if result is moved and moved is not x and isinstance(moved, mx.nd.NDArray):
            raise hooks.mixed_native_devices(native_device(moved), native_device(x))
