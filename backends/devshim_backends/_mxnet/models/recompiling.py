"""Compiling a hybridized block anew for inputs on another device, where devshim's answers are part of its graph.

Gluon compiles a block once and runs the graph for inputs on any device.  What the block asked of devshim while it was
compiled (`device_of`, `place` of what was there already, `on`) is in the graph for good, and true of one device alone.
So it is noted of a block that it has asked, and on which device; called with inputs on another, it is compiled again.
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
"""The attribute of a block that has asked: the number of its inputs' place."""


class _Compiling(threading.local):
    """The blocks that are being compiled in this thread, innermost last, with the numbers of their inputs' places."""

    def __init__(self) -> None:
        self.blocks: list[tuple[Any, int]] = []


_HERE = _Compiling()
_LOCK = threading.Lock()
_compiling = 0
_backend: Backend | None = None
_before: Any = None
"""The backend's own `device_of`, where it has one besides its class's (`devshim.simulation.removed_gpus`)."""


def attend(backend: Backend) -> None:
    """Note from now on which blocks ask a backend for devices while they are compiled."""
    global _backend
    _backend = backend
    _Block._get_graph, _Block._call_cached_op = _get_graph, _call_cached_op


def _get_graph(block: Any, *args: Any) -> Any:
    """What stands for Gluon's, which runs the block's code."""
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
    """What stands for Gluon's, which runs the graph."""
    asked_on = vars(block).get(_ASKED)
    if asked_on is not None and _place_of(args) not in (asked_on, None):
        block._clear_cached_op()
    return _own_call(block, *args)


def _count(step: int) -> None:
    """Have the backend's answers noted while a block is compiled in any thread: at other times they cost no more."""
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
    """What stands for the backend's `device_of` while blocks are compiled."""
    for block, place in _HERE.blocks:
        vars(block)[_ASKED] = place
    backend, before = _backend, _before
    assert backend is not None
    return type(backend).device_of(backend, x) if before is None else before(x)


def _place_of(args: Any) -> int | None:
    """The number of the place of the first array among a block's inputs."""
    return next((where(x) for x in arrays(args)), None)
