"""Calls that may discover that a device cannot start: they store the reason and raise `DeviceNotFoundError`."""

from __future__ import annotations

from devshim.devices import startup
from devshim.devices.device import CPU
from devshim.errors import messages
from devshim.registry import missing_devices

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

    T = TypeVar("T")

__all__ = ["ask_device", "raise_unstarted", "touch_device"]

_LOOKED_AT: set[tuple[str, Device]] = set()


def ask_device(backend: Backend, device: Device, how: Callable[[Device], T]) -> T:
    """Return the result of a backend's method for a device; raise `DeviceNotFoundError` if the device cannot start."""
    try:
        return how(device)
    except Exception as error:
        raise_unstarted(backend, error, device)
        raise


def touch_device(backend: Backend, device: Device) -> None:
    """Touch a device once, for calls that do nothing while it is unused and would otherwise succeed silently."""
    if (backend.name, device) not in _LOOKED_AT:
        ask_device(backend, device, backend.describe)
        _LOOKED_AT.add((backend.name, device))


def raise_unstarted(backend: Backend, error: Exception, device: Device) -> None:
    """Raise `DeviceNotFoundError` if a call failed because the framework cannot start the GPUs that it has counted."""
    why = backend.why_unable_to_start(error)
    if why is None:
        return
    startup.note(backend.name, "gpu" if device is CPU else device.kind, why)
    if device is CPU:
        backend.raise_error(messages.not_started, (backend, why), error)
    backend.raise_error(missing_devices.not_found_error, (backend, device), error)
