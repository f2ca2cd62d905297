"""Questions to the NVIDIA driver through NVML (nvidia-ml-py), which need no framework and no CUDA context.

NVML counts all cards of the machine and ignores ``CUDA_VISIBLE_DEVICES``. This module applies the variable as CUDA
does: from the left, up to the first entry that names no card.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Card",
    "card_at",
    "cards",
    "cuda_started",
    "driver_version",
    "has_driver_order",
    "parse_visible_devices",
    "select_shown",
    "visible_cards",
    "why_no_cards",
    "why_no_more",
]


@dataclass(frozen=True)
class Card:
    """One NVIDIA card as its driver sees it.

    Attributes:
        index: The driver's own number, before ``CUDA_VISIBLE_DEVICES``.
        name: The model.
        uuid: ``GPU-...``.
        total_memory: Bytes; None if the card shares the host's memory and NVML does not report it.
        free_memory: Bytes not used by any process; None if NVML does not report them.
        capability: The compute capability as CUDA numbers it; None if NVML does not report it.
        in_slices: True if the card is in MIG mode: CUDA shows slices of it, never the card.
    """

    index: int
    name: str
    uuid: str
    total_memory: int | None
    free_memory: int | None
    capability: tuple[int, int] | None = None
    in_slices: bool = False


_started: Any = None
"""The module with which devshim started NVML. NVML stays started, because starting it takes the driver milliseconds."""


def _query(question: Any) -> tuple[Any, str | None]:
    """Return the result of ``question(pynvml)`` and None, or None and the reason why NVML has no answer."""
    try:
        import pynvml
    except ImportError as error:
        return None, f"nvidia-ml-py cannot be imported ({error})"
    if hasattr(getattr(pynvml, "nvmlLib", None), "is_simulated"):  # for the program, not for devshim itself
        return None, "simulated GPUs hide the real ones"
    try:
        return _answer(pynvml, question), None
    except pynvml.NVMLError as error:
        return None, _reason(error)


def _answer(pynvml: Any, question: Any) -> Any:
    """Ask NVML, and start it if it is not running: another library may have shut it down."""
    global _started
    if _started is pynvml:
        try:
            return question(pynvml)
        except pynvml.NVMLError as error:
            if type(error).__name__ != "NVMLError_Uninitialized":
                raise
    pynvml.nvmlInit()
    _started = pynvml
    return question(pynvml)


def _reason(error: Exception) -> str:
    if type(error).__name__ == "NVMLError_LibraryNotFound":
        return "no NVIDIA driver is installed (libnvidia-ml.so.1 is not there)"
    return f"the NVIDIA driver does not answer ({error})"


def cards() -> list[Card]:
    """Return all NVIDIA cards of the machine; an empty list if no driver answers."""
    return _query(_list)[0] or []


def _list(pynvml: Any) -> list[Card]:
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
        memory, computes = _memory(pynvml, handle), _capability(pynvml, handle)
        found.append(Card(index, _text(name), _text(uuid), *memory, computes, _in_slices(pynvml, handle)))
    return found


def _in_slices(pynvml: Any, handle: Any) -> bool:
    """Return True if a GPU is in MIG mode; most cards do not support it."""
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except (AttributeError, pynvml.NVMLError):
        return False


def _capability(pynvml: Any, handle: Any) -> tuple[int, int] | None:
    """Return the compute capability of one card, such as (9, 0)."""
    try:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    except (AttributeError, pynvml.NVMLError):  # missing in another library named pynvml, or not supported
        return None
    return int(major), int(minor)


def _memory(pynvml: Any, handle: Any) -> tuple[int | None, int | None]:
    """Return the total and free bytes of one card."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError:  # "Not Supported" on integrated GPUs, such as GB10; the card still exists
        return None, None
    return int(memory.total), int(memory.free)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value  # bytes in nvidia-ml-py before 11.515


def driver_version() -> str | None:
    """Return the NVIDIA driver's version, or None if no driver answers."""
    version = _query(lambda pynvml: pynvml.nvmlSystemGetDriverVersion())[0]
    return None if version is None else _text(version)


