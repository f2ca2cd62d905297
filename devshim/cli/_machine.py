"""The machine's GPUs without any framework: the NVIDIA driver, and the variables that hide GPUs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devshim.devices import nvml

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Machine", "look"]

_AMD = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Machine:
    """The NVIDIA driver and GPUs of a machine.

    Attributes:
        driver: The driver's version, or None.
        why: The reason for a missing driver or GPU.
        cards: All GPUs that the driver shows, including hidden ones.
    """

    driver: str | None
    why: str
    cards: tuple[nvml.Card, ...]

    def variables(self) -> Iterator[tuple[str, str, str]]:
        """Yield the variables that are set and hide GPUs: name, value, and effect."""
        value = os.environ.get("CUDA_VISIBLE_DEVICES")
        if value is not None:
            yield "CUDA_VISIBLE_DEVICES", value, self._effect(value)
        order = os.environ.get("CUDA_DEVICE_ORDER")
        if order is not None:
            by_bus = order == "PCI_BUS_ID"
            yield "CUDA_DEVICE_ORDER", order, f"CUDA numbers cards {'by bus, as here' if by_bus else 'by speed'}"
        for name in _AMD:
            if name in os.environ:
                shown = os.environ[name]
                yield name, shown, f"shows only {shown} of the AMD cards" if shown else "hides all AMD cards"

    def _effect(self, value: str) -> str:
        if "MIG-" in value:
            return "shows only these MIG slices"
        shown = nvml.select_shown(value, self.cards)
        if shown and not nvml.has_driver_order(self.cards) and not value.lstrip().startswith("GPU-"):
            return f"shows {len(shown)} of {len(self.cards)} cards, by CUDA's numbers: the fastest card is 0"
        if not self.cards:
            return (
                f"hides all cards but {value}"
                if nvml.parse_visible_devices(value)
                else "would hide all cards, but there are none"
            )
        hidden = [str(card.index) for card in self.cards if card not in shown]
        if not shown:
            return f"hides all {len(self.cards)}"
        return f"hides {', '.join(hidden)}" if hidden else "hides none"


def look() -> Machine:
    """Ask the NVIDIA driver; a missing driver is a valid answer."""
    try:
        driver = nvml.driver_version()
        cards = tuple(nvml.cards())
        why = "" if cards else nvml.why_no_cards()
    except ImportError:
        return Machine(None, "the package nvidia-ml-py, which asks the driver, is not installed", ())
    return Machine(driver, why, cards)
