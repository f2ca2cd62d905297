"""The copy engine: every copy and every new tensor is made here, between a check before and a check after.

Requirements of this module:

* A device that does not exist is refused before anything is touched, on every framework.
* A result is on the requested device, or the call raises: nothing goes elsewhere silently.
* A full device is the same error everywhere, which names the device and the bytes.
* Observers of copies (a ledger, a guard, a rollback) have one place where they attach.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import repeat
from operator import attrgetter, is_not

from devshim.devices.device import CPU, Device
from devshim.errors import DevshimError, TracingError, UnsupportedError, messages
from devshim.registry import missing_devices, platform_names
from devshim.transfers import observing
from devshim.transfers.sources import source_of, sources_of

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    import numpy as np

    from devshim.contract.backend import Backend, Tensor
    from devshim.transfers.observing import Active

    T = TypeVar("T")


# ---------------------------------------------------------------------- decisions
def are_on_host(backend: Backend, xs: Sequence[Tensor]) -> bool:
    """Return True if a fast check shows that all tensors are in host memory, and so none belongs to a trace."""
    flag = backend.fast_paths.host_flag
    return bool(flag) and not any(map(is_not, map(attrgetter(flag), xs), repeat(True)))


def devices_of(backend: Backend, xs: Sequence[Tensor]) -> list[Device | None]:
    """Return the device of each tensor; None for one of a function that is being compiled."""
    if are_on_host(backend, xs):
        return [CPU] * len(xs)
    return [None if backend.is_tracer(x) else backend.device_of(x) for x in xs]


def is_placed(backend: Backend, x: Tensor, target: Device, copy: bool | None) -> bool:
    """Return True if ``x`` itself is the result of a placement."""
    if copy is True:
        return False
    if copy is not None and copy is not False:
        backend.raise_error(messages.bad_flag, (copy,))
    try:
        if backend.device_of(x) is target:
            return True
    except TracingError as error:
        if "trace_place" in backend.gaps or "trace_device_of" not in backend.gaps:
            instead = "place the arguments before the compiled function is called, or its results after"
            backend.raise_error(messages.tracing, (backend, "place", instead), error)
        if copy is None:
            return False  # the framework moves a tensor of unknown device (tf.function)
        raise
    except UnsupportedError:
        if backend.shards(x) is None:
            raise
        if copy is False:
            require(backend, target)
            raise messages.cannot_share("this tensor", "its data is on several devices") from None
        return False
    if copy is False:
        require_for(backend, target, (x,))
        backend.raise_error(messages.copy_needed, (backend.device_of(x), target))
    return False


def require_for(backend: Backend, device: Device, xs: Sequence[Tensor]) -> Device:
    """Return a device to which tensors of a backend may be copied, or raise `DeviceNotFoundError`."""
    require(backend, device)
    if backend.has_plain_arrays and device is not CPU and any(backend.device_of(x) is CPU for x in xs):
        missing_devices.refuse_plain_array(backend, device)
    return device


def require(backend: Backend, device: Device) -> Device:
    """Return the device if the backend has it, or raise `DeviceNotFoundError`."""
    require_observed(observing.ACTIVE, backend, device)
    return device


def require_observed(active: Active | None, backend: Backend, device: Device) -> None:
    """Check a device as `require` does, for a caller that has read `observing.ACTIVE` already."""
    if device is not CPU and device.index >= backend.count(device.kind):
        backend.raise_error(missing_devices.not_found_error, (backend, device))
    if active is not None and active.fault is not None:
        active.fault(backend, None, device, "a call that names it")


def require_dtype(backend: Backend, device: Device, dtype: str) -> None:
    """Raise `ConversionError` for a dtype that a device cannot hold, such as float64 on the GPU of a Mac."""
    if device is not CPU and device.kind == "gpu" and dtype in backend.dtypes_lacking:
        backend.raise_error(platform_names.dtype_error, (backend, device, dtype))


# ---------------------------------------------------------------------- one tensor
def place(
    active: Active | None, backend: Backend, x: T, target: Device, copy: bool | None, non_blocking: bool = False
) -> T:
    """Return a tensor itself, or a copy of it, on a device.

    Args:
        active: `devshim.transfers.observing.ACTIVE`, which the caller has read.
        backend: The tensor's backend.
        x: The tensor.
        target: The device.
        copy: As for `devshim.place`.
        non_blocking: As for `devshim.place`.
    """
    if is_placed(backend, x, target, copy):
        return x
    return move_observed(active, backend, x, target, non_blocking)


def move(backend: Backend, x: T, target: Device, non_blocking: bool = False) -> T:
    """Copy one tensor to a device within its framework: new memory, checked on arrival."""
    return move_observed(observing.ACTIVE, backend, x, target, non_blocking)


def move_observed(active: Active | None, backend: Backend, x: T, target: Device, non_blocking: bool) -> T:
    """Copy one tensor as `move` does, for a caller that has read `observing.ACTIVE` already.

    The adapter's fast path copies a plain tensor to the host. If something observes the copy, it is recorded first.
    """
    copier = backend.fast_paths.host_copy.get(type(x)) if active is None and target.text == "cpu" else None
    if copier is not None:
        try:
            copied: T | None = copier(x)
        except Exception as error:
            raise_full(backend, error, CPU, backend.nbytes(x))
            raise
        if copied is not None:
            return copied
    if target is not CPU or active is not None:  # a copy to the host that nothing observes needs no check
        require_observed(active, backend, target)
    if backend.dtypes_lacking:
        require_dtype(backend, target, backend.dtype_name(x))
    sources = () if active is None else sources_of(backend, x)
    if active is not None and sources:
        with _observe(active, backend, sources, target):
            trigger_fault(active, backend, x, target)
            return move_observed(None, backend, x, target, non_blocking)
    try:
        result: T = backend.copy_to(x, target, non_blocking)
    except Exception as error:
        raise_full(backend, error, target, backend.nbytes(x))
        raise
    if target is CPU and backend.fast_paths.host_flag and getattr(result, backend.fast_paths.host_flag) is True:
        return result
    if backend.device_of(result) is not target:
        raise_misplaced(backend, target, result)
    return result


def _observe(
    active: Active, backend: Backend, sources: Sequence[tuple[Device, int]], target: Device
) -> AbstractContextManager[object]:
    """Return the observers' context for the copy of a tensor: one context for each device that the bytes come from."""
    record = active.record
    if record is None:
        return nullcontext()
    if len(sources) == 1:  # nearly always
        ((source, nbytes),) = sources
        return record(backend, source, target, nbytes, 1) or nullcontext()
    entered = ExitStack()
    for each in [record(backend, source, target, nbytes, 1) for source, nbytes in sources]:
        if each is not None:
            entered.enter_context(each)
    return entered


