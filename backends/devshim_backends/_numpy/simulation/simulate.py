"""Simulated GPUs for NumPy: a subclass of `numpy.ndarray` with a device, which refuses operands on other devices.

Requirements this module answers:

* An array on a simulated GPU has real data, reports its device, and gives results on that device. A single element is
  a 0-d array on the device, as on real GPUs.
* The simulation refuses what a real GPU refuses: an operand on another GPU, or a host array with one or more
  dimensions. Python numbers and 0-d host arrays are accepted as operands, and host arrays as indices, as on real GPUs.
* Memory is counted (`devshim.simulation.memory`), and a simulated GPU can run out of it.

NumPy calls ``__array_ufunc__`` for operators and ufuncs, and ``__array_function__`` for other functions; both check
the devices. Array methods that take other arrays call the NumPy function of the same name, which is checked. NumPy
gives a subclass no hook for ``host[...] = gpu_array`` and ``numpy.array(gpu_array)``: they read the values silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.contract.backend import Backend
from devshim.devices.device import CPU, Device
from devshim.devices.host import describe_simulated
from devshim.registry.mismatches import native_mismatch
from devshim.simulation.memory import SimulatedDevices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devshim.devices.info import DeviceInfo, MemoryInfo
    from devshim.simulation.memory import Fault

__all__ = ["NumpySimulation", "SimulatedArray", "on_card"]

SIMULATED = SimulatedDevices()


class SimulatedArray(np.ndarray):
    """An array on a simulated GPU: a NumPy array with a device, which refuses what a real GPU would refuse."""

    _card: Device

    def __array_finalize__(self, origin: object) -> None:
        card = getattr(origin, "_card", None)
        if card is not None:
            self._card = card
            if self.flags.owndata:  # a method in C such as copy() or astype() made it; a view is not counted
                SIMULATED[card.index].track(self, self.nbytes)

    @property
    def device(self) -> str:  # type: ignore[override]
        """The device's label, such as ``"gpu:1 (simulated)"``."""
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
        if func in (np.may_share_memory, np.shares_memory):  # these compare memory and accept any two arrays
            return func(*_plain(args), **_plain(kwargs))
        out = kwargs.get("out")
        card = _common((args, kwargs), func.__name__, () if out is None else (out,))
        result = func(*_plain(args), **_plain(kwargs))
        return _label(result, card) if out is None else out

    def __getitem__(self, key: Any) -> Any:
        _same_card(self._card, key, "__getitem__")
        # super() is not used: the result of an index array would not own its memory, and its owner is not counted.
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
        # The label names a simulated GPU of this process, so the data are pickled as a host array.
        return np.array(_plain(self)).__reduce__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.array(_plain(self)).__reduce_ex__(protocol)


def _through_function(name: str) -> Any:
    """Return a method that calls the NumPy function of the same name, which is checked; NumPy's method is not."""
    function = getattr(np, name)

    def method(self: SimulatedArray, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"See `numpy.{name}`."
    return method


for _name in ("argmax", "argmin", "choose", "dot", "nonzero", "put", "repeat", "searchsorted", "take", "trace"):
    setattr(SimulatedArray, _name, _through_function(_name))


def _located(values: Any) -> Iterator[Device]:
    """Yield the device of each array among arguments, without 0-d host arrays, which every device accepts."""
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, SimulatedArray):
            yield value._card
        elif isinstance(value, np.ndarray) and value.ndim:
            yield CPU
        elif isinstance(value, (tuple, list, dict)):
            yield from _located(value)


def _common(values: Any, call: str, out: Any = ()) -> Device:
    """Return the one device of a call's arguments, also its results' device, or raise `DeviceMismatchError`."""
    found = list(_located(values))
    for each in out:
        if isinstance(each, np.ndarray):  # also a 0-d one: writing a result to it would be an implicit transfer
            found.append(each._card if isinstance(each, SimulatedArray) else CPU)
    if len(set(found)) > 1:
        raise native_mismatch({f"argument {i}": device for i, device in enumerate(found)}, f"np.{call}")
    return found[0] if found else CPU


def _same_card(card: Device, key: Any, call: str) -> None:
    """Refuse index arrays on another simulated GPU; host arrays and Python values are accepted as indices."""
    found = [device for device in _located(key if isinstance(key, tuple) else (key,)) if device is not CPU]
    if any(device is not card for device in found):
        located = {"the array": card, **{f"index {i}": device for i, device in enumerate(found)}}
        raise native_mismatch(located, f"np.ndarray.{call}")


def _plain(value: Any) -> Any:
    """Return the same memory without the label, also inside tuples, lists and dicts."""
    if isinstance(value, SimulatedArray):
        return value.view(np.ndarray)
    if type(value) in (tuple, list):
        return type(value)(_plain(each) for each in value)
    if type(value) is dict:
        return {key: _plain(each) for key, each in value.items()}
    return value


def _label(result: Any, card: Device) -> Any:
    """Label the arrays and NumPy scalars among results with a device."""
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
    """Return a ufunc's outputs: the arrays of ``out``, and new arrays in the positions of None."""
    return tuple(_label(new, card) if given is None else given for new, given in zip(results, out, strict=True))


def on_card(array: np.ndarray, card: Device) -> SimulatedArray:
    """Label an array with a device. Its memory counts there while it exists; a view's memory is not counted twice."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    if not isinstance(base, SimulatedArray):
        SIMULATED[card.index].track(base, base.nbytes)
    labelled = array.view(SimulatedArray)
    labelled._card = card
    return labelled


class NumpySimulation(Backend):
    """The mixin for simulation: it turns NumPy's simulated GPUs on and off."""

    _limit: int | None = None

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        SIMULATED.begin(gpus, memory, faults)
        self.simulated_devices = SIMULATED
        self._limit = memory
        self.simulated = gpus

    def describe_card(self, device: Device) -> DeviceInfo:
        """Return the description of a simulated GPU."""
        return describe_simulated(self.name, device, self._limit)

    def card_memory(self, device: Device) -> MemoryInfo:
        """Return the memory of a simulated GPU, in bytes."""
        return SIMULATED[device.index].info()
