"""`asarray`: a tensor with the values of an object: numbers, arrays, tensors, and lists of them; and `from_numpy`.

The defaults of device and dtype are those of `devshim.tensors.creation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.errors import ConversionError, DevshimError, messages
from devshim.registry import current, registry, tracing
from devshim.tensors import arguments, fitting, numpy_lists, on_host, plans, stacking, value_hints
from devshim.tensors.on_host import COPY
from devshim.transfers import engine, observing

if TYPE_CHECKING:
    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike
    from devshim.transfers.observing import Active

__all__ = ["asarray", "from_array", "from_numpy", "values_of"]


def asarray(
    obj: object,
    *,
    dtype: object = None,
    device: DeviceLike | None = None,
    copy: bool | None = None,
    like: Tensor | None = None,
) -> Tensor:
    """Return a tensor with the values of an object.

    Args:
        obj: A Python number, nested sequences of numbers, a NumPy array, anything NumPy can read, or a tensor. The
            result of a tensor has its framework, and its device unless ``device`` is given. Nested lists of tensors
            are stacked on the device that all share, or on ``device``, in the widest dtype of the highest kind (float32
            for int64 and float32), and gradients flow to them. A number in a list takes the dtype of the first tensor
            that can represent it. Lists that contain NumPy arrays or scalars have the same rule.
        dtype: The dtype of the result; without it, the dtype of ``obj``; for Python numbers, the default.
        device: The target; without it, the device of ``obj`` if it is a tensor, the device of `on`, or the CPU.
        copy: As for `place` (a tensor) or `from_numpy` (an array); Python numbers are always copied.
        like: A tensor whose framework, dtype and device the result has; ``dtype`` and ``device`` take precedence.

    Raises:
        ArgumentError: ``obj`` is a tensor of another framework than ``like``.
        NotATensorError: ``like`` is not a tensor.
        ConversionError: An item is not a number, cannot be stacked, or does not fit the dtype, which may be missing.
        DeviceMismatchError: Tensors in a list are on different devices, and ``device`` is not given.
        CopyNeededError: ``copy=False``, but a copy is needed.
        DeviceNotFoundError: The framework does not have the device.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.dtype_of(ds.asarray([1, 2], like=ds.ones(3, dtype="float32")))
        'float32'
    """
    is_plain = like is None and copy is not False and on_host.are_numbers(obj)
    if is_plain and (new := on_host.make("asarray", (obj,), (), dtype, device)) is not None:
        return new
    _check_array(obj)
    owner = None
    if like is not None:
        owner, dtype, device, beside = _as_like(like, obj, dtype, device, copy)
        if beside is not None:
            return engine.make(*beside)
    active, backend = observing.ACTIVE, registry.backend_for(obj)
    if backend is not None and not _is_foreign(backend, obj, owner):
        if owner is not None and backend is not owner:
            raise messages.several_frameworks("ds.asarray(like=...)", (backend, owner), owner)
        if device is None and copy is not True and plans.is_unplaced(backend, obj):
            return _cast(backend, obj, arguments.dtype(backend, dtype), copy)[0]
        return engine.place(*_placement(active, backend, obj, dtype, device, copy))
    is_array = backend is not None and like is dtype is None and (copy is None or copy is True)
    if is_array and (new := on_host.make(COPY, (obj,), (), None, device)) is not None:
        return new  # from a NumPy array, while another framework is current
    found = _stackable(obj, owner) if type(obj) is list or type(obj) is tuple else None
    if found:
        return stacking.stack_lists(obj, found, dtype, device, copy)
    plan = _make_arguments(owner or current.current(), obj, dtype, device, copy)
    x = _make_of_values(active, plan)
    return x if dtype is None or type(obj) in _NUMBERS else _cast(plan[0], x, arguments.dtype(plan[0], dtype), copy)[0]


def from_numpy(a: np.ndarray[Any, Any], device: DeviceLike | None = None, *, copy: bool | None = None) -> Tensor:
    """Return a tensor of the current framework with a NumPy array's values.

    Args:
        a: An array of any strides and byte order; a NumPy scalar counts as 0-d.
        device: The target; without it, the device of the innermost `on`, or the CPU.
        copy: None or True: the tensor shares no memory with the array. False: it must share it, so that a
            later write to the array is visible in the tensor.

    Returns:
        A tensor of the same shape and dtype: 64-bit values stay 64 bits wide on every framework.

    Raises:
        ConversionError: The framework has no such dtype.
        CopyNeededError: ``copy=False``, but the memory cannot be shared.
        DeviceNotFoundError: The framework does not have that device.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> import numpy as np
        >>> a = np.ones(2)
        >>> ds.from_numpy(a) is a, ds.from_numpy(a, copy=False) is a
        (False, True)
    """
    if copy is None or copy is True:
        new = on_host.make(COPY, (a,), (), None, device)
        if new is not None:
            return new
    backend = current.current()
    if backend.compiling():
        tracing.refuse("from_numpy", "make the tensor outside, and pass it in")
    target = arguments.target(backend, None if device is None else parsing.device_of_call("from_numpy", a, device))
    return engine.make(*from_array(backend, arguments.numpy_array(a, copy), target, copy))


def from_array(backend: Backend, array: np.ndarray, target: Device, copy: bool | None) -> tuple[Any, ...]:
    """Return the arguments of `devshim.transfers.engine.make` that copy an array in host memory to a tensor."""
    if copy is not None and type(copy) is not bool:
        raise messages.bad_flag(copy)
    observing.show_call(backend, "from_numpy", target, (array,))
    return engine.from_host(backend, array, target, copy is not False)


_NUMBERS = frozenset({bool, int, float, complex, list, tuple})
"""The types that an adapter's `asarray` reads: Python numbers, and sequences of them."""


