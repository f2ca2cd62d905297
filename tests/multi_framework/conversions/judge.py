"""The check of one conversion against the promises of `ds.convert`; the outcome is what it did, or what was wrong.

Outcomes: ``same`` (the object itself), ``shared``, ``copied``, ``refused`` with the reason, ``absent`` (the framework
has no such tensor), and ``wrong`` with the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from cells import ADDRESSES, NO_DTYPE, TRAINED, Cell, Task
from sides import Side
from strange import make
from values import base, bits, expected

import devshim as ds

COMPUTED = ("int32", "float32", "complex64")
"""The dtypes in which every framework that has them can add."""
MULTIPLIED = ("float32", "float64", "complex64", "complex128")
"""The dtypes in which every framework that has them can add, even in place, and multiply matrices."""


class WrongError(Exception):
    """The error for a conversion whose result is not as promised."""


@dataclass
class Made:
    """A tensor to convert: itself, the tensor of whose memory it is a view, and the bits of its values."""

    x: Any
    root: Any
    bits: tuple[str, tuple[int, ...], bytes]


def judge(task: Task, cell: Cell, sides: dict[str, Side]) -> tuple[str, str]:
    """Return what one conversion did, and why."""
    with ds.using(task.source):  # NumPy has simulated GPUs only if it is the current framework
        return _judged(task, cell, sides)


def _judged(task: Task, cell: Cell, sides: dict[str, Side]) -> tuple[str, str]:
    source, target = sides[task.source], sides[task.target]
    try:
        if cell.dtype == NO_DTYPE:
            found = ds.convert(make(task.source, cell.layout), task.target, copy=cell.copy)
            raise WrongError(f"it is converted, to a {type(found).__name__}")
        made = _made(source, cell)
        if made is None:
            return "absent", ""
        _same_bits(source, made.x, made.bits, "the source, before,")
        y = ds.convert(made.x, task.target, cell.there, copy=cell.copy)
        _fits(y, made, task, cell, source, target)
        if y is made.x:
            return "same", ""
        if cell.here == "cpu" and cell.there is None and cell.dtype in COMPUTED:
            _computes(y, made, target)
        if cell.layout in ADDRESSES and cell.dtype in MULTIPLIED:
            _computes(y, made, target, products=True)
            if target.is_writable(y):
                _adds_in_place(source, cell, task, target)
        found = "shared" if _is_shared(y, made, task, cell, source, target) else "copied"
        if cell.copy is None:
            _outlives_its_source(task, cell, source, target)
        return found, ""
    except (ds.ConversionError, ds.CopyNeededError, ds.UnsupportedError) as error:
        return _refused(error, cell)
    except WrongError as error:
        return "wrong", str(error)
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _made(side: Side, cell: Cell) -> Made | None:
    """Return the source of a cell; None if the framework has no such tensor."""
    array = base(cell.layout, cell.dtype)
    if cell.layout in TRAINED:
        x = side.trained(cell.layout, array)
        return None if x is None else Made(x, x, bits(array[1:] if cell.layout == "computed" else array))
    truth = bits(expected(cell.layout, array))
    if cell.here == "cpu":
        both = side.source(cell.layout, array)
        return None if both is None else Made(*both, truth)
    root = side.make(array) if side.has(cell.dtype) else None
    if root is None:
        return None
    root = ds.place(root, cell.here)
    x = root if cell.layout in ("contiguous", "0-d", "empty") else side.laid_out(cell.layout, root)
    return None if x is None else Made(ds.place(x, cell.here), root, truth)  # a view may be on another device


def _refused(error: ds.DevshimError, cell: Cell) -> tuple[str, str]:
    if isinstance(error, ds.UnsupportedError) and cell.dtype != NO_DTYPE:
        return "wrong", f"what can be converted is refused: {error.problem}"
    if isinstance(error, ds.CopyNeededError) and cell.copy is not False:
        return "wrong", f"a copy is refused where one was allowed: {error.problem}"
    if not error.problem or not error.hint:
        return "wrong", f"the error says neither what is wrong nor what to do: {error}"
    return "refused", error.problem


def _fits(y: Any, made: Made, task: Task, cell: Cell, source: Side, target: Side) -> None:
    """Raise for a result of another type, device, dtype, shape or value, and for a source that has changed."""
    if not (isinstance(y, target.kind()) or (source is target and type(y) is type(made.x))):
        raise WrongError(f"the result is a {type(y).__name__}")
    asked = ds.device(cell.there or cell.here)
    if ds.device_of(y) is not asked:
        raise WrongError(f"the result is on {ds.device_of(y)}, and {asked} was asked for")
    _same_bits(target, y, made.bits, "the result")
    _same_bits(source, made.x, made.bits, "the source, afterwards,")
    if task.source != task.target and target.trains(y):
        raise WrongError("the result asks for a gradient, and none can cross")
    if cell.layout in TRAINED and not source.trains(made.x):
        raise WrongError("the source asks for no gradient any more")
    if cell.copy is True and y is made.x:
        raise WrongError("copy=True gave the object itself")


def _same_bits(side: Side, x: Any, truth: tuple[str, tuple[int, ...], bytes], what: str) -> None:
    found = bits(side.read(x))
    for name, one, other in zip(("dtype", "shape", "values"), found, truth, strict=True):
        if one != other:
            raise WrongError(f"{what} has other {name}: {one!r:.60} for {other!r:.60}")


def _computes(y: Any, made: Made, target: Side, products: bool = False) -> None:
    """Raise for a result that the framework's own operators read differently, or cannot read."""
    dtype, shape, values = made.bits
    once = np.frombuffer(values, dtype).reshape(shape)
    with np.errstate(all="ignore"), target.computing():
        sums = [(y + y, once + once), *([(y[1:] + y[1:], once[1:] + once[1:])] if shape and shape[0] > 1 else [])]
        if products:
            sums += [(y * y, once * once), (target.product(y), once.reshape(1, -1) @ once.reshape(-1, 1))]
        for found, expected in sums:
            if not np.array_equal(target.read(found), expected, equal_nan=True):
                raise WrongError("the framework's own operator computes something else with the result")


