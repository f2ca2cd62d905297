"""The NVIDIA driver, asked through NVML (nvidia-ml-py): no framework and no CUDA context is needed.

NVML counts all cards of the machine; ``CUDA_VISIBLE_DEVICES`` does not concern it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Card", "cards", "driver_version", "why_none"]


@dataclass(frozen=True)
class Card:
    """One NVIDIA card as its driver sees it.

    Attributes:
        index: The driver's own number, before ``CUDA_VISIBLE_DEVICES``.
        name: The model.
        uuid: ``GPU-...``.
        total_memory: Bytes; None where the card shares the host's memory, and NVML does not tell.
        free_memory: Bytes not used by any process, or None likewise.
    """

    index: int
    name: str
    uuid: str
    total_memory: int | None
    free_memory: int | None


def _asked(question: Any) -> tuple[Any, str | None]:
    """The answer of ``question(pynvml)``, or None and the reason."""
    try:
        import pynvml
    except ImportError as error:
        return None, f"nvidia-ml-py cannot be imported ({error})"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, _reason(error)
    try:
        return question(pynvml), None
    except pynvml.NVMLError as error:
        return None, _reason(error)
    finally:
        pynvml.nvmlShutdown()


def _reason(error: Exception) -> str:
    if type(error).__name__ == "NVMLError_LibraryNotFound":
        return "no NVIDIA driver is installed (libnvidia-ml.so.1 is not there)"
    return f"the NVIDIA driver does not answer ({error})"


def cards() -> list[Card]:
    """Return all NVIDIA cards of the machine; an empty list where no driver answers."""
    return _asked(_list)[0] or []


def _list(pynvml: Any) -> list[Card]:
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
        found.append(Card(index, _text(name), _text(uuid), *_memory(pynvml, handle)))
    return found


def _memory(pynvml: Any, handle: Any) -> tuple[int | None, int | None]:
    """Total and free bytes of one card."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError:  # "Not Supported" on integrated ones, such as GB10; the card is there all the same
        return None, None
    return int(memory.total), int(memory.free)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value  # bytes in nvidia-ml-py before 11.515


def driver_version() -> str | None:
    """Return the NVIDIA driver's version, or None where none answers."""
    version = _asked(lambda pynvml: pynvml.nvmlSystemGetDriverVersion())[0]
    return None if version is None else _text(version)


def why_none() -> str:
    """Return why there are no NVIDIA cards, as a sentence fragment."""
    count, reason = _asked(lambda pynvml: pynvml.nvmlDeviceGetCount())
    return reason or (f"the driver shows {count}" if count else "the NVIDIA driver answers, and has no card")