def values_of(backend: Backend, obj: Any) -> Any | None:
    """Return an object of numbers as Python numbers or a NumPy array; None for tensors, and lists of them."""
    if on_host.are_numbers(obj):
        return obj
    if isinstance(obj, (np.ndarray, np.generic)):
        return arguments.numpy_array(obj)
    if (type(obj) is not list and type(obj) is not tuple) or stacking.find_tensors(obj, framework=None):
        return None
    return _read_list(backend, obj)


def _check_array(obj: object) -> None:
    """Refuse a NumPy array that is not one of numbers, or is in code that a compiler reads: its memory is unknown."""
    if isinstance(obj, np.ndarray):
        if (reading := tracing.reading) is not None and reading():
            tracing.refuse_where_read("asarray", "make the tensor outside, and pass it in")
        arguments.require_numbers(obj)


def _is_foreign(backend: Backend, obj: object, owner: Backend | None) -> bool:
    """Return True if an object is a NumPy array that another framework (``owner``, or the current one) reads."""
    is_on_host = isinstance(obj, np.ndarray) and backend.device_of(obj) is CPU
    return is_on_host and backend is not (owner or current.current())


def _as_like(
    like: Tensor, obj: object, dtype: object, device: DeviceLike | None, copy: bool | None
) -> tuple[Backend, object, DeviceLike | None, tuple[Any, ...] | None]:
    """Return the framework of ``like``, and its dtype and device unless they are given.

    The last item is None, or the plan to make a tensor of numbers beside a tracer that has no device yet.
    """
    call = "asarray(like=...)"
    owner, model = arguments.tensor_of(like, call)
    found = plans.find_like(owner, model, dtype, device, call)
    if found is not None:
        return owner, *found[:2], None
    if copy is not False and (values := values_of(owner, obj)) is not None:
        return owner, dtype, device, plans.beside(owner, model, "asarray", (values,), dtype)
    return owner, *plans.dtype_and_device_like(owner, model, dtype, device, call), None  # raises the TracingError


def _placement(
    active: Active | None, backend: Backend, x: Tensor, dtype: object, device: DeviceLike | None, copy: bool | None
) -> tuple[Any, ...]:
    """Return the arguments of `devshim.transfers.engine.place` for a tensor that `asarray` was given."""
    target = backend.device_of(x) if device is None else engine.require(backend, parsing.device_of_argument(device))
    x, copy = _cast(backend, x, arguments.dtype(backend, dtype), copy)
    if active is not None and active.explain is not None:
        active.explain.call(backend, "copy" if copy else "place", target)
    return active, backend, x, target, copy


def _stackable(values: Any, owner: Backend | None) -> stacking.Found:
    """Return the tensors in nested lists, which are of the framework of ``like``."""
    try:
        found = stacking.find_tensors(values, framework=None if owner is None else owner.name)
    except RecursionError:
        raise value_hints.endless_list() from None
    for _, x, _ in found:
        if isinstance(x, np.ndarray):
            arguments.require_numbers(x)
    if found and owner is not None and (backend := stacking.framework_of(found)) is not owner:
        raise messages.several_frameworks("ds.asarray(like=...)", (backend, owner), owner)
    return found


