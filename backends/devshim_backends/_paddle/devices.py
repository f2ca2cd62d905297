"""PaddlePaddle's devices: their number, their names and their descriptions.

Requirements that this module meets:

* A place is never a dictionary key: up to 3.0, two equal places do not compare equal, and their hashes differ. The
  key is the integer that a place returns for its kind (``AllocationType`` in phi/common/place.h). It costs 150 ns, and
  the text of a place costs 600.
* Pinned host memory (``CUDAPinnedPlace``) is the host.
* A card that does not exist is refused before Paddle sees it: ``CUDAPlace(0)`` without CUDA crashes.
* Counting devices creates no context and allocates nothing.
* ``gpu`` is what this build computes on: CUDA or ROCm, Kunlun's XPU, or the GPUs of a plug-in (``iluvatar_gpu``).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import paddle

from devshim.contract.backend import Backend
from devshim.devices import host, nvml, startup
from devshim.devices.device import ALIASES, CPU, Device
from devshim.devices.info import DeviceInfo
from devshim.errors import messages
from devshim.registry import missing_devices

if TYPE_CHECKING:
    from collections.abc import Sequence

core = paddle.base.core

HOST = {1: CPU, 3: CPU, 5: CPU}
"""AllocationType -> the host: its own memory, memory pinned for CUDA, memory pinned for XPU."""
KINDS_OF_MEMORY: dict[int, Device | None] = {**dict.fromkeys((2, 4, 9)), **HOST}
"""The same, with None for memory of CUDA, XPU and plug-in devices: finding None costs less than a KeyError."""

_built_for_host = not any(getattr(core, f"is_compiled_with_{name}", bool)() for name in ("cuda", "rocm", "xpu", "ipu"))
only_host = _built_for_host and not (core.get_all_custom_device_type() or ())
"""True if this Paddle has only host memory, so that no tensor can be elsewhere; a plug-in may be loaded later."""

_PLACES: dict[Device, Any] = {}
_PLACE_TYPES = tuple(
    getattr(core, name)
    for name in (
        *("Place", "CPUPlace", "CUDAPlace", "CUDAPinnedPlace", "XPUPlace", "XPUPinnedPlace"),
        *("IPUPlace", "CustomPlace"),
    )
    if hasattr(core, name)
)


class PaddleDevices(Backend):
    """The mixin for devices."""

    def kinds(self) -> Sequence[str]:
        return tuple(dict.fromkeys(("gpu", *_custom_types())))

    def has_only_host(self) -> bool:
        return _built_for_host and not core.get_all_custom_device_type()

    def count(self, kind: str) -> int:
        if kind == "cpu":
            return 1
        if kind == "gpu" and _has_cuda():
            return _count_cuda()[0]
        if kind == "gpu" and _has_xpu():
            return int(core.get_xpu_device_count())
        name = _custom_types().get(kind)
        return 0 if name is None else int(core.get_custom_device_count(name))

    def why_unavailable(self, kind: str) -> str:
        name = _custom_types().get(kind)
        if kind == "gpu" and _has_xpu():
            return "its XPU driver shows no more"
        if name is not None and not self.simulated and not (kind == "gpu" and _has_cuda()):
            return f"its plug-in {name!r} has no more devices"
        if kind != "gpu":
            return f"this PaddlePaddle was built without {kind} devices, and no plug-in provides any"
        if not _has_cuda():
            return f"this PaddlePaddle {paddle.__version__} is a CPU-only build"
        count, failure = _count_cuda()
        return failure or nvml.why_no_more(count)

    def platform(self, kind: str) -> str:
        if kind != "gpu":
            return kind
        if _has_cuda():
            return "rocm" if paddle.is_compiled_with_rocm() else "cuda"
        name = "xpu" if _has_xpu() else _custom_types().get("gpu", "cuda")
        return "xpu" if name == "intel_gpu" else name

    def to_native(self, device: Device) -> Any:
        found = _PLACES.get(device)
        if found is None:
            if device.index >= self.count(device.kind):
                raise missing_devices.not_found_error(self, device)
            found = _PLACES[device] = make_place(device)
        return found

    def from_native(self, native: object) -> Device | None:
        if not isinstance(native, _PLACE_TYPES):
            return None
        place = core.Place()
        place.set_place(native)
        return device_at(place)

    def describe(self, device: Device) -> DeviceInfo:
        if device is CPU:
            return host.describe(self.name)
        if self.simulated_devices is not None and device.kind == "gpu":
            return host.describe_simulated(self.name, device, self.simulated_devices[device.index].limit)
        if device.kind == "gpu" and _has_cuda():
            found = paddle.device.cuda.get_device_properties(device.index)
            capability = None if paddle.is_compiled_with_rocm() else (int(found.major), int(found.minor))
            return DeviceInfo(device, str(found.name), self.name, int(found.total_memory), capability)
        if device.kind == "gpu" and _has_xpu():
            return DeviceInfo(device, "XPU", self.name)
        return DeviceInfo(device, _custom_types().get(device.kind, device.kind), self.name)

    def native_text(self, device: Device) -> str:
        if device is CPU:
            return "paddle.CPUPlace()"
        if device.kind == "gpu":
            return self._gpu_text(device.index)
        return f'paddle.CustomPlace("{device.kind}", {device.index})'

    def _gpu_text(self, index: int) -> str:
        """Return the place of a GPU as a user writes it; for a simulated one, that of the GPU that it imitates."""
        plug_in = None if self.simulated or _has_cuda() or _has_xpu() else _custom_types().get("gpu")
        like = self.simulated_like if self.simulated else self.platform("gpu")
        if plug_in is None and like == "mps":
            plug_in = "mps"  # the plug-in for Macs
        if plug_in is not None:
            return f'paddle.CustomPlace("{plug_in}", {index})'
        return f"paddle.XPUPlace({index})" if like == "xpu" else f"paddle.CUDAPlace({index})"


def device_at(place: Any) -> Device | None:
    """Return the device that a ``core.Place`` refers to, or None for a kind that devshim has no name for."""
    found = HOST.get(place._type())
    if found is not None:
        return found
    if place.is_gpu_place():
        return _gpu(place.gpu_device_id())
    if place.is_xpu_place():
        return _gpu(place.xpu_device_id())
    if place.is_custom_place():
        kind = _kind_of(place.custom_device_type())
        return None if kind is None else Device(kind, place.custom_device_id())
    return None


@cache
def _gpu(index: int) -> Device:
    return Device("gpu", index)


def forget_places(gpus: int) -> None:
    """Forget the places of GPUs with this index or a higher one, which are no longer visible."""
    for device in [each for each in _PLACES if each.kind == "gpu" and each.index >= gpus]:
        del _PLACES[device]


def make_place(device: Device) -> Any:
    """Return a new place for a device that exists."""
    if device is CPU:
        return core.CPUPlace()
    if device.kind == "gpu" and _has_cuda():
        return core.CUDAPlace(device.index)
    if device.kind == "gpu" and _has_xpu():
        return core.XPUPlace(device.index)
    return core.CustomPlace(_custom_types()[device.kind], device.index)


def is_custom(device: Device) -> bool:
    """Return True if a plug-in provides this device."""
    return device is not CPU and not (device.kind == "gpu" and (_has_cuda() or _has_xpu()))


def _has_cuda() -> bool:
    return bool(core.is_compiled_with_cuda())  # ROCm counts as CUDA here


def _has_xpu() -> bool:
    return bool(core.is_compiled_with_xpu())


def is_xpu(device: Device) -> bool:
    """Return True if a device is an XPU of a build for them, and not a plug-in's."""
    return device.kind == "gpu" and _has_xpu() and not _has_cuda()


