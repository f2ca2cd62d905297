"""Copies of a whole batch to a device in one thread, for use in another one."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.tensors import arguments, from_values, on_host
from devshim.transfers import batch as batches
from devshim.transfers import engine
from devshim.trees import not_moved, plain
from devshim.trees.flatten import flatten
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

    Arrived = list[tuple[Callable[[Iterable[Tensor]], None], list[Tensor]]]
    """For each framework: what the thread that uses the copies calls, and the copies."""

__all__ = ["copy_on_host", "send"]

_NO_NUMBERS = "OSUMm"
"""The kinds of NumPy dtypes without numbers: objects, text, dates."""


def send(batch: Any, backend: Backend, device: Device) -> tuple[Any, Arrived]:
    """Copy a batch to a device, and return it with the function that its user must call.

    Args:
        batch: A tree; NumPy arrays in it become tensors of ``backend``.
        backend: The current backend.
        device: The target.
    """
    arrays: list[Any] = []
    if not backend.has_plain_arrays and plain.collect(batch, arrays) and arrays and _are_different_arrays(arrays):
        with backend.copy_ahead([], device) as use:
            made = _from_arrays(backend, dict(enumerate(arrays)), device)
        return plain.rebuild(batch, iter(made.values())), [(use, list(made.values()))]
    return _send(batch, backend, device)


def copy_on_host(batch: Any, backend: Backend) -> Any:
    """Fast path of `send`: return a copy of a batch of NumPy arrays in host memory, or None if `send` must make it."""
    arrays: list[Any] = []
    if backend.has_plain_arrays or not plain.collect(batch, arrays) or not arrays or not _are_different_arrays(arrays):
        return None
    made = []
    for array in arrays:
        x = on_host.copy_array(backend, array)
        if x is None:
            return None
        made.append(x)
    return plain.rebuild(batch, iter(made))


def _are_different_arrays(found: list[Any]) -> bool:
    """Return True if these are arrays of NumPy with numbers, and no array is in two places."""
    for x in found:
        if type(x) is not np.ndarray or x.dtype.kind in _NO_NUMBERS:
            return False
    return len(set(map(id, found))) == len(found)


def _send(batch: Any, backend: Backend, device: Device) -> tuple[Any, Arrived]:
    flat = flatten(batch)
    found = {number: (x, owner, cell) for number, cell, x, owner in flat.leaves}
    not_moved.warn("prefetch", flat.others)
    found = {key: row for key, row in found.items() if not _has_no_numbers(row[0], row[1])}
    arrays = {key: x for key, (x, owner, _) in found.items() if owner.has_plain_arrays and backend is not owner}
    groups: dict[Backend, list[Any]] = {}
    for key, (x, owner, cell) in found.items():
        if key not in arrays and not engine.is_placed(owner, x, device, None):
            groups.setdefault(owner, []).append((key, owner.pin(x, device), cell))
    new: dict[int, Any] = {}
    arrived: Arrived = []
    if arrays:
        groups.setdefault(backend, [])
    for owner, leaves in groups.items():
        with ExitStack() as entered:
            use = entered.enter_context(owner.copy_ahead([x for _, x, _ in leaves], device))
            copies = _copy(owner, leaves, device)
            if owner is backend:
                copies.update(_from_arrays(backend, arrays, device))
        new.update(copies)
        arrived.append((use, list(copies.values())))
    return flat.rebuild(new), arrived


def _copy(owner: Backend, leaves: list[Any], device: Device) -> dict[int, Tensor]:
    pending = batches.TransferBatch(brackets)
    for key, x, cell in leaves:
        pending.add(key, owner, x, device, cell)
    return pending.copy() if leaves else {}


def _from_arrays(backend: Backend, arrays: dict[int, Any], device: Device) -> dict[int, Tensor]:
    return {
        key: engine.make(*from_values.from_array(backend, arguments.numpy_array(x), device, True))
        for key, x in arrays.items()
    }


def _has_no_numbers(x: Any, owner: Backend) -> bool:
    """Return True for a NumPy array without numbers: it stays as it is in the batch, like other objects."""
    return owner.has_plain_arrays and x.dtype.kind in _NO_NUMBERS
