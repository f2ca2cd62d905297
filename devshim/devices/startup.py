"""Why a framework cannot start devices that it has counted: kept once per backend and kind of device.

A driver counts its cards without starting them, so it is the first call that uses one which finds out that the driver
is too old, that the process has no permission, or that a card is lost.  `raise_unstarted` writes that down; from then
on adapters count no devices of that kind, and every refusal of one says why.
"""

from __future__ import annotations

from devshim.devices.device import CPU

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

    T = TypeVar("T")

__all__ = ["ask", "look", "note", "raise_unstarted", "reason", "reasons"]

_REASONS: dict[tuple[str, str], str] = {}
_LOOKED_AT: set[tuple[str, Device]] = set()


def note(backend: str, kind: str, why: str) -> None:
    """Keep the reason why devices of a kind cannot start in this process, a sentence fragment."""
    _REASONS[backend, kind] = why


def reason(backend: str, kind: str) -> str | None:
    """Return why devices of a kind cannot start; None as long as no call has failed of it."""
    return _REASONS.get((backend, kind))


def reasons(backend: str) -> list[str]:
    """Return the reasons of all kinds of devices of a backend."""
    return [why for (name, _), why in _REASONS.items() if name == backend]


def ask(backend: Backend, device: Device, how: Callable[[Device], T]) -> T:
    """Return what a method of the backend answers about a device; raise `DeviceNotFoundError` if it cannot start."""
    try:
        return how(device)
    except Exception as error:
        raise_unstarted(backend, error, device)
        raise


def look(backend: Backend, device: Device) -> None:
    """Look at a device once, for calls that do nothing as long as it has not been used: they would pass silently."""
    if (backend.name, device) not in _LOOKED_AT:
        ask(backend, device, backend.describe)
        _LOOKED_AT.add((backend.name, device))


def raise_unstarted(backend: Backend, error: Exception, device: Device) -> None:
    """Raise `DeviceNotFoundError` if a call failed because the framework cannot start the GPUs that it has counted."""
    why = backend.why_unable_to_start(error)
    if why is None:
        return
    from devshim.errors import messages

    note(backend.name, "gpu" if device is CPU else device.kind, why)
    raise (messages.not_started(backend, why) if device is CPU else messages.not_found(backend, device)) from error
