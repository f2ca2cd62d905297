"""Simulated GPUs for NumPy: a subclass of `numpy.ndarray` with a device, which refuses operands on other devices.

Requirements of this module:

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

from collections import UserList, deque
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.contract.backend import Backend
from devshim.devices.amounts import MAX_GPUS
from devshim.devices.device import CPU, Device
from devshim.devices.host import describe_simulated
from devshim.registry.mismatches import native_mismatch_error
from devshim.simulation.memory import SimulatedDevices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devshim.devices.info import DeviceInfo, MemoryInfo
    from devshim.simulation.memory import Fault

__all__ = ["NumpySimulation", "SimulatedArray", "label_array"]

SIMULATED = SimulatedDevices()


class SimulatedArray(np.ndarray):
    """An array on a simulated GPU: a NumPy array with a device, which refuses what a real GPU would refuse."""

    _gpu: Device

    def __array_finalize__(self, origin: object) -> None:
        gpu = getattr(origin, "_gpu", None)
        if gpu is not None:
            self._gpu = gpu
            if self.dtype.name in SIMULATED.dtypes_lacking:
                SIMULATED.refuse_dtype(gpu, self.dtype.name)
            if self.flags.owndata:  # a method in C such as copy() or astype() made it; a view is not counted
                SIMULATED[gpu.index].track(self, self.nbytes)

    @property
    def device(self) -> str:  # type: ignore[override]
        """The device's label, such as ``"gpu:1 (simulated)"``."""
        return f"{self._gpu} (simulated)"

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        gpu = _require_one_device((*inputs, *kwargs.values()), ufunc.__name__, out or ())
        if method == "at":
            getattr(ufunc, method)(*(_unlabel(each) for each in inputs))
            return None
        if out is not None:
            kwargs["out"] = tuple(_unlabel(each) for each in out)
        result = getattr(ufunc, method)(*(_unlabel(each) for each in inputs), **_unlabel(kwargs))
        if out is not None:
            return out[0] if len(out) == 1 else _ufunc_outputs(result, out, gpu)
        return _label(result, gpu)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in (np.may_share_memory, np.shares_memory):  # these compare memory and accept any two arrays
            return func(*_unlabel(args), **_unlabel(kwargs))
        out = kwargs.get("out")
        gpu = _require_one_device((args, kwargs), func.__name__, () if out is None else (out,))
        if gpu is CPU:  # this array was given as `like=`, which NumPy does not pass on
            return _label(np.array(func(*args, **kwargs)), self._gpu)
        result = func(*_unlabel(args), **_unlabel(kwargs))
        return _label(result, gpu) if out is None else out

    def __getitem__(self, key: Any) -> Any:
        _require_same_gpu(self._gpu, key, "__getitem__")
        # super() is not used: the result of an index array would not own its memory, and its owner is not counted.
        return _label(_unlabel(self)[_unlabel(key)], self._gpu)

    def __setitem__(self, key: Any, value: Any) -> None:
        _require_same_gpu(self._gpu, key, "__setitem__")
        _require_one_device((self, value), "__setitem__")
        super().__setitem__(_unlabel(key), _unlabel(value))

    def __iter__(self) -> Iterator[Any]:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"{np.asarray(_unlabel(self))!r} on {self.device}"

    def __reduce__(self) -> Any:
        # The label names a simulated GPU of this process, so the data are pickled as a host array.
        return np.array(_unlabel(self)).__reduce__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.array(_unlabel(self)).__reduce_ex__(protocol)


def _method_by_function(name: str) -> Any:
    """Return a method that calls the NumPy function of the same name, which is checked; NumPy's method is not."""
    function = getattr(np, name)

    def method(self: SimulatedArray, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"See `numpy.{name}`."
    return method


for _name in ("argmax", "argmin", "choose", "dot", "nonzero", "put", "repeat", "searchsorted", "take", "trace"):
    setattr(SimulatedArray, _name, _method_by_function(_name))


_SEQUENCES: tuple[type[Any], ...] = (tuple, list, deque, UserList, type({}.values()))
"""The types, with their subclasses, in which NumPy finds the arrays of a call."""


def _devices_of(values: Any) -> Iterator[Device]:
    """Yield the device of each array among arguments, without 0-d host arrays, which every device accepts."""
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, SimulatedArray):
            yield value._gpu
        elif isinstance(value, np.ndarray) and value.ndim:
            yield CPU
        elif isinstance(value, (dict, *_SEQUENCES)):
            yield from _devices_of(value)


