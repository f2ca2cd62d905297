"""Simulated cards for NumPy: a labelled subclass of `numpy.ndarray` whose mixed arithmetic raises.

Requirements this module answers:

* A simulated card's array holds real data, says where it is, and gives results that are there too.
* What a real card refuses is refused: an operand on another card, or a host array of one dimension or more.  Python
  numbers and 0-d host arrays mix, as they do on real cards.
* Memory is counted exactly: a base array's bytes from its making until its memory is gone, and a card runs out.

A view shares its base's memory and counts nothing.  Any NumPy function reaches the check through
``__array_ufunc__`` (operators and ufuncs) or ``__array_function__`` (everything else).
"""

from __future__ import annotations

import weakref
from _thread import allocate_lock
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim._host import describe_simulated
from devshim._refusals import mismatch
from devshim.backend import Backend
from devshim.device import CPU, Device
from devshim.info import MemoryInfo

if TYPE_CHECKING:
    from devshim.info import DeviceInfo

__all__ = ["NumpySimulation", "SimulatedArray"]


class Memory:
    """The bytes of one simulated card."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self._lock = allocate_lock()

    def take(self, nbytes: int) -> None:
        """Count bytes, or raise `MemoryError` where they would not fit."""
        with self._lock:
            if self.limit is not None and self.used + nbytes > self.limit:
                raise MemoryError(f"simulated card full: {nbytes} bytes asked, {self.limit - self.used} free")
            self.used += nbytes
            self.peak = max(self.peak, self.used)

    def give(self, nbytes: int) -> None:
        """Count bytes back."""
        with self._lock:
            self.used -= nbytes

    def info(self) -> MemoryInfo:
        """Return what the card shows."""
        free = None if self.limit is None else self.limit - self.used
        return MemoryInfo(total=self.limit, used=self.used, free=free, peak=self.peak)


_CARDS: dict[Device, Memory] = {}


class SimulatedArray(np.ndarray):
    """An array on a simulated card: a NumPy array in all respects but its label and what it refuses."""

    _card: Device

    def __array_finalize__(self, origin: object) -> None:
        card = getattr(origin, "_card", None)
        if card is not None:
            self._card = card

    @property
    def device(self) -> str:  # type: ignore[override]
        """The card's label, such as ``"gpu:1 (simulated)"``."""
        return f"{self._card} (simulated)"

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        card = _common((*inputs, *(out or ()), *kwargs.values()), ufunc.__name__)
        if out is not None:
            kwargs["out"] = tuple(_plain(each) for each in out)
        result = getattr(ufunc, method)(*(_plain(each) for each in inputs), **_plain(kwargs))
        if out is not None:
            return out[0] if len(out) == 1 else out
        return _label(result, card)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        card = _common((args, kwargs), func.__name__)
        if kwargs.get("out") is not None:
            func(*_plain(args), **_plain(kwargs))
            return kwargs["out"]
        return _label(func(*_plain(args), **_plain(kwargs)), card)

    def __setitem__(self, key: Any, value: Any) -> None:
        _common((self, value), "__setitem__")
        super().__setitem__(_plain(key), _plain(value))

    def __repr__(self) -> str:
        return f"{np.asarray(_plain(self))!r} on {self.device}"

    def __reduce__(self) -> Any:
        # A label names a card of this process: what is pickled is the data, as a host array.
        return np.array(_plain(self)).__reduce__()


def _located(values: Any) -> Any:
    """Every array among arguments, with its device; 0-d host arrays mix with any card and are left out."""
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, SimulatedArray):
            yield value._card
        elif isinstance(value, np.ndarray) and value.ndim:
            yield CPU
        elif isinstance(value, (tuple, list, dict)):
            yield from _located(value)


def _common(values: Any, call: str) -> Device:
    found = list(_located(values))
    if len(set(found)) > 1:
        raise mismatch({f"argument {i}": device for i, device in enumerate(found)}, f"run(np.{call}, ...)")
    return found[0] if found else CPU


def _plain(value: Any) -> Any:
    """The same memory without the label, also inside tuples, lists and dicts."""
    if isinstance(value, SimulatedArray):
        return value.view(np.ndarray)
    if type(value) in (tuple, list):
        return type(value)(_plain(each) for each in value)
    if type(value) is dict:
        return {key: _plain(each) for key, each in value.items()}
    return value


def _label(result: Any, card: Device) -> Any:
    """Give arrays and NumPy scalars among results the card's label."""
    if type(result) in (tuple, list):
        return type(result)(_label(each, card) for each in result)
    if isinstance(result, (np.ndarray, np.generic)) and card is not CPU:
        return on_card(np.asarray(result), card)
    return result


def on_card(array: np.ndarray, card: Device) -> SimulatedArray:
    """Label an array as a card's; its memory is counted there until it is gone, a view's is not counted twice."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    if not isinstance(base, SimulatedArray) and id(base) not in _COUNTED:
        _count(base, card)
    labelled = array.view(SimulatedArray)
    labelled._card = card
    return labelled


_COUNTED: set[int] = set()


def _count(base: np.ndarray, card: Device) -> None:
    memory, nbytes, key = _CARDS[card], base.nbytes, id(base)
    memory.take(nbytes)
    _COUNTED.add(key)

    def gone() -> None:
        _COUNTED.discard(key)
        memory.give(nbytes)

    weakref.finalize(base, gone).atexit = False


class NumpySimulation(Backend):
    """Switching NumPy's simulated cards."""

    _limit: int | None = None

    def simulate(self, gpus: int, memory: int | None) -> None:
        for index in range(gpus):
            card = _CARDS.setdefault(Device("gpu", index), Memory(memory))
            card.limit = memory
        self._limit = memory
        self.simulated = gpus

    def describe_card(self, device: Device) -> DeviceInfo:
        """What a simulated card is."""
        return describe_simulated(self.name, device, self._limit)

    def card_memory(self, device: Device) -> MemoryInfo:
        """The bytes of a simulated card."""
        return _CARDS[device].info()