def _count_cuda() -> tuple[int, str | None]:
    """Return the number of CUDA cards, and why CUDA finds none: Paddle raises the driver's error (3.0 to 3.3)."""
    unable = startup.reason("paddle", "gpu")  # CUDA can no longer start in this process
    if unable is not None:
        return 0, unable
    try:
        return int(paddle.device.cuda.device_count()), None
    except (OSError, RuntimeError, SystemError) as error:
        reasons = [line.strip() for line in str(error).splitlines() if "CUDA error" in line]
        return 0, reasons[-1] if reasons else str(error).strip().rpartition("\n")[2]


def _custom_types() -> dict[str, str]:
    """Return devshim's name for each kind of device that plug-ins provide -> the plug-in's own name."""
    found: dict[str, str] = {}
    for name in core.get_all_custom_device_type() or ():
        kind = _kind_of(name)
        if kind is not None:
            found.setdefault(kind, name)
    return found


@cache
def _kind_of(name: str) -> str | None:
    """Map ``npu`` to npu, ``iluvatar_gpu`` and ``metax_gpu`` to gpu, ``intel_hpu`` to hpu; ``custom_cpu`` to None."""
    kind = ALIASES.get(name.lower()) or ALIASES.get(name.lower().rpartition("_")[2])
    return None if kind == "cpu" else kind


def has_cards(backend: Backend) -> bool:
    """Return True if there is a device besides the host now; `has_only_host` asks what may come with this build."""
    return any(backend.count(kind) for kind in backend.kinds())


def device_when_tracing(backend: Backend, call: str, hint: str) -> Device:
    """Return the future device of a value in a program being built: known only if the host is the only device."""
    if has_cards(backend):
        raise messages.tracing(backend, call, hint)
    return CPU
