"""Simulated cards for NumPy: a labelled subclass of `numpy.ndarray` whose mixed arithmetic raises.

Requirements this module answers:

* A simulated card's array holds real data, says where it is, and gives results that are there too; a single
  element is a 0-d array on the card, as on real ones.
* What a real card refuses is refused: an operand on another card, or a host array of one dimension or more.  Python
  numbers and 0-d host arrays mix, and host arrays may index, as they do on real cards.
* Memory is counted (`devshim.simulation.memory`), and a card runs out.

Any NumPy function reaches the check through ``__array_ufunc__`` (operators and ufuncs) or ``__array_function__``
(everything else); methods of arrays that take other arrays are led there.  What NumPy gives a subclass no say in
stays as NumPy does it: ``host[...] = card`` and ``numpy.array(card)`` read a card's values without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.contract.backend import Backend
from devshim.devices.device import CPU, Device
from devshim.devices.host import describe_simulated
from devshim.registry.mismatches import native_mismatch
from devshim.simulation.memory import Cards

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devshim.devices.info import DeviceInfo, MemoryInfo
    from devshim.simulation.memory import Fault

__all__ = ["NumpySimulation", "SimulatedArray", "on_card"]

CARDS = Cards()


class SimulatedArray(np.ndarray):
    """An array on a simulated card: a NumPy array in all respects but its label and what it refuses."""

    _card: Device

    def __array_finalize__(self, origin: object) -> None:
        card = getattr(origin, "_card", None)
        if card is not None:
            self._card = card
            if self.flags.owndata:  # made by a method in C, such as copy() or astype(); a view counts nothing
                CARDS[card.index].hold(self, self.nbytes)

    @property
    def device(self) -> str:  # type: ignore[override]
        """The card's label, such as ``"gpu:1 (simulated)"``."""
        return f"{self._card} (simulated)"

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        card = _common((*inputs, *kwargs.values()), ufunc.__name__, out or ())
        if method == "at":
            getattr(ufunc, method)(*(_plain(each) for each in inputs))
            return None
        if out is not None:
            kwargs["out"] = tuple(_plain(each) for each in out)
        result = getattr(ufunc, method)(*(_plain(each) for each in inputs), **_plain(kwargs))
        if out is not None:
            return out[0] if len(out) == 1 else _outputs(result, out, card)
        return _label(result, card)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in (np.may_share_memory, np.shares_memory):  # a question about memory, asked of any two
            return func(*_plain(args), **_plain(kwargs))
        out = kwargs.get("out")
        card = _common((args, kwargs), func.__name__, () if out is None else (out,))
        result = func(*_plain(args), **_plain(kwargs))
        return _label(result, card) if out is None else out

    def __getitem__(self, key: Any) -> Any:
        _same_card(self._card, key, "__getitem__")
        # Not by super(): an index array's result would own nothing, and what owns it would be counted nowhere.
        return _label(_plain(self)[_plain(key)], self._card)

    def __setitem__(self, key: Any, value: Any) -> None:
        _same_card(self._card, key, "__setitem__")
        _common((self, value), "__setitem__")
        super().__setitem__(_plain(key), _plain(value))

    def __iter__(self) -> Iterator[Any]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"{np.asarray(_plain(self))!r} on {self.device}"

    def __reduce__(self) -> Any:
        # A label names a card of this process: what is pickled is the data, as a host array.
        return np.array(_plain(self)).__reduce__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.array(_plain(self)).__reduce_ex__(protocol)


def _through_function(name: str) -> Any:
    """An array's method as NumPy's function of the same name, which is checked; the method itself is not."""
    function = getattr(np, name)

    def method(self: SimulatedArray, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"See `numpy.{name}`."
    return method


for _name in ("argmax", "argmin", "choose", "dot", "nonzero", "put", "repeat", "searchsorted", "take", "trace"):
    setattr(SimulatedArray, _name, _through_function(_name))


def _located(values: Any) -> Iterator[Device]:
    """Where every array among arguments is; 0-d host arrays mix with any card and are left out."""
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, SimulatedArray):
            yield value._card
        elif isinstance(value, np.ndarray) and value.ndim:
            yield CPU
        elif isinstance(value, (tuple, list, dict)):
            yield from _located(value)


def _common(values: Any, call: str, out: Any = ()) -> Device:
    """The one device of a call's arguments, which is that of its results too, or `DeviceMismatchError`."""
    found = list(_located(values))
    for each in out:
        if isinstance(each, np.ndarray):  # a 0-d one, too: a result does not leave its card unseen
            found.append(each._card if isinstance(each, SimulatedArray) else CPU)
    if len(set(found)) > 1:
        raise native_mismatch({f"argument {i}": device for i, device in enumerate(found)}, f"np.{call}")
    return found[0] if found else CPU


def _same_card(card: Device, key: Any, call: str) -> None:
    """Refuse index arrays of another card; host arrays and Python's own may index a card."""
    found = [device for device in _located(key if isinstance(key, tuple) else (key,)) if device is not CPU]
    if any(device is not card for device in found):
        located = {"the array": card, **{f"index {i}": device for i, device in enumerate(found)}}
        raise native_mismatch(located, f"np.ndarray.{call}")


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
    if isinstance(result, SimulatedArray) or card is CPU:
        return result
    if isinstance(result, (np.ndarray, np.generic)):
        return on_card(np.asarray(result), card)
    if isinstance(result, tuple) and hasattr(result, "_make"):  # numpy.linalg's results, from NumPy 1.25 on
        return result._make(_label(each, card) for each in result)
    if type(result) in (tuple, list):
        return type(result)(_label(each, card) for each in result)
    return result


def _outputs(results: Any, out: Any, card: Device) -> Any:
    """The results of a ufunc with several outputs: those given, and new ones in the places of None."""
    return tuple(_label(new, card) if given is None else given for new, given in zip(results, out, strict=True))


def on_card(array: np.ndarray, card: Device) -> SimulatedArray:
    """Label an array as a card's; its memory is counted there until it is gone, a view's is not counted twice."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    if not isinstance(base, SimulatedArray):
        CARDS[card.index].hold(base, base.nbytes)
    labelled = array.view(SimulatedArray)
    labelled._card = card
    return labelled


class NumpySimulation(Backend):
    """Switching NumPy's simulated cards."""

    _limit: int | None = None

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        CARDS.begin(gpus, memory, faults)
        self.cards = CARDS
        self._limit = memory
        self.simulated = gpus

    def describe_card(self, device: Device) -> DeviceInfo:
        """What a simulated card is."""
        return describe_simulated(self.name, device, self._limit)

    def card_memory(self, device: Device) -> MemoryInfo:
        """The bytes of a simulated card."""
        return CARDS[device.index].info()
