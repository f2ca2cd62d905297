"""The frozen records that describe devices, memory and backends.

They are in their own module, loaded on first use, because importing `dataclasses` takes a third of the time that
`import devshim` may take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devshim.devices.device import Device

__all__ = ["BackendInfo", "DeviceInfo", "MemoryInfo"]


@dataclass(frozen=True)
class DeviceInfo:
    """A description of one device.

    Attributes:
        device: The device described.
        name: The model's name, as its maker gives it.
        backend: The framework that described it.
        total_memory: Bytes of memory on the device, or None if the framework cannot know.
        compute_capability: CUDA's ``(major, minor)``, or None.
        uuid: The card's UUID, or None.
        pci_bus_id: The card's PCI address, such as ``0000:3b:00.0``, or None.
        simulated: True for a simulated GPU, which computes on the CPU.
        platform: The software that drives it: ``"cpu"``, ``"cuda"``, ``"rocm"``, ``"mps"`` or ``"metal"`` (Apple),
            ``"xpu"`` or ``"oneapi"`` (Intel), or the name that a plug-in gives; for a simulated GPU, the platform that
            it imitates.
        dtypes: The names of the dtypes that tensors on the device can have, as far as known without starting it.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> info = ds.describe("cpu")
        >>> info.device, info.backend, info.simulated
        (Device('cpu'), 'numpy', False)
    """

    device: Device
    name: str
    backend: str
    total_memory: int | None = None
    compute_capability: tuple[int, int] | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    simulated: bool = False
    platform: str = ""
    dtypes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        from devshim import _html

        capability = None if self.compute_capability is None else ".".join(map(str, self.compute_capability))
        memory = None if self.total_memory is None else _html.size(self.total_memory)
        facts = {
            "name": self.name,
            "described by": self.backend,
            "platform": self.platform,
            "memory": memory,
            "compute capability": capability,
            "UUID": self.uuid,
            "PCI address": self.pci_bus_id,
            "dtypes": " ".join(self.dtypes),
        }
        title = _html.join(self.device, _html.badge("simulated") if self.simulated else "")
        return _html.block(title, _html.table((), [pair for pair in facts.items() if pair[1]]))


@dataclass(frozen=True)
class MemoryInfo:
    """Memory on one device, in bytes; None if the framework cannot know.

    Attributes:
        total: All of the device's memory, or the limit of a simulated GPU.
        used: Taken by this process's tensors on the device.
        free: Available for allocation.
        peak: The largest ``used`` so far.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.simulate(1, memory="1GiB"):
        ...     x = ds.ones((256, 1024), dtype="float32", device="gpu")
        ...     info = ds.memory("gpu")
        ...     print(info.total, info.used, info.free)
        1073741824 1048576 1072693248
    """

    total: int | None = None
    used: int | None = None
    free: int | None = None
    peak: int | None = None

    def _repr_html_(self) -> str:
        from devshim import _html

        amounts = {"total": self.total, "used": self.used, "free": self.free, "peak": self.peak}
        known = {name: "unknown" if each is None else _html.size(each) for name, each in amounts.items()}
        if not self.total or self.used is None:
            return _html.block(_html.table((), known.items(), right={1}))
        about = f"of {known['total']} (free {known['free']}, peak {known['peak']})"
        return _html.block(_html.bars([("used", self.used, f"{known['used']} {about}")], self.total))


@dataclass(frozen=True)
class BackendInfo:
    """One installed framework, described without importing it.

    Attributes:
        name: Its import name, which is also the backend's name.
        title: Its name as its makers write it.
        version: The installed distribution's version, or None without metadata.
        imported: True if this process has already imported it.
        clashes: Known problems of importing it together with another framework of this process, a sentence each;
            empty if none are known.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.backends()["numpy"].title
        'NumPy'
    """

    name: str
    title: str
    version: str | None
    imported: bool
    clashes: tuple[str, ...] = ()
