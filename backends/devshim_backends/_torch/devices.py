"""PyTorch's devices: their names, count and descriptions, without starting CUDA.

Requirements of this module:

* Every spelling becomes one `Device`. ``torch.device("cpu") != torch.device("cpu:0")``, and ``x.to("cpu:0") is x`` is
  False (a silent copy), so the host is always named without an index. ``cuda`` without an index means the *current*
  card, not card 0 (pytorch/pytorch#115405).
* Counting does not start CUDA. After CUDA starts, cards cannot be hidden and a process cannot fork. PyTorch's own count
  starts CUDA where NVML does not answer, and counts whole cards where CUDA shows one slice (MIG; PyTorch 2.13).
* ``gpu`` is the one GPU type that this build of PyTorch has: ``cuda`` (also for ROCm), ``mps``, ``xpu``, or the name
  that an unknown plug-in registered. ``npu``, ``hpu`` and ``mlu`` are separate kinds. Each type is reached through
  the module with its name.
"""

from __future__ import annotations

import os
import sys
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.backend import Backend
from devshim.devices import cuda, host, nvml, startup
from devshim.devices.device import CPU, KINDS, Device
from devshim.registry import missing_devices
from devshim_backends._torch.real_gpus import describe_mps, describe_properties, mps_works, real_gpu_type
from devshim_backends._torch.snippets import snippet_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.devices.info import DeviceInfo


TYPES = {kind: real_gpu_type() if kind == "gpu" else kind for kind in KINDS}
"""devshim's kind -> the type of a ``torch.device``. ROCm cards are also ``cuda``; simulated GPUs are ``sim``."""
_KINDS = {**{kind: kind for kind in KINDS}, **dict.fromkeys(("cuda", "mps", "xpu", "sim", TYPES["gpu"]), "gpu")}

_PREFILLED = 16
"""Number of devices of a kind that are in the table from the start; others are added when they are first seen."""


def _known_devices() -> dict[Any, Device]:
    """Return the devices that tensors really report; naming a ``torch.device`` does not query a driver."""
    found = {torch.device("cpu"): CPU, torch.device("cpu", 0): CPU}
    for name in ("cuda", "xpu", "mps"):
        for index in range(_PREFILLED):
            found[torch.device(name, index)] = Device("gpu", index)
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
    _KINDS[name] = "gpu"
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

    Most calls that name this card create a context on it. That takes about half a GB, and fails if the card is full
    or another process has exclusive use of it.
    """
    has_primary_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    return has_primary_context is None or bool(has_primary_context(index))


def accelerator_count(kind: str) -> int:
    """Return the number of accelerators of a kind, without starting any (except MPS, which is tried out once)."""
    if kind == "gpu" and TYPES[kind] != "sim" and TYPES[kind] != real_gpu_type():
        set_gpu_type(real_gpu_type())  # a plug-in was imported
    if TYPES.get(kind) == "cuda":
        return cuda_device_count()
    if startup.reason("torch", kind):
        return 0
    device_count = getattr(device_module(kind), "device_count", None)
    count = int(device_count()) if device_count is not None else 0
    return count if count and (TYPES.get(kind) != "mps" or mps_works()) else 0


def has_native_names() -> bool:
    """Return True while PyTorch's names for cards mean simulated GPUs."""
    state = sys.modules.get("devshim_backends._torch.simulation.internals.state")
    return state is not None and "cuda" in state.TYPES


def cuda_device_count() -> int:
    """Return the number of CUDA or ROCm cards, or slices of them, without starting any."""
    if has_native_names():
        return int(torch.cuda.device_count())
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
    found = ["gpu"] if simulated or _built_for_cuda() or real_gpu_type() != "cuda" else []
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

    def platform(self, kind: str) -> str:
        if kind != "gpu":
            return kind
        return "rocm" if torch.version.hip is not None else real_gpu_type()

    def to_native(self, device: Device) -> Any:
        try:
            return native(device)
        except RuntimeError as error:  # a type for which this build has no name, such as tpu
            raise missing_devices.not_found_error(self, device) from error

    def from_native(self, native: object) -> Device | None:
        if not isinstance(native, torch.device):
            return None
        found = DEVICES.get(native)
        return found if found is not None else _device_from_native(native)

    def describe(self, device: Device) -> DeviceInfo:
        if device is CPU:
            return host.describe(self.name)
        if self.simulated_devices is not None and self.simulated and device.kind == "gpu":
            return host.describe_simulated(self.name, device, self.simulated_devices[device.index].limit)
        if TYPES[device.kind] == "mps":
            return describe_mps(self.name, device)
        properties = device_module(device.kind).get_device_properties(device.index)
        return describe_properties(self.name, device, properties)

    def snippet(self, call: str) -> str | None:
        return snippet_for(shown_gpu_type(self), call)

    def native_text(self, device: Device) -> str:
        # Always the type of a real GPU: the type of a simulated one is an implementation detail.
        kind = shown_gpu_type(self) if device.kind == "gpu" else device.kind
        return '"cpu"' if device is CPU else '"mps"' if kind == "mps" else f'"{kind}:{device.index}"'


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


def shown_gpu_type(backend: Backend) -> str:
    """Return the type of the GPUs, or of those that the simulated GPUs imitate, as a user writes it."""
    return backend.simulated_like if backend.simulated else real_gpu_type()


def _why_no_more_gpus(count: int) -> str:
    name = real_gpu_type()
    if name == "mps":
        return "a Mac has one GPU" if count else "MPS needs a Mac with an Apple GPU and macOS 14 or newer"
    if name != "cuda":
        return f"its {name} driver shows {'no more' if count else 'none'}"
    if not _built_for_cuda():
        return f"this PyTorch ({torch.__version__}) is a CPU-only build"
    if torch.version.hip is None:
        return nvml.why_no_more(count)
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        value = os.environ.get(name)
        if value is not None:
            return f"{name}={value[:40]!r} hides {'the others' if count else 'them'}"
    return "the driver shows no more" if count else "no AMD driver answers"
