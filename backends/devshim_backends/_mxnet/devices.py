"""MXNet's devices: their names, their number and their descriptions.

Requirements that this module meets:

* The host is one `Device`. In MXNet ``cpu(0) != cpu(1)`` although they are the same memory, and pinned and shared
  host memory are separate kinds: all of them are ``cpu`` here.
* Under simulation ``cpu(1)`` to ``cpu(N)`` represent ``gpu:0`` to ``gpu:N-1``; ``cpu(0)`` remains the host.
* MXNet reports a missing device only when an operator fails, and ``cpu(99)`` always exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.contract.backend import Backend
from devshim.devices import cuda, host, nvml, startup
from devshim.devices.device import CPU, Device
from devshim.devices.info import DeviceInfo
from devshim.registry import missing_devices
from devshim_backends._mxnet.internals.native import NATIVE, native_code

if TYPE_CHECKING:
    from collections.abc import Sequence

_CPU, _GPU, _PINNED, _SHARED = 1, 2, 3, 5
"""MXNet's numbers for the kinds of memory (``Context.devtype2str``)."""

HAS_CUDA: bool = mx.runtime.Features().is_enabled("CUDA")
"""True if this build of MXNet can use NVIDIA cards."""


class MxnetDevices(Backend):
    """The mixin for devices."""

    def kinds(self) -> Sequence[str]:
        return ("gpu",)

    def has_only_host(self) -> bool:
        return not (self.simulated or (HAS_CUDA and _count_cards()))

    def count(self, kind: str) -> int:
        if kind == "gpu":
            return self.simulated or _count_cards()
        return 1 if kind == "cpu" else 0

    def why_unavailable(self, kind: str) -> str:
        if kind != "gpu":
            return f"MXNet has no devices of the kind {kind!r}"
        if not HAS_CUDA:
            return f"this MXNet ({mx.__version__}) is a CPU-only build"
        return nvml.why_no_more(_count_cards())

    def to_native(self, device: Device) -> Any:
        if device is CPU:
            return mx.cpu(0)
        if device.kind != "gpu":
            raise missing_devices.not_found_error(self, device)
        return mx.cpu(device.index + 1) if self.simulated and not self.native_names else mx.gpu(device.index)

    def from_native(self, native: object) -> Device | None:
        simulated = 0 if self.native_names else self.simulated_or_removed  # with native names, every CPU is the host
        return device_from_code(native_code(native), simulated) if isinstance(native, NATIVE) else None

    def describe(self, device: Device) -> DeviceInfo:
        if device is CPU:
            return host.describe(self.name)
        if self.simulated:
            limit = None if self.simulated_devices is None else self.simulated_devices[device.index].limit
            return host.describe_simulated(self.name, device, limit)
        card = nvml.card_at(device.index)
        return DeviceInfo(
            device=device,
            name=card.name if card is not None else "NVIDIA GPU",
            backend=self.name,
            total_memory=memory_of(device.index)[1],
            uuid=card.uuid if card is not None else None,
        )

    def native_text(self, device: Device) -> str:
        return "mx.cpu()" if device is CPU else f"mx.gpu({device.index})"


def device_from_code(code: int, simulated: int) -> Device | None:
    """Return the `Device` of a device code (`native.device_code`), or None for an array that is not on any device.

    Args:
        code: The device code.
        simulated: The number of simulated GPUs, including removed ones that still contain arrays.
    """
    kind, index = code & 0xFFFFFFFF, code >> 32
    if kind == _GPU:
        return Device("gpu", index)
    if kind == _CPU and 1 <= index <= simulated:
        return Device("gpu", index - 1)
    return CPU if kind in (_CPU, _PINNED, _SHARED) else None


def memory_of(index: int) -> tuple[int | None, int | None]:
    """Return the free and the total bytes of a card.

    For a card that this process has not used, the numbers come from NVML, if NVML knows the card: to answer, CUDA
    would create a context there, which takes about half a gigabyte.
    """
    mx.context.num_gpus()  # starts CUDA, so that a driver that cannot start raises its error here
    card = None if cuda.has_context(index) else nvml.card_at(index)
    if card is not None and card.total_memory is not None:
        return card.free_memory, card.total_memory
    free, total = mx.context.gpu_memory_info(index)
    return int(free), int(total)


def _count_cards() -> int:
    """Return the number of cards that CUDA shows this process; MXNet would start CUDA to count them (``cuInit``)."""
    if not HAS_CUDA:
        return 0
    if startup.reason("mxnet", "gpu"):  # CUDA can no longer start in this process
        return 0
    if not nvml.cuda_started():
        return cuda.count()
    try:
        return int(mx.context.num_gpus())
    except mx.MXNetError:  # no driver
        return 0
