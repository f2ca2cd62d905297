"""PyTorch's devices: naming, counting and describing them without starting CUDA.

Requirements this module answers:

* One `Device` for every spelling.  ``torch.device("cpu") != torch.device("cpu:0")``, and
  ``x.to("cpu:0") is x`` is False (a silent copy), so the host is always named without an index; and
  ``cuda`` without an index is the *current* card, not card 0 (pytorch/pytorch#115405).
* Counting does not start CUDA, after which cards cannot be hidden and a process cannot fork.  PyTorch's own count
  starts it where NVML does not answer, and counts whole cards where CUDA shows one slice (MIG; PyTorch 2.13).
* The other accelerators (``mps``, ``xpu``, ``npu``, ...) go through the module of their name.
"""

from __future__ import annotations

import os
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
"""devshim's kind -> the type of a ``torch.device``; ROCm's cards, too, are called ``cuda``, simulated ones ``sim``."""
_KINDS = {**{name: kind for kind, name in TYPES.items()}, "sim": "gpu"}

_COMMON = 16
"""Devices of a kind that are read with one dictionary lookup from the start; more are added as they are met."""


def _known_devices() -> dict[Any, Device]:
    """The devices that tensors really report; naming a ``torch.device`` asks no driver anything."""
    found = {torch.device("cpu"): CPU, torch.device("cpu", 0): CPU}
    for kind in ("gpu", "xpu", "mps"):
        for index in range(_COMMON):
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
        # By its text: of a device that is an argument torch.compile takes the index for one that may vary.
        found = NATIVE[device] = torch.device(device.text.replace(device.kind, TYPES[device.kind], 1))
    return found


def name_cards(name: str) -> None:
    """Have PyTorch's devices of this name be the cards called ``gpu``, until another is named."""
    TYPES["gpu"] = name
    for device in [each for each in NATIVE if each.kind == "gpu"]:
        del NATIVE[device]


_STARTS = {torch.cuda._lazy_init.__code__: (torch.cuda, "CUDA"), torch.xpu._lazy_init.__code__: (torch.xpu, "XPU")}
"""The code that starts cards, with whose they are and what that is called."""


def module(kind: str) -> Any:
    """Return ``torch.cuda`` or whatever module serves a kind of accelerator, or None where the build has none."""
    return getattr(torch, TYPES.get(kind, kind), None)


def has_context(index: int) -> bool:
    """Return False if this process has certainly asked nothing of a CUDA card, which then has no context.

    Most calls that name such a card make a context on it, which takes about half a GB, and fails where the card is
    full or another process has it to itself.
    """
    asked = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return asked is None or bool(asked(index))


def cards(kind: str) -> int:
    """How many accelerators of a kind there are, starting none."""
    if TYPES.get(kind) == "cuda":
        return cuda_cards()
    if startup.reason("torch", kind):
        return 0
    asked = getattr(module(kind), "device_count", None)
    return int(asked()) if asked is not None else 0


def cuda_cards() -> int:
    """How many CUDA or ROCm cards there are, or slices of them, starting none."""
    if torch.cuda.is_initialized():
        return int(torch._C._cuda_getDeviceCount())
    if startup.reason("torch", "gpu"):  # CUDA cannot start in this process any more
        return 0
    return cuda.count() if torch.version.cuda is not None else int(torch.cuda.device_count())


# What torch.compiler.assume_constant_result does, without its import of torch._dynamo (a second): a compiled
# function cannot trace device_count, which gives no tensor, and the machine does not change under it.
cards._dynamo_marked_constant = True  # type: ignore[attr-defined]


def kinds(simulated: bool) -> str:
    """The kinds of accelerator this build of PyTorch, or a plug-in that is loaded, could have, as words."""
    found = ["gpu"] if _built_for_cuda() or simulated else []
    if torch.backends.mps.is_built():
        found.append("mps")
    if torch.xpu._is_compiled():
        found.append("xpu")
    # A plug-in, once loaded, adds the module of its name.
    return " ".join([*found, *(kind for kind in ("npu", "hpu", "mlu") if module(kind) is not None)])


kinds._dynamo_marked_constant = True  # type: ignore[attr-defined]


