"""The reasons why a framework cannot start devices that it has counted, stored per backend and kind of device.

A driver counts its cards without starting them. So the first call that uses a card discovers that the driver is too
old, that the process has no permission, or that a card is lost. `devshim.registry.start_failures` stores the reason
here. From then on adapters count no devices of that kind, and every error about one states the reason.
"""

from __future__ import annotations

__all__ = ["note", "reason", "reasons"]

_REASONS: dict[tuple[str, str], str] = {}


def note(backend: str, kind: str, why: str) -> None:
    """Store the reason why devices of a kind cannot start in this process, a sentence fragment."""
    _REASONS[backend, kind] = why


def reason(backend: str, kind: str) -> str | None:
    """Return why devices of a kind cannot start; None as long as no call has failed for that reason."""
    return _REASONS.get((backend, kind))


def reasons(backend: str) -> list[str]:
    """Return the reasons for all kinds of devices of a backend."""
    return [why for (name, _), why in _REASONS.items() if name == backend]
