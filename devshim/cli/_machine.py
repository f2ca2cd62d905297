"""What the machine itself says about its GPUs: the NVIDIA driver, and the variables that hide cards."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devshim import _nvml

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Machine", "look"]

_AMD = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Machine:
    """The NVIDIA side of a machine.

    Attributes:
        driver: The driver's version, or None.
        why: Why there is no driver or no card.
        cards: All cards the driver shows, hidden ones included.
    """

    driver: str | None
    why: str
    cards: tuple[_nvml.Card, ...]

    def variables(self) -> Iterator[tuple[str, str, str]]:
        """The variables that hide cards, where they are set: name, value, and what it does."""
        value = os.environ.get("CUDA_VISIBLE_DEVICES")
        if value is not None:
            yield "CUDA_VISIBLE_DEVICES", value, self._effect(value)
        for name in _AMD:
            if name in os.environ:
                shown = os.environ[name]
                yield name, shown, f"of AMD's cards shows only {shown}" if shown else "hides all of AMD's cards"

    def _effect(self, value: str) -> str:
        if "MIG-" in value:
            return "shows only these slices of cards"
        shown = self._shown(value)
        if not self.cards:
            return f"hides all cards but {value}" if _entries(value) else "hides all cards, had there been any"
        hidden = [str(card.index) for card in self.cards if card not in shown]
        if not shown:
            return f"hides all {len(self.cards)}"
        return f"hides {', '.join(hidden)}" if hidden else "hides none"

    def _shown(self, value: str) -> list[_nvml.Card]:
        """The cards CUDA would show: it reads from the left and stops at the first entry that names none."""
        shown: list[_nvml.Card] = []
        for entry in _entries(value):
            named = [card for card in self.cards if entry == str(card.index) or _is_uuid(entry, card)]
            if len(named) != 1:
                break
            shown += named
        return shown


def _entries(value: str) -> list[str]:
    """The entries up to the first that is no card's, such as -1."""
    found = []
    for entry in value.split(","):
        if not entry.strip() or entry.strip().startswith("-"):
            break
        found.append(entry.strip())
    return found


def _is_uuid(entry: str, card: _nvml.Card) -> bool:
    """Whether an entry is the start of a card's UUID, as CUDA takes it."""
    return entry.startswith("GPU-") and card.uuid.startswith(entry)


def look() -> Machine:
    """Ask the NVIDIA driver; its absence is an answer."""
    try:
        driver = _nvml.driver_version()
        cards = tuple(_nvml.cards())
        why = "" if cards else _nvml.why_none()
    except ImportError:
        return Machine(None, "the package nvidia-ml-py, which asks the driver, is not installed", ())
    return Machine(driver, why, cards)
