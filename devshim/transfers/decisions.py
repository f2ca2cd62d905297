"""The decision whether a placement copies a tensor, and the errors for placements that are not possible."""

from __future__ import annotations

from devshim.devices.device import CPU
from devshim.errors import TracingError, messages
from devshim.registry import missing_devices, traced_errors
from devshim.transfers import engine

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

__all__ = ["reach", "refuse_copy", "refuse_flag", "refuse_untraceable", "stays"]


def reach(backend: Backend, device: Device, xs: Sequence[Any]) -> Device:
    """Return a device to which tensors of a backend may be copied, or raise `DeviceNotFoundError`."""
    if backend.has_plain_arrays and device is not CPU and any(backend.device_of(x) is CPU for x in xs):
        missing_devices.refuse_for_numpy(device)
    return engine.require(backend, device)


def stays(backend: Backend, x: Tensor, target: Device, copy: bool | None) -> bool:
    """Return True if ``x`` itself is the result of a placement."""
    if copy is not None:
        return _settled(backend, x, target, copy)
    try:
        return backend.device_of(x) is target
    except TracingError as error:
        refuse_untraceable(backend, error)
        return False


def refuse_untraceable(backend: Backend, error: TracingError) -> None:
    """Raise `TracingError` for a tensor of unknown device, unless the backend can still move it (tf.function)."""
    if "trace_place" in backend.gaps or "trace_device_of" not in backend.gaps:
        instead = "place the arguments before the compiled function is called, or its results after"
        raise messages.tracing(backend, "place", instead) from error


def _settled(backend: Backend, x: Tensor, target: Device, copy: bool) -> bool:
    """Return True if an explicit ``copy`` allows ``x`` itself as the result."""
    if type(copy) is not bool:
        refuse_flag(copy)
    if not copy and backend.device_of(x) is not target:
        refuse_copy(backend, x, target)
    return not copy


def refuse_flag(copy: object) -> NoReturn:
    """Raise the error for a ``copy`` that is neither None nor a bool."""
    raise messages.bad_flag(copy)


def refuse_copy(backend: Backend, x: Tensor, target: Device) -> NoReturn:
    """Raise the error for ``copy=False`` and a tensor on another device."""
    reach(backend, target, (x,))
    if backend.traces_bytecode and backend.compiling():
        traced_errors.copy_needed(backend.name, str(backend.device_of(x)), str(target))
    raise messages.copy_needed(backend.device_of(x), target)
