"""Check the arguments of `devshim.collectives.split`: devices, axis, length, and the bounds of each part.

All checks are made, and all errors raised, before anything is copied.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from devshim.devices.device import Device
from devshim.errors import ArgumentError
from devshim.tensors import arguments
from devshim.tensors.lengths import known_length
from devshim.transfers import engine
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from devshim.contract.backend import Backend, Tensor
    from devshim.trees.key_paths import Cell

__all__ = ["axis_of", "check_devices", "length_of", "split_bounds"]


def check_devices(backends: Iterable[Backend], targets: Sequence[Device]) -> None:
    """Raise for a device that a framework lacks, before anything is copied."""
    for backend in {id(each): each for each in backends}.values():
        for target in dict.fromkeys(targets):
            engine.require(backend, target)


def axis_of(axis: Any, shape: tuple[int, ...], cell: Cell, call: str) -> int:
    """Return the axis, counted from the start of a shape."""
    given = arguments.integer("axis", axis)
    if not -len(shape) <= given < len(shape):
        msg = f"ds.{call} was given axis {given}, and {brackets(cell) or 'the tensor'} has the shape {shape}"
        raise ArgumentError(
            msg,
            "give a tensor without axes one first: reshape it to (1,)"
            if not shape
            else f"write an axis from 0 to {len(shape) - 1}, or from -1 to {-len(shape)} counted from the end",
        )
    return given % len(shape)


def length_of(found: list[tuple[Cell, Tensor, Backend]], axes: list[int]) -> int:
    """Return the common length of all tensors along their axes."""
    lengths = [
        known_length(backend, x, backend.shape(x), along, "split")
        for (_, x, backend), along in zip(found, axes, strict=True)
    ]
    for (cell, _, _), length in zip(found, lengths, strict=True):
        if length != lengths[0]:
            first = brackets(found[0][0])
            msg = (
                f"ds.split needs tensors of one length along the axis: {first} has {lengths[0]}, and "
                f"{brackets(cell)} has {length}"
            )
            raise ArgumentError(msg, "split it in a separate call")
    return lengths[0]


def split_bounds(length: int, count: int, uneven: str) -> list[tuple[int, int]]:
    """Return the start and the stop of each part."""
    size, more = divmod(length, count)
    if more and uneven == "error":
        msg = f"{length} rows cannot be split over {count} devices into equal parts"
        raise ArgumentError(msg, f"use a multiple of {count}, or uneven='balance' or 'drop'")
    sizes = [size + (i < more and uneven == "balance") for i in range(count)]
    stops = list(accumulate(sizes))
    return list(zip([0, *stops], stops, strict=False))