def trigger_fault(active: Active, backend: Backend, x: Tensor, target: Device) -> None:
    """Trigger a simulated fault of the copy of a tensor."""
    if active.fault is not None:
        active.fault(backend, source_of(backend, x), target, f"a copy of {backend.nbytes(x):,} bytes")


# ---------------------------------------------------------------------- new tensors
def to_host(backend: Backend, x: Tensor, copy: bool, device: Device | None = None) -> np.ndarray[Any, Any]:
    """Copy a tensor's values into NumPy memory, or with ``copy=False`` make an array over the tensor's memory.

    Args:
        backend: The tensor's backend.
        x: The tensor.
        copy: True for new memory.
        device: The tensor's device, if the caller has read it already.
    """
    if backend.compiling():
        from devshim.registry import tracing

        tracing.refuse("to_numpy", "return the tensor from the compiled function, and read it outside")
    if not copy and (source_of(backend, x) if device is None else device) is not CPU:
        raise messages.copy_needed(source_of(backend, x), CPU)
    active = observing.ACTIVE
    if active is None:
        found = fast_copy(backend, x) if copy else None
        return backend.to_numpy(x, copy) if found is None else found
    trigger_fault(active, backend, x, CPU)
    sources = backend.sources(x) if copy and active.record is not None else ()
    with _observe(active, backend, sources, CPU):
        return backend.to_numpy(x, copy)


