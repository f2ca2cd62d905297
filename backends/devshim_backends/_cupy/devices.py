"""CuPy's devices: their number, which is found without starting CUDA, their names and their properties.

CuPy has arrays on GPUs only, so NumPy serves the host: its device is the text ``"cpu"``, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence

import cupy
from cupy.cuda import runtime

from devshim.contract.backend import Backend
from devshim.devices import cuda, host, nvml, startup
from devshim.devices.device import CPU, Device
from devshim.devices.info import DeviceInfo

_COMMON_COUNT = 16
"""The number of GPUs whose `Device` exists from the start; one dictionary lookup finds it. Others are added on use."""
_DEVICES = {index: Device("gpu", index) for index in range(_COMMON_COUNT)}

_STARTED_COUNT: dict[str, int] = {}
"""The number of GPUs that CUDA reports after it has started. It does not change during a process."""

_START_ERRORS = tuple(
    f"cudaError{name}:"
    for name in (
        *("InsufficientDriver", "CallRequiresNewerDriver", "SystemDriverMismatch", "CompatNotSupportedOnDevice"),
        *("NoDevice", "InitializationError", "SystemNotReady", "StubLibrary"),
    )
)
"""The beginnings of errors for a CUDA that cannot start: the driver is too old, or does not answer."""


def gpu_device(index: int) -> Device:
    """Return the `Device` for a CuPy device number."""
    device = _DEVICES.get(index)
    return device if device is not None else _DEVICES.setdefault(index, Device("gpu", index))


def gpu_count() -> int:
    """Return the number of GPUs that CuPy has, or will have, without starting CUDA."""
    if startup.reason("cupy", "gpu"):  # CUDA cannot start in this process any more
        return 0
    count = _STARTED_COUNT.get("gpu")
    if count is not None:
        return count
    if not (runtime.is_hip or nvml.cuda_started()):
        return cuda.count()
    try:
        return _STARTED_COUNT.setdefault("gpu", int(runtime.getDeviceCount()))
    except runtime.CUDARuntimeError as error:
        startup.note("cupy", "gpu", _start_failure(error))
        return 0


def _start_failure(error: BaseException) -> str:
    return f"CUDA does not start ({error})"


def is_used(index: int) -> bool:
    """Return False if this process has not used a GPU yet; most calls that name the GPU would start using it."""
    return runtime.is_hip or cuda.has_context(index)


class CupyDevices(Backend):
    """The mixin for devices."""

    def kinds(self) -> Sequence[str]:
        return ("gpu",)

    def count(self, kind: str) -> int:
        if kind == "gpu":
            return gpu_count()
        return int(kind == "cpu")

    def why_unavailable(self, kind: str) -> str:
        if kind != "gpu":
            return "CuPy computes only on GPUs, with CUDA or ROCm"
        if runtime.is_hip:
            return "the AMD driver reports no more GPUs" if gpu_count() else "no AMD driver answers"
        return startup.reason(self.name, kind) or nvml.why_no_more(gpu_count())

    def why_unable_to_start(self, error: BaseException) -> str | None:
        is_start = isinstance(error, runtime.CUDARuntimeError) and str(error).startswith(_START_ERRORS)
        return _start_failure(error) if is_start else None

    def platform(self, kind: str) -> str:
        return kind if kind != "gpu" else "rocm" if runtime.is_hip else "cuda"

    def to_native(self, device: Device) -> object:
        return "cpu" if device is CPU else cupy.cuda.Device(device.index)

    def from_native(self, native: object) -> Device | None:
        return gpu_device(native.id) if isinstance(native, cupy.cuda.Device) else None

    def describe(self, device: Device) -> DeviceInfo:
        if device is CPU:
            return host.describe(self.name)
        properties = runtime.getDeviceProperties(device.index)
        return DeviceInfo(
            device=device,
            name=properties["name"].decode(),
            backend=self.name,
            total_memory=int(properties["totalGlobalMem"]),
            compute_capability=None if runtime.is_hip else (properties["major"], properties["minor"]),
            uuid=_uuid(properties.get("uuid")),
            pci_bus_id=f"{properties['pciDomainID']:04x}:{properties['pciBusID']:02x}:{properties['pciDeviceID']:02x}.0",
        )

    def native_text(self, device: Device) -> str:
        return "np" if device is CPU else f"cp.cuda.Device({device.index})"


def _uuid(found: object) -> str | None:
    """Return a UUID in NVML's notation from CUDA's 16 bytes."""
    if not isinstance(found, bytes) or len(found) < 16 or runtime.is_hip:
        return None
    text = found[:16].hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