def why_no_cards() -> str:
    """Return why there are no NVIDIA cards, as a sentence fragment."""
    count, reason = _query(lambda pynvml: pynvml.nvmlDeviceGetCount())
    return reason or (f"the driver shows {count}" if count else "the NVIDIA driver answers, but shows no GPU")


def parse_visible_devices(value: str) -> list[str]:
    """Return the entries of ``CUDA_VISIBLE_DEVICES`` before the first invalid one, such as "-1" or "NoDevFiles"."""
    names = [name.strip() for name in value.split(",")]
    return names[: next((i for i, name in enumerate(names) if not name or name.startswith(("-", "No"))), len(names))]


def select_shown(value: str, among: Sequence[Card]) -> list[Card]:
    """Return the cards that a value of ``CUDA_VISIBLE_DEVICES`` shows, in its order, without slices of cards (MIG).

    A card that is named twice hides all cards, as in CUDA.
    """
    found: list[Card] = []
    for name in parse_visible_devices(value):
        number = re.match(r"\+?\d+", name)  # CUDA reads "1a" as 1
        named = [card for card in among if (int(number[0]) == card.index if number else _starts_uuid(name, card))]
        if len(named) != 1:
            break
        if named[0] in found:
            return []
        found += named
    return found


def _starts_uuid(name: str, card: Card) -> bool:
    return name.startswith("GPU-") and card.uuid.startswith(name)


def visible_cards() -> list[Card]:
    """Return the cards that ``CUDA_VISIBLE_DEVICES`` shows, in its order; an empty list without a driver."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return cards() if value is None else select_shown(value, cards())


def has_driver_order(there: Sequence[Card]) -> bool:
    """Return True if CUDA numbers all cards of the machine as the driver does.

    The driver numbers cards by PCI bus. CUDA does the same if ``CUDA_DEVICE_ORDER`` is set to that; otherwise the
    fastest card comes first.
    """
    return os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({card.name for card in there}) < 2


def card_at(index: int) -> Card | None:
    """Return the driver's card for an index of CUDA, or None if that is uncertain.

    CUDA numbers different cards by speed and the driver by bus, unless CUDA is set to use the bus as well, or the
    variable names cards by UUID. Of a card in MIG mode CUDA shows a slice, which has its own UUID and less memory.
    """
    there, value = cards(), os.environ.get("CUDA_VISIBLE_DEVICES")
    found = there if value is None else select_shown(value, there)
    by_bus = has_driver_order(there)
    by_uuid = value is not None and all(name.startswith("GPU-") for name in parse_visible_devices(value))
    sure = (by_bus or by_uuid) and not any(card.in_slices for card in found)
    return found[index] if sure and index < len(found) else None


def why_no_more(count: int) -> str:
    """Return why a framework that supports NVIDIA cards has only ``count``, as a sentence fragment."""
    value, there, seen = os.environ.get("CUDA_VISIBLE_DEVICES"), cards(), visible_cards()
    left = max(count, len(seen))  # the framework may count slices of cards
    if any(card.in_slices for card in seen):
        return "a GPU is in MIG mode, where CUDA shows one slice to a process; CUDA_VISIBLE_DEVICES=MIG-... selects it"
    if value is not None and left < len(there):
        return f"CUDA_VISIBLE_DEVICES={value[:40]!r} hides {len(there) - left} of {len(there)} GPUs"
    return "the driver shows no more" if count else why_no_cards()


def cuda_started() -> bool:
    """Return True if this process has initialized CUDA, which reads ``CUDA_VISIBLE_DEVICES`` only at that time.

    The driver is asked only if it is loaded already: before ``cuInit`` it answers CUDA_ERROR_NOT_INITIALIZED (3).
    """
    if not hasattr(os, "RTLD_NOLOAD"):
        return False
    try:
        driver: Any = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        return int(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))) != 3
    except (OSError, AttributeError):
        return False