def fast_copy(backend: Backend, x: Tensor) -> np.ndarray[Any, Any] | None:
    """Return the values of a plain tensor on the host, by the adapter's fast path, or None."""
    read = backend.fast_paths.numpy_copy.get(type(x))
    try:
        return None if read is None else read(x)
    except Exception:  # the adapter's slow path fails in the same way, and says why
        return None


def from_host(backend: Backend, array: np.ndarray, target: Device, copy: bool) -> tuple[Any, ...]:
    """Return the arguments with which `make` copies NumPy memory into a tensor, or shares it (``copy=False``)."""
    active = observing.ACTIVE
    require_observed(active, backend, target)
    return from_host_observed(active, backend, array, target, copy)


def from_host_observed(
    active: Active | None, backend: Backend, array: np.ndarray, target: Device, copy: bool
) -> tuple[Any, ...]:
    """Return the arguments for `make` as `from_host` does, for a caller that has called `require_observed` already."""
    if backend.dtypes_lacking:
        require_dtype(backend, target, array.dtype.name)
    if not copy:
        from devshim.transfers import alignment

        alignment.require(backend, array, target)
    if active is not None and active.fault is not None:
        active.fault(backend, CPU, target, f"a copy of {array.nbytes:,} bytes")
    return (backend, target, array.nbytes, backend.from_numpy, array, target, copy)


def make(
    backend: Backend, target: Device | None, nbytes: int | None, how: Callable[..., Tensor], *args: object
) -> Tensor:
    """Create a tensor on an existing device by calling ``how(*args)``, and check where it is."""
    if target is None:  # in a compiled function: the tensor has a device when that is called
        return how(*args)
    active = observing.ACTIVE
    if active is not None and active.record is not None:  # `from_host` passes bytes; its last argument is `copy`
        recording = active.record(backend, CPU, target, nbytes if args[-1] is True else None, 1)
        if recording is not None:
            with recording:
                return make(backend, target, nbytes, how, *args)
    try:
        result = how(*args)
    except Exception as error:
        if isinstance(error, DevshimError):
            raise
        raise_full(backend, error, target, _requested_bytes(backend, args) if nbytes is None else nbytes)
        raise
    if target is CPU and backend.fast_paths.host_flag and getattr(result, backend.fast_paths.host_flag) is True:
        return result
    if backend.device_of(result) is not target:
        raise_misplaced(backend, target, result)
    return result


def raise_misplaced(backend: Backend, asked: Device, result: Tensor) -> None:
    """Raise `PlacementError` for a result that is not on the requested device."""
    backend.raise_error(messages.misplaced, (backend, asked, backend.device_of(result)))


def _requested_bytes(backend: Backend, args: tuple[object, ...]) -> int | None:
    """Return the bytes that ``(..., shape, ..., dtype, device)`` asks an adapter to create; None without a shape."""
    from math import prod

    shape = next((each for each in args if isinstance(each, tuple)), None)
    return None if shape is None else prod(shape) * backend.nbytes(backend.zeros((1,), args[-2], CPU))


def raise_full(backend: Backend, error: Exception, device: Device, nbytes: int | None) -> None:
    """Raise devshim's error for a full device or one that cannot start; an error of devshim already says it."""
    from devshim.registry import start_failures

    if isinstance(error, DevshimError):
        return
    if backend.is_out_of_memory(error):
        backend.raise_error(messages.out_of_memory, (backend, device, nbytes), error)
    start_failures.raise_unstarted(backend, error, device)