class TorchDevices(Backend):
    """The room of devices."""

    def kinds(self) -> Sequence[str]:
        return kinds(bool(self.simulated)).split()

    def count(self, kind: str) -> int:
        return 1 if kind == "cpu" else cards(kind)

    def absence(self, kind: str) -> str:
        if kind == "gpu":
            return _no_more_cards(cards(kind))
        if kind not in self.kinds():
            return f"this PyTorch ({torch.__version__}) is built without {kind}"
        return "that is all its driver shows"

    def why_unable_to_start(self, error: BaseException) -> str | None:
        step = error.__traceback__
        while step is not None and step.tb_frame.f_code not in _STARTS:
            step = step.tb_next
        served, title = _STARTS[step.tb_frame.f_code] if step is not None else (None, "")
        if served is None or served.is_initialized() or served._is_in_bad_fork():  # there PyTorch says what to do
            return None
        said = str(error).split(" Please ")[0].split("\n")[0].rstrip(" .")
        return f"{title} does not start ({said})"

    def to_native(self, device: Device) -> Any:
        try:
            return native(device)
        except RuntimeError as error:  # a type this build has no name for, such as tpu
            raise missing_devices.not_found(self, device) from error

    def from_native(self, native: object) -> Device | None:
        if not isinstance(native, torch.device):
            return None
        found = DEVICES.get(native)
        return found if found is not None else _read(native)

    def describe(self, device: Device) -> DeviceInfo:
        if device is CPU:
            return host.describe(self.name)
        if device.kind == "mps":
            return _describe_mps(self.name, device)
        if self.cards is not None and self.simulated and device.kind == "gpu":
            return host.describe_simulated(self.name, device, self.cards[device.index].limit)
        found = module(device.kind).get_device_properties(device.index)
        return DeviceInfo(
            device=device,
            name=found.name,
            backend=self.name,
            total_memory=getattr(found, "total_memory", None),
            compute_capability=_capability(found),
            uuid=uuid_of(found),
            pci_bus_id=_pci(found),
        )

    def native_text(self, device: Device) -> str:
        # Of a real GPU, also where a simulated one stands for it: its own type is an implementation detail.
        kind = "cuda" if device.kind == "gpu" else device.kind
        return '"cpu"' if device is CPU else f'"{kind}:{device.index}"'


def _read(native: Any) -> Device | None:
    """Read a ``torch.device`` that is not in the table: one without an index, or of a rare kind."""
    kind = _KINDS.get(native.type)
    if kind is None:
        return None  # meta, and types that are no accelerator devshim knows
    if native.index is None:
        return Device(kind, _current(kind))  # not remembered: the current device changes
    return DEVICES.setdefault(native, Device(kind, native.index))


def _current(kind: str) -> int:
    """The current device of a kind in this thread; 0 until the accelerator is started, which this does not do."""
    started = getattr(module(kind), "is_initialized", None)
    asked = getattr(module(kind), "current_device", None)
    return int(asked()) if started is not None and asked is not None and started() else 0


def _built_for_cuda() -> bool:
    return torch.version.cuda is not None or torch.version.hip is not None


def _no_more_cards(count: int) -> str:
    if not _built_for_cuda():
        return f"this PyTorch ({torch.__version__}) is a CPU-only build"
    if torch.version.hip is None:
        return nvml.why_not(count)
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        value = os.environ.get(name)
        if value is not None:
            return f"{name}={value[:40]!r} hides {'the others' if count else 'them'}"
    return "that is all the driver shows" if count else "no AMD driver answers"


def _capability(properties: Any) -> tuple[int, int] | None:
    """CUDA's compute capability; on ROCm the same fields hold the gfx number, which is something else."""
    if torch.version.hip is not None or not hasattr(properties, "major"):
        return None
    return (properties.major, properties.minor)


def uuid_of(properties: Any) -> str | None:
    """A card's UUID as NVML and ``CUDA_VISIBLE_DEVICES`` write it; PyTorch leaves the first word out."""
    found = getattr(properties, "uuid", None)
    if found is None or torch.version.cuda is None or str(found).startswith(("GPU-", "MIG-")):
        return None if found is None else str(found)
    return f"MIG-{found}" if " MIG " in properties.name else f"GPU-{found}"  # a slice's model is "... MIG 1g.10gb"


def _pci(properties: Any) -> str | None:
    if getattr(properties, "pci_bus_id", None) is None or not hasattr(properties, "pci_device_id"):
        return None
    domain = getattr(properties, "pci_domain_id", 0)
    return f"{domain:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"


def _describe_mps(backend: str, device: Device) -> DeviceInfo:
    named = getattr(torch.backends.mps, "get_name", None)
    return DeviceInfo(
        device=device,
        name=str(named()) if named is not None else "Apple GPU",
        backend=backend,
        total_memory=int(torch.mps.recommended_max_memory()),
    )
