"""`MetricLog`: keep the numbers that a loop computes on a device there, and bring them to the host together.

Reading a loss at each step (``float(loss)``) makes the host wait for the device each time; a transfer of a thousand
numbers costs as much as a transfer of one.

On a real GPU, a value is kept by a copy on the GPU. On the host, and on a simulated GPU, whose memory is host memory,
an operator that copies one number costs more than reading it, so the number is read (`Backend.scalar_reader`). On JAX
and MXNet, a number that is not computed yet is copied, too: reading it would keep the loop from dispatching the next
step. MXNet cannot be asked for that, so a log copies its numbers after the first one for which it had to wait.
A flush then puts all of them on the device as one tensor, whose transfer is the one that a ledger, a guard and a fault
see.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.devices.dtypes import is_number
from devshim.errors import ArgumentError, DeviceMismatchError
from devshim.errors.formatting import show, type_name
from devshim.errors.messages import bad_argument
from devshim.registry import argument_hints, current, registry, tracing
from devshim.tensors import arguments
from devshim.transfers import engine, observing

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike

__all__ = ["MetricLog"]


class MetricLog:
    """A log of scalars that stay on a device until they are needed.

    Args:
        device: The device on which the scalars are computed and kept; without it, the device of the first one.
        capacity: The most scalars kept there; before one more is kept, the earlier ones are brought to the host in one
            transfer.

    Several threads may append to one log and flush it.

    Raises:
        ArgumentError: ``capacity`` is less than 1.
        DeviceNotFoundError: The current framework does not have the device.

    >>> import devshim as ds
    >>> ds.use("numpy")
    >>> ds.simulate(gpus=2)
    <2 simulated GPUs>
    >>> log = ds.MetricLog("gpu:1")
    >>> for step in range(3):
    ...     log.append(ds.full((), 2.0**-step, device="gpu:1"))
    >>> log.flush()
    array([1.  , 0.5 , 0.25])
    """

    def __init__(self, device: DeviceLike | None = None, capacity: int = 1024) -> None:
        self._device: Device | None = None
        if not hasattr(type(capacity), "__index__") and argument_hints.device_source(capacity) is not None:
            raise argument_hints.swapped_log(device, capacity)
        if device is not None:
            self._device = engine.require(current.current(), parsing.device_of_argument(device))
        self.capacity: int = arguments.integer("capacity", capacity)
        if self.capacity < 1:
            raise bad_argument("capacity", capacity, "at least 1", "leave capacity out to keep at most 1024")
        self._backend: Backend | None = None
        self._kept: list[Any] = []  # tensors, and the values that `_read` returned
        self._dtypes: list[np.dtype | None] = []  # of the values that were read; None for a tensor
        self._read: Callable[[Tensor], Any] | None = None
        self._read_dtype: np.dtype | None = None
        self._numbers: dict[int, float] = {}  # the Python numbers, by their index among all values
        self._values: list[np.ndarray] = []
        self._length = 0
        self._lock = threading.RLock()  # reentrant: a signal's handler or a finalizer may take it again

    def __len__(self) -> int:
        """Return how many values have been appended since the last `flush`."""
        return self._length

    def append(self, value: Tensor | float) -> None:
        """Append the current value; a later in-place change of the tensor does not affect it.

        Args:
            value: A tensor of one element on the log's device, of any shape, with or without a gradient, or a number.

        Raises:
            DeviceMismatchError: The tensor is on another device: the log makes no implicit transfer.
            ArgumentError: It has more than one element, belongs to another framework than those before it, or is not a
                number, or is too large for float64.
            ConversionError: NumPy has no counterpart: the tensor is sparse, or masked.
        """
        # Refused even if the compiler could trace it: torch.compile (2.13) recompiles for each length, up to 8 times.
        tracing.refuse("MetricLog.append", "return the value from the function, and append it outside")
        with self._lock:
            read = self._read
            if read is not None and observing.ACTIVE is None:
                try:
                    found = read(value) if len(self._kept) < self.capacity else None
                except Exception:  # the slow path fails in the same way, and reports it
                    found = None
                if found is not None:
                    self._kept.append(found)
                    self._dtypes.append(self._read_dtype)
                    self._length += 1
                    return
            backend = registry.backend_for(value)
            if backend is None or isinstance(value, np.generic):
                self._numbers[self._length] = _number(value)
            else:
                self._take(backend, value)
            self._length += 1

    def _take(self, backend: Backend, value: Tensor) -> None:
        """Check a tensor, take its value, and remember how to read the next one like it."""
        here = self._check_value(backend, value)
        if len(self._kept) >= self.capacity:
            self._bring()
        observing.show_call(backend, "metric_append")
        self._read = self._read_dtype = found = None  # without a dtype, `_read` returns a tensor
        if here is CPU or backend.simulated:
            with _suspend_recording(backend, here):
                found = self._read_first(backend, value)
        if found is None:
            self._read = backend.scalar_copier(value)
        self._kept.append(backend.detached_copy(value) if found is None else found)
        self._dtypes.append(None if found is None else self._read_dtype)
        self._backend, self._device = backend, here

    def _read_first(self, backend: Backend, value: Tensor) -> Any:
        """Read a number, and remember how; return None if an operator must copy it, or must refuse it."""
        try:
            reader = backend.scalar_reader(value)
            found = None if reader is None else reader[0](value)
        except Exception:
            return None
        if reader is not None and found is not None:
            self._read, self._read_dtype = reader
        return found

    def _check_value(self, backend: Backend, value: Any) -> Device:
        """Return the device of a tensor that this log may take; raise if it may not."""
        here = backend.device_of(value)
        if here is not self._device:  # a GPU may have computed TensorFlow's int32 in host memory
            here = backend.ran_on(value) or here
        device = here if self._device is None else self._device
        if here is not device:
            msg = f"a MetricLog on {device} got a value on {here}"
            raise DeviceMismatchError(msg, f"ds.place(value, {str(device)!r}), or ds.MetricLog({str(here)!r})")
        if not is_number(backend.dtype_name(value)):
            msg = f"a MetricLog takes numbers, and this tensor is of dtype {backend.dtype_name(value)}"
            raise ArgumentError(msg, "append a number of a plain dtype, such as float32")
        size = 1
        for length in backend.shape(value):
            size *= length
        if size != 1:
            msg = f"a MetricLog takes one number at a time, and this tensor has the shape {show(backend.shape(value))}"
            raise ArgumentError(msg, "append its mean or sum")
        if self._backend is not None and backend is not self._backend:
            msg = f"a MetricLog of {self._backend.title} got a {type_name(value)} of {backend.title}"
            raise ArgumentError(msg, "use a separate log for each framework")
        return here

    def _bring(self) -> None:
        """Bring the values on the device to the host, in one transfer."""
        if self._kept:
            assert self._backend is not None
            observing.show_call(self._backend, "metric_flush")
            self._read_waiting(self._backend)
            dtype = self._one_dtype()
            if dtype is not None and self._device is CPU and observing.ACTIVE is None:
                self._values.append(_array(self._kept, dtype))  # nothing could see the transfer
            else:
                self._values.append(engine.to_host(self._backend, self._stack(self._backend), copy=True))
            self._kept.clear()
            self._dtypes.clear()

    def _read_waiting(self, backend: Backend) -> None:
        """Read the values that were not computed yet when they were appended."""
        assert self._device is not None
        waiting = [
            i
            for i, (each, dtype) in enumerate(zip(self._kept, self._dtypes, strict=True))
            if dtype is not None and type(each) not in _READ
        ]
        if waiting:
            with _suspend_recording(backend, self._device):
                for i in waiting:
                    self._kept[i] = backend.scalar_bytes(self._kept[i])

    def _one_dtype(self) -> np.dtype | None:
        """Return the dtype of the kept values if all were read and have the same one, or None."""
        dtype = self._dtypes[0]
        return dtype if self._dtypes.count(dtype) == len(self._dtypes) else None

    def _stack(self, backend: Backend) -> Tensor:
        """Return the kept values as one tensor on the device."""
        assert self._device is not None
        dtype = self._one_dtype()
        if dtype is not None:
            return backend.from_numpy(_array(self._kept, dtype), self._device, copy=True)
        return backend.stack_scalars(
            [
                each if dtype is None else backend.from_numpy(_array([each], dtype), self._device, copy=True)
                for each, dtype in zip(self._kept, self._dtypes, strict=True)
            ]
        )

    def flush(self) -> np.ndarray[Any, Any]:
        """Return all values in the order they were appended, in one transfer, and empty the log.

        Returns:
            An array of shape (n,). Its dtype is that of the scalars, or NumPy's common dtype for several (bfloat16
            counts as float32). Python numbers are converted to that dtype if they fit; if they do not, or if there are
            only Python numbers, the array is float64. If the transfer fails, the log keeps its values.
        """
        tracing.refuse("MetricLog.flush", "flush outside the compiled function")
        with self._lock:
            self._bring()
            tensors = np.concatenate(self._values) if self._values else np.empty(0)
            found = self._merge_numbers(tensors) if self._numbers else tensors
            self._values, self._numbers, self._length = [], {}, 0
        return found

    def _merge_numbers(self, tensors: np.ndarray) -> np.ndarray:
        """Return the tensors' values with the Python numbers inserted at their positions."""
        numbers = list(self._numbers.values())
        found = np.empty(self._length, _fitting_dtype(tensors.dtype, numbers))
        at = np.ones(self._length, bool)
        at[list(self._numbers)] = False
        found[at] = tensors
        found[~at] = [int(number) for number in numbers] if found.dtype.kind in "biu" else numbers
        return found

    def __repr__(self) -> str:
        where = "" if self._device is None else f" on {self._device}"
        return f"<MetricLog{where}: {self._length} values, {len(self._kept)} of them on the device>"


