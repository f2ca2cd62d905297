"""Why a framework cannot start devices that it has counted: kept once per backend and kind of device.

A driver counts its cards without starting them, so it is the first call that uses one which finds out that the driver
is too old, that the process has no permission, or that a card is lost.  `devshim.registry.unstarted` notes that here;
from then on adapters count no devices of that kind, and every refusal of one says why.
"""

from __future__ import annotations

__all__ = ["note", "reason", "reasons"]

_REASONS: dict[tuple[str, str], str] = {}


def note(backend: str, kind: str, why: str) -> None:
    """Keep the reason why devices of a kind cannot start in this process, a sentence fragment."""
    _REASONS[backend, kind] = why


def reason(backend: str, kind: str) -> str | None:
    """Return why devices of a kind cannot start; None as long as no call has failed of it."""
    return _REASONS.get((backend, kind))


def reasons(backend: str) -> list[str]:
    """Return the reasons of all kinds of devices of a backend."""
    return [why for (name, _), why in _REASONS.items() if name == backend]
