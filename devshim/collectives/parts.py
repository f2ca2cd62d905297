"""Parts of one tensor: cut one out, join several, and `split` and `gather` of a tensor that is not in a tree.

`devshim.collectives.split` walks trees, and calls these functions for each tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.collectives import arguments, error_frames
from devshim.tensors.lengths import known_length
from devshim.transfers import engine, observing
from devshim.trees import multi_map

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.trees.key_paths import Cell

__all__ = ["axis_of_parts", "copy_part", "gather_tensors", "join", "split_tensor"]


def split_tensor(backend: Backend, x: Any, targets: Sequence[Device], axis: int, uneven: str) -> list[Any]:
    """Split one tensor, while nothing observes the copies: the usual case, without a tree to walk."""
    arguments.check_devices((backend,), targets)
    shape = backend.shape(x)
    along = arguments.axis_of(axis, shape, (None, None), "split")
    bounds = arguments.split_bounds(known_length(backend, x, shape, along, "split"), len(targets), uneven)
    parts: list[Any] = []
    try:
        for target, (start, stop) in zip(targets, bounds, strict=True):
            parts.append(copy_part(backend, x, along, start, stop, target))
    except BaseException:
        parts.clear()  # the traceback would keep the parts, and their memory
        raise
    return parts


def axis_of_parts(cell: Cell, nodes: list[Any], backend: Backend, axis: int) -> int:
    """Return the axis along which tensors at one key path can be joined, or raise."""
    shape = backend.shape(nodes[0])
    along = 0 if not shape and axis in (0, -1) else arguments.axis_of(axis, shape, cell, "gather")
    multi_map.require_same_form("gather", "part", cell, nodes, backend, along if shape else None)
    return along


def gather_tensors(backend: Backend, xs: list[Any], target: Device, axis: int) -> Any:
    """Join tensors, while nothing observes the copies: the usual case, without trees to walk."""
    along = axis_of_parts((None, None), xs, backend, axis)
    arguments.check_devices((backend,), (target,))
    return join(backend, xs, along, target)


def copy_part(backend: Backend, x: Tensor, axis: int, start: int, stop: int, target: Device) -> Tensor:
    """Return a part of a tensor, in new memory on a device."""
    if start or stop != backend.shape(x)[axis]:
        if observing.ACTIVE is None and backend.narrow_copies(x) and backend.device_of(x) is target:
            return engine.make(backend, target, None, backend.narrow, x, axis, start, stop)
        x = backend.narrow(x, axis, start, stop)
    return engine.move(backend, x, target)


def join(backend: Backend, xs: Sequence[Tensor], axis: int, target: Device) -> Tensor:
    """Move tensors to a device and join them there."""
    there = [x if backend.device_of(x) is target else engine.move(backend, x, target) for x in xs]
    nbytes = sum(map(backend.nbytes, there))
    try:
        if not backend.shape(there[0]):  # 0-d tensors, which have no axis to join along
            return engine.make(backend, target, nbytes, backend.stack_tensors, there)
        return engine.make(backend, target, nbytes, backend.concatenate, there, axis)
    except BaseException as error:
        there.clear()  # the traceback would keep the moved tensors, and their memory, here and in the framework
        error_frames.clear_below(error)
        raise