_READ = frozenset({bytes, bool, int, float, complex})
"""The types of values that were read; any other is a tensor on the device."""


def _suspend_recording(backend: Backend, device: Device) -> AbstractContextManager[object]:
    """Return a context in which numbers are read; a ledger and a guard see the transfer when the log is flushed."""
    active = observing.ACTIVE
    record = None if active is None else active.record
    return (record and record(backend, device, device, None, 1)) or nullcontext()


def _array(read: list[Any], dtype: np.dtype) -> np.ndarray:
    """Return numbers that were read from tensors as an array: they are bytes, or Python numbers."""
    return np.frombuffer(b"".join(read), dtype) if type(read[0]) is bytes else np.array(read, dtype)


def _number(value: Any) -> float:
    """Return a Python number that float64 can hold; an int stays an int, which an integer array stores exactly."""
    found = arguments.real("value", value)
    return found if isinstance(found, int) else float(found)


def _fitting_dtype(dtype: np.dtype, numbers: list[float]) -> np.dtype:
    """Return the tensors' dtype if the numbers fit (rounded, for floats), and a wider dtype otherwise."""
    if dtype.kind in "biu":
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        fits = all(low <= number <= high and number == int(number) for number in numbers)
    else:
        exact = np.array(numbers, "float64")
        with np.errstate(over="ignore"):
            fits = bool((np.isfinite(exact.astype(dtype)) == np.isfinite(exact)).all())
    return dtype if fits else np.result_type(dtype, "float64")