def _make_arguments(
    backend: Backend, obj: Any, dtype: object, device: DeviceLike | None, copy: bool | None
) -> tuple[Any, ...]:
    """Return the arguments of `engine.make` that give a framework an object's values."""
    if type(obj) in _NUMBERS:
        if copy is False:
            raise messages.cannot_share("Python numbers", "they have no memory that a tensor could use")
        if (problem := arguments.no_number_in(obj)) is not None:
            raise _unreadable(backend, problem)
        if dtype is None and (array := _read_list(backend, obj)) is not None:
            return from_array(backend, array, arguments.target(backend, device), True)
        if dtype is not None and (found := _complex_array_in(obj)) is not None:
            fitting.require_complex(found, arguments.dtype_name(backend, arguments.dtype(backend, dtype)))
        return plans.plan_for(backend, "asarray", arguments.target(backend, device), (obj,), dtype)
    array = _host_array(backend, obj, copy)
    if dtype is not None and array.dtype.kind == "c":
        fitting.require_complex(array.dtype.name, arguments.dtype_name(backend, arguments.dtype(backend, dtype)))
    return from_array(backend, array, arguments.target(backend, device), copy)


def _complex_array_in(obj: Any) -> str | None:
    """Return the dtype of the first complex array or scalar of NumPy in nested lists, or None."""
    if type(obj) is list or type(obj) is tuple:
        return next(filter(None, map(_complex_array_in, obj)), None)
    return obj.dtype.name if isinstance(obj, (np.ndarray, np.generic)) and obj.dtype.kind == "c" else None


def _read_list(backend: Backend, obj: Any) -> np.ndarray | None:
    """Return a list that contains NumPy arrays or scalars as an array; None for other objects."""
    if type(obj) is not list and type(obj) is not tuple:
        return None
    try:
        return numpy_lists.read_list(backend, obj)
    except DevshimError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise _unreadable(backend, error) from error


def _make_of_values(active: Active | None, plan: tuple[Any, ...]) -> Tensor:
    """Return the tensor of `_make_arguments`, or raise an error that says which values cannot be read."""
    try:
        return engine.make(*plan) if active is None or active.record is None else _make_recorded(active.record, *plan)
    except DevshimError:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # PyTorch raises this for a None in the list
        raise _unreadable(plan[0], error) from error


def _make_recorded(record: Any, backend: Backend, target: Device, nbytes: int | None, *how: Any) -> Tensor:
    """Make a tensor while copies are recorded: Python numbers that go to a GPU count as a copy of the result's size."""
    recording = None if target is CPU or nbytes is not None else record(backend, CPU, target, 0, 1)
    if recording is None:
        return engine.make(backend, target, nbytes, *how)
    with recording:
        x = engine.make(backend, target, nbytes, *how)
        recording.set_nbytes(backend.nbytes(x))
    return x


def _host_array(backend: Backend, obj: object, copy: bool | None) -> np.ndarray:
    try:
        array = obj if isinstance(obj, np.ndarray) else np.asarray(obj)
    except (TypeError, ValueError) as error:  # an object's own __array__ may refuse
        raise _unreadable(backend, error) from error
    if array.dtype.kind in "OUS" and not isinstance(obj, (np.ndarray, np.generic)):
        raise _unreadable(backend, value_hints.no_numbers(obj))
    return arguments.numpy_array(array, copy)


def _unreadable(backend: Backend, error: Exception | str) -> ConversionError:
    return ConversionError(
        f"{backend.title} cannot read these values: {str(error).partition(chr(10))[0][:200].rstrip('. ')}",
        "pass a number, or nested sequences of numbers whose rows are equally long",
    )


def _cast(backend: Backend, x: Tensor, wanted: Any, copy: bool | None) -> tuple[Tensor, bool | None]:
    """Return the tensor in the wanted dtype, and the remaining ``copy`` flag: a cast is already a copy."""
    if wanted is None:
        return x, copy
    source = backend.dtype_name(x)
    if source.startswith("complex"):
        fitting.require_complex(source, arguments.dtype_name(backend, wanted))
    cast = backend.cast(x, wanted)
    if backend.dtypes_lacking:
        engine.require_dtype(backend, backend.device_of(cast), backend.dtype_name(cast))
    if backend.dtype_name(cast) == source:
        return x, copy
    if copy is False:
        raise messages.cannot_share("the tensor", "a tensor of another dtype needs new memory")
    return cast, None
