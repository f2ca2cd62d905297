"""PyTorch's devices: their names, count and descriptions, without starting CUDA.

Requirements this module answers:

* Every spelling becomes one `Device`. ``torch.device("cpu") != torch.device("cpu:0")``, and ``x.to("cpu:0") is x`` is
  False (a silent copy), so the host is always named without an index. ``cuda`` without an index means the *current*
  card, not card 0 (pytorch/pytorch#115405).
* Counting does not start CUDA. After CUDA starts, cards cannot be hidden and a process cannot fork. PyTorch's own count
  starts CUDA where NVML does not answer, and counts whole cards where CUDA shows one slice (MIG; PyTorch 2.13).
* The other accelerators (``mps``, ``xpu``, ``npu``, ...) are reached through the module with their name.
"""

from __future__ import annotations

import os
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.backend import Backend
from devshim.devices import cuda, host, nvml, startup
from devshim.devices.device import CPU, KINDS, Device
from devshim.devices.info import DeviceInfo
from devshim.registry import missing_devices

if TYPE_CHECKING:
    from collections.abc import Sequence

TYPES = {kind: "cuda" if kind == "gpu" else kind for kind in KINDS}
"""devshim's kind -> the type of a ``torch.device``. ROCm cards are also ``cuda``; simulated GPUs are ``sim``."""
_KINDS = {**{name: kind for kind, name in TYPES.items()}, "sim": "gpu"}

_PREFILLED = 16
"""Number of devices of a kind that are in the table from the start; others are added when they are first seen."""


def _known_devices() -> dict[Any, Device]:
    """Return the devices that tensors really report; naming a ``torch.device`` does not query a driver."""
    found = {torch.device("cpu"): CPU, torch.device("cpu", 0): CPU}
    for kind in ("gpu", "xpu", "mps"):
        for index in range(_PREFILLED):
            found[torch.device(TYPES[kind], index)] = Device(kind, index)
    return found


DEVICES: dict[Any, Device] = _known_devices()
"""A tensor's ``torch.device`` -> its `Device`."""
NATIVE: dict[Device, Any] = {CPU: torch.device("cpu")}
"""A `Device` -> the ``torch.device`` to hand to PyTorch: never ``cpu:0``, never without an index."""


def native(device: Device) -> Any:
    """Return the ``torch.device`` of a `Device`."""
    found = NATIVE.get(device)
    if found is None:
        # From text: torch.compile treats the index of a device that is an argument as one that may vary.
        found = NATIVE[device] = torch.device(device.text.replace(device.kind, TYPES[device.kind], 1))
    return found


def set_gpu_type(name: str) -> None:
    """Make ``gpu`` mean PyTorch's devices of this name, until the next call with another name."""
    TYPES["gpu"] = name
    for device in [each for each in NATIVE if each.kind == "gpu"]:
        del NATIVE[device]


_STARTERS = {torch.cuda._lazy_init.__code__: (torch.cuda, "CUDA"), torch.xpu._lazy_init.__code__: (torch.xpu, "XPU")}
"""The code that starts an accelerator -> the module it belongs to, and the accelerator's title."""


def is_host_scalar(x: Any) -> bool:
    """Return True if a tensor is a number on the host, which PyTorch accepts with tensors of any device."""
    return bool(x.dim() == 0 and x.device.type == "cpu")


def device_module(kind: str) -> Any:
    """Return ``torch.cuda`` or the module for another kind of accelerator; None if this build has none."""
    return getattr(torch, TYPES.get(kind, kind), None)


def has_context(index: int) -> bool:
    """Return False if this process has certainly not used a CUDA card, which then has no context.

    Most calls that name such a card create a context on it. That takes about half a GB, and fails if the card is full
    or another process has exclusive use of it.
    """
    has_primary_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return has_primary_context is None or bool(has_primary_context(index))


def accelerator_count(kind: str) -> int:
    """Return the number of accelerators of a kind, without starting any."""
    if TYPES.get(kind) == "cuda":
        return cuda_device_count()
    if startup.reason("torch", kind):
        return 0
    device_count = getattr(device_module(kind), "device_count", None)
    return int(device_count()) if device_count is not None else 0


def cuda_device_count() -> int:
    """Return the number of CUDA or ROCm cards, or slices of them, without starting any."""
    if torch.cuda.is_initialized():
        return int(torch._C._cuda_getDeviceCount())
    if startup.reason("torch", "gpu"):  # CUDA can no longer start in this process
        return 0
    return cuda.count() if torch.version.cuda is not None else int(torch.cuda.device_count())


# The same as torch.compiler.assume_constant_result, without its import of torch._dynamo (one second). A compiled
# function cannot trace device_count, which returns no tensor, and the machine does not change while it runs.
accelerator_count._dynamo_marked_constant = True  # type: ignore[attr-defined]