def _adds_in_place(source: Side, cell: Cell, task: Task, target: Side) -> None:
    """Raise for a result that an operator cannot change in place; it tests another result, because it may be shared."""
    made = _made(source, cell)
    if made is not None:
        y = ds.convert(made.x, task.target, copy=cell.copy)
        once = np.frombuffer(made.bits[2], made.bits[0]).reshape(made.bits[1])
        y += y
        if not np.array_equal(target.read(y), once + once):
            raise WrongError("the framework's own operator in place computes something else with the result")


def _is_shared(y: Any, made: Made, task: Task, cell: Cell, source: Side, target: Side) -> bool:
    """Return True if both share memory, found by a write to one that is visible in the other, or by address."""
    if not made.bits[2]:
        return _agrees_to_share(made, task, cell)
    if source.mutable:
        if not any(made.bits[2]):
            raise WrongError("the sample is all zeros, and zeros written over it would not be seen")
        if isinstance(made.root, np.ndarray):  # NumPy writes it, which works for any memory
            made.root[...] = np.zeros((), made.root.dtype)
        else:
            source.wipe(made.root)
        shared = bits(target.read(y)) != made.bits
    elif target.is_writable(y):
        target.wipe(y)
        shared = bits(source.read(made.x)) != made.bits
    else:
        shared = source.address(made.x) == target.address(y)
    if shared and target.is_writable(y) and not source.is_writable(made.x):
        raise WrongError("memory that must not be written stands behind a tensor that can be")
    if shared is not (cell.copy is False) and cell.copy is not None:
        raise WrongError(f"copy={cell.copy}, and the memory is {'shared' if shared else 'another'}")
    return shared


def _agrees_to_share(made: Made, task: Task, cell: Cell) -> bool:
    """Return True if sharing is claimed for a tensor without elements, which has no memory to check."""
    if cell.copy is None:
        try:
            ds.convert(made.x, task.target, cell.there, copy=False)
        except ds.CopyNeededError:
            return False
    return cell.copy is not True


def _outlives_its_source(task: Task, cell: Cell, source: Side, target: Side) -> None:
    """Raise for a result whose memory is freed with its source: freed memory is overwritten, and the result read."""
    made = _made(source, cell)
    if made is None:
        return
    y, truth = ds.convert(made.x, task.target, cell.there, copy=cell.copy), made.bits
    del made
    noise = [np.full(len(truth[2]) + extra, 0xA5, np.uint8) for extra in (0, 64, 128, 192) for _ in range(4)]
    _same_bits(target, y, truth, f"the result, {len(noise)} allocations after its source was freed,")
