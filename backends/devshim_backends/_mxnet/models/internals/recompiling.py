"""Patches that compile a hybridized block again for another device, if its graph depends on the device.

Gluon compiles a block once, and runs the graph for inputs on any device. A block can ask devshim for a device while it
is compiled (`device_of`, `place` of an array that is already there, `on`). The answer becomes a constant of the graph,
which is then correct for one device only. Two methods of ``HybridBlock`` are patched to prevent wrong results:

1. ``_get_graph`` runs the block's Python code to compile it. While it runs, the backend's `device_of` is replaced by
   `_device_of_marking`, which marks the block with the device of its inputs.
2. ``_call_cached_op`` runs the graph. If the block is marked with another device than the new inputs', the
   graph is discarded first, and Gluon compiles the block again.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim_backends._mxnet.internals.native import device_code, iter_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

__all__ = ["install"]

_Block = mx.gluon.HybridBlock
_get_graph, _call_cached_op = _Block._get_graph, _Block._call_cached_op
_MARK = "_devshim_compiled_for"
"""The attribute that marks a block whose graph depends on the device; its value is the device code of the inputs."""


class _BlockStack(threading.local):
    """The blocks that are being compiled in this thread, innermost last, with the device codes of their inputs."""

    def __init__(self) -> None:
        self.blocks: list[tuple[Any, int]] = []


_STACK = _BlockStack()
_LOCK = threading.Lock()
_compiling = 0
"""The number of blocks that are being compiled in all threads."""
_backend: Backend | None = None
_instance_device_of: Any = None
"""The backend instance's own `device_of`, if it overrides that of its class (`devshim.simulation.removed_gpus`)."""


def install(backend: Backend) -> None:
    """Install the patches, for blocks that ask this backend for devices."""
    global _backend
    _backend = backend
    _Block._get_graph, _Block._call_cached_op = _get_graph_marking, _call_cached_op_checked


def _get_graph_marking(block: Any, *args: Any) -> Any:
    """Return a block's graph, as Gluon's method does, and mark the block if it asks for a device."""
    code = _first_device_code(args)
    if code is None or block._cached_graph:
        return _get_graph(block, *args)
    vars(block).pop(_MARK, None)
    _STACK.blocks.append((block, code))
    try:
        with _mark_compiling():
            return _get_graph(block, *args)
    finally:
        _STACK.blocks.pop()


def _call_cached_op_checked(block: Any, *args: Any) -> Any:
    """Run a block's graph, as Gluon's method does; discard it first if it is only correct for another device."""
    compiled_for = vars(block).get(_MARK)
    if compiled_for is not None and _first_device_code(args) not in (compiled_for, None):
        block._clear_cached_op()
    return _call_cached_op(block, *args)


@contextmanager
def _mark_compiling() -> Iterator[None]:
    """Replace the backend's `device_of` while any thread compiles a block: at other times, calls have no extra cost."""
    global _compiling, _instance_device_of
    attributes = vars(_backend)
    with _LOCK:
        _compiling += 1
        if _compiling == 1:
            _instance_device_of = attributes.get("device_of")
            attributes["device_of"] = _device_of_marking
    try:
        yield
    finally:
        with _LOCK:
            _compiling -= 1
            own = _instance_device_of
            if not _compiling and own is None:
                attributes.pop("device_of", None)
            elif not _compiling:
                attributes["device_of"] = own


def _device_of_marking(x: Tensor) -> Device:
    """Return the device of an array, and mark the blocks that this thread is compiling."""
    for block, code in _STACK.blocks:
        vars(block)[_MARK] = code
    backend, instance_device_of = _backend, _instance_device_of
    assert backend is not None
    return type(backend).device_of(backend, x) if instance_device_of is None else instance_device_of(x)


def _first_device_code(args: Any) -> int | None:
    """Return the device code of the first array among a block's inputs, or None."""
    return next((device_code(x) for x in iter_arrays(args)), None)
