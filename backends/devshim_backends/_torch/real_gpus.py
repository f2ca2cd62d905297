"""The GPUs of each build of PyTorch: CUDA, ROCm, MPS (Apple), XPU (Intel), and those of unknown plug-ins.

A build of PyTorch has one type of GPU. `real_gpu_type` is its name in a ``torch.device``.

Some machines list an MPS device that fails at the first allocation (hosted macOS runners). So the first count uses it
once; a device that fails is not counted, and errors state the reason. CUDA and XPU are never tried out, because that
would start them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from devshim.devices import platforms, startup
from devshim.devices.device import KINDS, Device
from devshim.devices.dtypes import DTYPES
from devshim.devices.info import DeviceInfo

__all__ = ["describe_mps", "describe_properties", "mps_works", "real_gpu_type", "uuid_of"]


def real_gpu_type() -> str:
    """Return the type of this build's real GPUs, without starting any: ``cuda`` (also for ROCm), ``mps``, ``xpu``, ...

    A CPU-only build has the type that a plug-in registered under a name that devshim does not know.
    """
    if torch.version.cuda is not None or torch.version.hip is not None:
        return "cuda"
    if torch.backends.mps.is_built():
        return "mps"
    if torch.xpu._is_compiled():
        return "xpu"
    name = str(torch._C._get_privateuse1_backend_name())
    return "cuda" if name in ("privateuseone", "sim", *KINDS) else name


@cache
def mps_works() -> bool:
    """Use the MPS device once: hosted machines list one that cannot allocate memory. Store the reason if it fails."""
    try:
        torch.ones(1, device="mps").add_(1).cpu()
    except Exception as error:
        reason = str(error).split("\n")[0].rstrip(" .")
        startup.note("torch", "gpu", f"the MPS device is listed, but using it fails ({reason})")
        return False
    return True


def describe_properties(backend: str, device: Device, properties: Any) -> DeviceInfo:
    """Return the description of a device from the properties that ``torch.cuda`` or another module reports."""
    return DeviceInfo(
        device=device,
        name=properties.name,
        backend=backend,
        total_memory=getattr(properties, "total_memory", None),
        compute_capability=_compute_capability(properties),
        uuid=uuid_of(properties),
        pci_bus_id=_pci_bus_id(properties),
        dtypes=_dtypes(properties),
    )


def _compute_capability(properties: Any) -> tuple[int, int] | None:
    """Return CUDA's compute capability; on ROCm the same fields contain the gfx number, which is something else."""
    if torch.version.hip is not None or not hasattr(properties, "major"):
        return None
    return (properties.major, properties.minor)


def uuid_of(properties: Any) -> str | None:
    """Return a card's UUID as NVML and ``CUDA_VISIBLE_DEVICES`` write it; PyTorch omits the prefix."""
    found = getattr(properties, "uuid", None)
    if found is None or torch.version.cuda is None or str(found).startswith(("GPU-", "MIG-")):
        return None if found is None else str(found)
    return f"MIG-{found}" if " MIG " in properties.name else f"GPU-{found}"  # a slice's name is "... MIG 1g.10gb"


def _pci_bus_id(properties: Any) -> str | None:
    if getattr(properties, "pci_bus_id", None) is None or not hasattr(properties, "pci_device_id"):
        return None
    domain = getattr(properties, "pci_domain_id", 0)
    return f"{domain:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"


def _dtypes(properties: Any) -> tuple[str, ...]:
    """Return the dtypes of an Intel GPU without float64; an empty tuple means that no dtype is missing."""
    if getattr(properties, "has_fp64", True):
        return ()
    return tuple(name for name in DTYPES if name not in platforms.DTYPE_REASONS["xpu"])


def describe_mps(backend: str, device: Device) -> DeviceInfo:
    """Return the description of the GPU of a Mac."""
    get_name = getattr(torch.backends.mps, "get_name", None)
    return DeviceInfo(
        device=device,
        name=str(get_name()) if get_name is not None else "Apple GPU",
        backend=backend,
        total_memory=int(torch.mps.recommended_max_memory()),
    )