def possible_kinds(simulated: bool) -> str:
    """Return the kinds of accelerator that this build of PyTorch, or a loaded plug-in, could have, as words."""
    found = ["gpu"] if _built_for_cuda() or simulated else []
    if torch.backends.mps.is_built():
        found.append("mps")
    if torch.xpu._is_compiled():
        found.append("xpu")
    # A plug-in adds the module with its name when it is loaded.
    return " ".join([*found, *(kind for kind in ("npu", "hpu", "mlu") if device_module(kind) is not None)])


possible_kinds._dynamo_marked_constant = True  # type: ignore[attr-defined]


class TorchDevices(Backend):
    """Mixin for devices."""

    def kinds(self) -> Sequence[str]:
        return possible_kinds(bool(self.simulated)).split()

    def count(self, kind: str) -> int:
        return 1 if kind == "cpu" else accelerator_count(kind)

    def why_unavailable(self, kind: str) -> str:
        if kind == "gpu":
            return _why_no_more_gpus(accelerator_count(kind))
        if kind not in self.kinds():
            return f"this PyTorch ({torch.__version__}) is built without {kind}"
        return "the driver shows no more"

    def why_unable_to_start(self, error: BaseException) -> str | None:
        codes = (frame.f_code for frame, _ in walk_tb(error.__traceback__))
        accelerator, title = next((_STARTERS[code] for code in codes if code in _STARTERS), (None, ""))
        if accelerator is None or accelerator.is_initialized():
            return None
        if accelerator._is_in_bad_fork():  # PyTorch's own error says what to do
            return None
        reason = str(error).split(" Please ")[0].split("\n")[0].rstrip(" .")
        return f"{title} does not start ({reason})"

    def to_native(self, device: Device) -> Any:
        try:
            return native(device)
        except RuntimeError as error:  # a type for which this build has no name, such as tpu
            raise missing_devices.not_found(self, device) from error

    def from_native(self, native: object) -> Device | None:
        if not isinstance(native, torch.device):
            return None
        found = DEVICES.get(native)
        return found if found is not None else _device_from_native(native)

    def describe(self, device: Device) -> DeviceInfo:
        if device is CPU:
            return host.describe(self.name)
        if device.kind == "mps":
            return _describe_mps(self.name, device)
        if self.simulated_devices is not None and self.simulated and device.kind == "gpu":
            return host.describe_simulated(self.name, device, self.simulated_devices[device.index].limit)
        properties = device_module(device.kind).get_device_properties(device.index)
        return DeviceInfo(
            device=device,
            name=properties.name,
            backend=self.name,
            total_memory=getattr(properties, "total_memory", None),
            compute_capability=_compute_capability(properties),
            uuid=uuid_of(properties),
            pci_bus_id=_pci_bus_id(properties),
        )

    def native_text(self, device: Device) -> str:
        # Always the type of a real GPU: the type of a simulated one is an implementation detail.
        kind = "cuda" if device.kind == "gpu" else device.kind
        return '"cpu"' if device is CPU else f'"{kind}:{device.index}"'


def _device_from_native(native: Any) -> Device | None:
    """Return the `Device` of a ``torch.device`` outside of the table: one without an index, or of a rare kind."""
    kind = _KINDS.get(native.type)
    if kind is None:
        return None  # meta, and types of accelerator that devshim does not know
    if native.index is None:
        return Device(kind, _current_index(kind))  # not cached: the current device changes
    return DEVICES.setdefault(native, Device(kind, native.index))


def _current_index(kind: str) -> int:
    """Return the index of this thread's current device of a kind, without starting it; 0 if it is not started."""
    is_initialized = getattr(device_module(kind), "is_initialized", None)
    current_device = getattr(device_module(kind), "current_device", None)
    if is_initialized is None or current_device is None:
        return 0
    return int(current_device()) if is_initialized() else 0


def _built_for_cuda() -> bool:
    return torch.version.cuda is not None or torch.version.hip is not None


def _why_no_more_gpus(count: int) -> str:
    if not _built_for_cuda():
        return f"this PyTorch ({torch.__version__}) is a CPU-only build"
    if torch.version.hip is None:
        return nvml.why_not(count)
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        value = os.environ.get(name)
        if value is not None:
            return f"{name}={value[:40]!r} hides {'the others' if count else 'them'}"
    return "the driver shows no more" if count else "no AMD driver answers"


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


def _describe_mps(backend: str, device: Device) -> DeviceInfo:
    get_name = getattr(torch.backends.mps, "get_name", None)
    return DeviceInfo(
        device=device,
        name=str(get_name()) if get_name is not None else "Apple GPU",
        backend=backend,
        total_memory=int(torch.mps.recommended_max_memory()),
    )
