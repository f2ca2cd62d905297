"""How a new tensor is made: the arguments of `devshim.transfers.engine.make` for a call of the user.

The public functions call `engine.make` themselves, so that at most three frames lead to the framework.

A tensor that is made like a tracer has no device yet, if the compiler of its framework knows none: the compiled
function has it where the tracer is (`beside`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.devices.dtypes import DTYPES
from devshim.errors import TracingError
from devshim.errors.messages import tracing
from devshim.registry import current
from devshim.tensors import arguments, default_dtypes, fitting, lengths
from devshim.transfers import engine, observing

if TYPE_CHECKING:
    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike

__all__ = ["beside", "dtype_and_device_like", "find_like", "is_unplaced", "plan", "plan_for", "plan_like"]
__all__ += ["runs_on_one_device"]


def plan(
    call: str,
    args: tuple[object, ...],
    dtype: object,
    device: DeviceLike | None,
    like: Tensor | None = None,
    *more: object,
) -> tuple[Any, ...]:
    """Return the arguments of `engine.make` for a tensor made by the backend's method ``call``.

    Args:
        call: The method, such as ``"zeros"``.
        args: Its arguments before the dtype.
        dtype: The user's dtype, or None.
        device: The user's device, or None.
        like: The tensor whose framework, dtype and device the result has, or None.
        *more: The arguments of the method after the device.
    """
    if like is None:
        backend = current.current()
        return (*plan_for(backend, call, arguments.target(backend, device), args, dtype), *more)
    backend, model = arguments.tensor_of(like, f"{call}(like=...)")
    found = find_like(backend, model, dtype, device, f"{call}(like=...)")
    if found is None:
        return beside(backend, model, call, (*args, *more), dtype)
    wanted, where, _ = found
    return (*plan_for(backend, call, where, args, wanted), *more)


def plan_like(call: str, x: Tensor, dtype: object, device: DeviceLike | None, *value: object) -> tuple[Any, ...]:
    """Return the arguments of `engine.make` for a tensor in the shape of another; the value is that of `full_like`."""
    name = f"{call}_like"
    backend, x = arguments.tensor_of(x, name)
    found = find_like(backend, x, dtype, device, name, shaped=True)
    if found is None:
        return beside(backend, x, name, value, dtype)
    wanted, where, shape = found
    return plan_for(backend, call, where, (shape, *value), wanted)


def plan_for(backend: Backend, call: str, where: Device, args: tuple[object, ...], wanted: object) -> tuple[Any, ...]:
    """Return the same as `plan`, for a given backend and an existing device."""
    if wanted is None:
        wanted = default_dtypes.default_for(call, args)
    native = arguments.dtype(backend, wanted)
    if native is not None and call in fitting.CALLS:
        fitting.require_fit(call, args, arguments.dtype_name(backend, wanted))
    if backend.dtypes_lacking and where is not CPU and native is not None:
        engine.require_dtype(backend, where, backend.dtype_name(backend.zeros((0,), native, CPU)))
    observing.show_call(backend, call, where, args, wanted)
    return (backend, where, None, getattr(backend, call), *args, native, where)


def beside(backend: Backend, x: Tensor | None, call: str, args: tuple[object, ...], wanted: object) -> tuple[Any, ...]:
    """Return the same as `plan` for a tensor in a compiled function, which is where a tracer is when that is called.

    Args:
        backend: The framework.
        x: The tracer, or None for the device of the whole function.
        call: The method, or ``"zeros_like"`` and so on.
        args: Its arguments except for the dtype and the device.
        wanted: The dtype, or None for that of ``x``.
    """
    if wanted is None:
        wanted = default_dtypes.default_for(call, args) if x is None else _dtype_of(backend, x)
    native = arguments.dtype(backend, wanted)
    method = call.removesuffix("_like")
    if native is not None and method in fitting.CALLS:
        shaped = args if method == call else (None, *args)
        fitting.require_fit(method, shaped, arguments.dtype_name(backend, wanted))
    return (backend, None, None, backend.create_beside, x, call, args, native)


def find_like(
    backend: Backend, x: Tensor, dtype: object, device: DeviceLike | None, call: str, *, shaped: bool = False
) -> tuple[Any, Device, tuple[int, ...]] | None:
    """Return the dtype and the device of a tensor that is made like ``x``, and its shape if that is needed.

    The result is None if only the compiled function knows them, and no device is given: see `beside`.

    Raises:
        TracingError: As for `dtype_and_device_like` and `lengths.known_shape`, if a device is given.
    """
    try:
        wanted, where = dtype_and_device_like(backend, x, dtype, device, call)
        return wanted, where, lengths.known_shape(backend, x, call) if shaped else ()
    except TracingError:
        if device is not None:
            raise
        return None


def dtype_and_device_like(
    backend: Backend, x: Tensor, dtype: object, device: DeviceLike | None, call: str
) -> tuple[Any, Device]:
    """Return the dtype and the device of a tensor that is made like ``x``, unless they are given.

    Raises:
        TracingError: ``call`` is inside a compiled function, in which the framework does not report the device of
            ``x``.
    """
    outside = "create the tensor outside, and pass it in"
    if device is None and runs_on_one_device(backend):
        raise tracing(backend, call, outside)
    try:
        where = (
            backend.device_of(x)
            if device is None
            else engine.require_for(backend, parsing.device_of_argument(device), (x,))
        )
    except TracingError as error:
        raise tracing(backend, call, outside) from error.__cause__
    return (_dtype_of(backend, x) if dtype is None else dtype), where


def is_unplaced(backend: Backend, x: Tensor) -> bool:
    """Return True for a tracer, and in a compiled function that runs on one device as a whole."""
    return backend.is_tracer(x) or runs_on_one_device(backend)


def runs_on_one_device(backend: Backend) -> bool:
    """Return True if the calling code is compiled for one device, which is known when the function is called."""
    return backend.jit_is_single_device and backend.compiling()


def _dtype_of(backend: Backend, x: Tensor) -> Any:
    name = backend.dtype_name(x)
    return name if name in DTYPES else backend.dtype(name)
