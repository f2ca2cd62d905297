"""Compiling a hybridized block again for inputs on another device, if results from devshim are part of its graph.

Gluon compiles a block once and runs the graph for inputs on any device.  The results that the block got from devshim
while it was compiled (`device_of`, `place` of an array that is already there, `on`) are frozen into the graph, and are
correct for one device only.  So this module records that a block has asked, and on which device.  When the block is
called with inputs on another device, it is compiled again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim_backends._mxnet.native import where
from devshim_backends._mxnet.tracing import arrays

if TYPE_CHECKING:
    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

__all__ = ["attend"]

_Block = mx.gluon.HybridBlock
_own_graph, _own_call = _Block._get_graph, _Block._call_cached_op
_ASKED = "_devshim_asked_on"
"""The attribute of a block that has asked devshim; its value is the place number of the block's inputs."""


class _Compiling(threading.local):
    """The blocks that are being compiled in this thread, innermost last, with the place numbers of their inputs."""

    def __init__(self) -> None:
        self.blocks: list[tuple[Any, int]] = []


_HERE = _Compiling()
_LOCK = threading.Lock()
_compiling = 0
_backend: Backend | None = None
_before: Any = None
"""The backend instance's own `device_of`, if it overrides that of its class (`devshim.simulation.removed_gpus`)."""


def attend(backend: Backend) -> None:
    """Record from now on which blocks ask a backend for devices while they are compiled."""
    global _backend
    _backend = backend
    _Block._get_graph, _Block._call_cached_op = _get_graph, _call_cached_op


def _get_graph(block: Any, *args: Any) -> Any:
    """Return a block's graph as Gluon's method does, which runs the block's code; record the block meanwhile."""
    place = _place_of(args)
    if place is None or block._cached_graph:
        return _own_graph(block, *args)
    vars(block).pop(_ASKED, None)
    _HERE.blocks.append((block, place))
    _count(1)
    try:
        return _own_graph(block, *args)
    finally:
        _count(-1)
        _HERE.blocks.pop()


def _call_cached_op(block: Any, *args: Any) -> Any:
    """Run a block's graph as Gluon's method does; first discard one that is only correct for another device."""
    asked_on = vars(block).get(_ASKED)
    if asked_on is not None and _place_of(args) not in (asked_on, None):
        block._clear_cached_op()
    return _own_call(block, *args)


def _count(step: int) -> None:
    """Install the recording `device_of` while any thread compiles a block: at other times calls cost no more."""
    global _compiling, _before
    with _LOCK:
        _compiling += step
        if _backend is not None and _compiling == 1:
            _before = vars(_backend).get("device_of")
            vars(_backend)["device_of"] = _noted
        elif _backend is not None and not _compiling:
            _put_back(_backend)


def _put_back(backend: Backend) -> None:
    before = _before
    if before is None:
        vars(backend).pop("device_of", None)
    else:
        vars(backend)["device_of"] = before


def _noted(x: Tensor) -> Device:
    """Return the device of an array, and record that the blocks being compiled have asked for it."""
    for block, place in _HERE.blocks:
        vars(block)[_ASKED] = place
    backend, before = _backend, _before
    assert backend is not None
    return type(backend).device_of(backend, x) if before is None else before(x)


def _place_of(args: Any) -> int | None:
    """Return the place number of the first array among a block's inputs, or None."""
    return next((where(x) for x in arrays(args)), None)
