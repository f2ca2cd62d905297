"""What devshim answers when asked about devices, memory and backends: small frozen records.

They are apart from the code that fills them, and loaded when first asked for, because `dataclasses`
is a third of what `import devshim` may cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devshim.devices.device import Device

__all__ = ["BackendInfo", "DeviceInfo", "MemoryInfo"]


@dataclass(frozen=True)
class DeviceInfo:
    """What one device is.

    Attributes:
        device: The device described.
        name: The model's name, as its maker gives it.
        backend: The framework that answered.
        total_memory: Bytes of memory on the device, or None where the framework cannot know.
        compute_capability: CUDA's ``(major, minor)``, or None.
        uuid: The card's UUID, or None.
        pci_bus_id: Where the card sits, such as ``0000:3b:00.0``, or None.
        simulated: True where the device is a simulated GPU that computes on the CPU.
    """

    device: Device
    name: str
    backend: str
    total_memory: int | None = None
    compute_capability: tuple[int, int] | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    simulated: bool = False


@dataclass(frozen=True)
class MemoryInfo:
    """Memory on one device, in bytes; None where the framework cannot know.

    Attributes:
        total: All there is, or the limit of a simulated GPU.
        used: Held by this process's tensors on the device.
        free: What can still be asked for.
        peak: The largest ``used`` so far.
    """

    total: int | None = None
    used: int | None = None
    free: int | None = None
    peak: int | None = None


@dataclass(frozen=True)
class BackendInfo:
    """One installed framework, as seen without importing it.

    Attributes:
        name: Its import name, which is also the backend's name.
        title: How its makers write it.
        version: The installed distribution's version, or None where no metadata says.
        imported: Whether it is already imported in this process.
        clashes: Known trouble when it is imported beside another framework of this process, a
            sentence each; empty where none is known.
    """

    name: str
    title: str
    version: str | None
    imported: bool
    clashes: tuple[str, ...] = ()


for _cls in (BackendInfo, DeviceInfo, MemoryInfo):
    _cls.__module__ = "devshim"
del _cls