def _require_one_device(values: Any, call: str, out: Any = ()) -> Device:
    """Return the one device of a call's arguments, also its results' device, or raise `DeviceMismatchError`."""
    devices = list(_devices_of(values))
    for each in out:
        if isinstance(each, np.ndarray):  # also a 0-d one: writing a result to it would be an implicit transfer
            devices.append(each._gpu if isinstance(each, SimulatedArray) else CPU)
    if len(set(devices)) > 1:
        raise native_mismatch_error({f"argument {i}": device for i, device in enumerate(devices)}, f"np.{call}")
    return devices[0] if devices else CPU


def _require_same_gpu(gpu: Device, key: Any, call: str) -> None:
    """Refuse index arrays on another simulated GPU; host arrays and Python values are accepted as indices."""
    devices = [device for device in _devices_of(key if isinstance(key, tuple) else (key,)) if device is not CPU]
    if any(device is not gpu for device in devices):
        by_name = {"the array": gpu, **{f"index {i}": device for i, device in enumerate(devices)}}
        raise native_mismatch_error(by_name, f"np.ndarray.{call}")


def _unlabel(value: Any) -> Any:
    """Return the same memory without the label, even inside sequences and dicts, which become plain ones.

    NumPy would call `SimulatedArray` again, and without end, for an array that keeps its label.
    """
    if isinstance(value, SimulatedArray):
        return value.view(np.ndarray)
    if isinstance(value, _SEQUENCES):
        plain = [_unlabel(each) for each in value]
        return tuple(plain) if isinstance(value, tuple) else plain
    if isinstance(value, dict):
        return {key: _unlabel(each) for key, each in value.items()}
    return value


def _label(result: Any, gpu: Device) -> Any:
    """Label the arrays and NumPy scalars among results with a device."""
    if isinstance(result, SimulatedArray) or gpu is CPU:
        return result
    if isinstance(result, (np.ndarray, np.generic)):
        return label_array(np.asarray(result), gpu)
    if isinstance(result, tuple) and hasattr(result, "_make"):  # numpy.linalg's results, from NumPy 1.25 on
        return result._make(_label(each, gpu) for each in result)
    if type(result) in (tuple, list):
        return type(result)(_label(each, gpu) for each in result)
    return result


def _ufunc_outputs(results: Any, out: Any, gpu: Device) -> Any:
    """Return a ufunc's outputs: the arrays of ``out``, and new arrays in the positions of None."""
    return tuple(_label(new, gpu) if target is None else target for new, target in zip(results, out, strict=True))


def label_array(array: np.ndarray, gpu: Device) -> SimulatedArray:
    """Label an array with a device. Its memory counts there while it exists; a view's memory is not counted twice."""
    if array.dtype.name in SIMULATED.dtypes_lacking:
        SIMULATED.refuse_dtype(gpu, array.dtype.name)
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    if not isinstance(base, SimulatedArray):
        SIMULATED[gpu.index].track(base, base.nbytes)
    labelled = array.view(SimulatedArray)
    labelled._gpu = gpu
    return labelled


class NumpySimulation(Backend):
    """The mixin for simulation: it turns NumPy's simulated GPUs on and off."""

    most_simulated_gpus = MAX_GPUS
    _limit: int | None = None

    def simulate(self, gpus: int, memory: int | None, faults: Sequence[Fault] = ()) -> None:
        SIMULATED.begin(gpus, memory, faults)
        self.simulated_devices = SIMULATED
        self._limit = memory
        self.simulated = gpus

    def describe_simulated_gpu(self, device: Device) -> DeviceInfo:
        """Return the description of a simulated GPU."""
        return describe_simulated(self.name, device, self._limit)

    def simulated_memory(self, device: Device) -> MemoryInfo:
        """Return the memory of a simulated GPU, in bytes."""
        return SIMULATED[device.index].info()
