"""TensorFlow's devices: their names, number and properties, found without starting TensorFlow.

Requirements of this module:

* Counting does not start TensorFlow. ``tf.config.list_logical_devices`` creates the context and so takes the memory of
  every GPU. So devshim reads the physical devices and how they will be split.
* A name does not imply that the device exists. With soft placement, which is on by default, an absent ``/GPU:7`` is
  silently the CPU (tensorflow/tensorflow#29342). That switch belongs to the user and stays unchanged, so `count`
  decides about existence before a name is used.
* A simulated GPU is a logical CPU: ``CPU:0`` is always the host, and ``CPU:1`` is ``gpu:0``.
* ``gpu`` is a device of the type ``GPU``: CUDA, ROCm, or a plug-in such as Apple's Metal. Without one, it is a device
  of the type ``XPU``, which Intel's plug-in adds.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.contract.backend import Backend
from devshim.devices import cuda, host, nvml, startup
from devshim.devices.device import ALIASES, CPU, KINDS, Device
from devshim.devices.info import DeviceInfo
from devshim_backends._tensorflow.scopes import has_started_with_host_alone
from devshim_backends._tensorflow.simulation.storage import SIMULATED

if TYPE_CHECKING:
    from collections.abc import Sequence

DEVICE_BY_NAME: dict[str, Device] = {}
"""Maps TensorFlow device names to `Device`. Entries are added on use; a change of the simulation clears the table."""


def parse(name: str) -> tuple[str, int] | None:
    """Return the type and number in a device string, or None if it has none (``""``, or only a job)."""
    last = name.rpartition("/")[2].removeprefix("physical_").removeprefix("device:")
    kind, _, number = last.partition(":")
    return (kind.upper(), int(number)) if kind.lower() in (*KINDS, "xpu") and number.isdecimal() else None


def gpu_type() -> str:
    """Return TensorFlow's type of the devices that are ``gpu``: ``"GPU"``, or ``"XPU"`` if it has only those."""
    types = {found.device_type for found in tf.config.list_physical_devices()}
    return "XPU" if "XPU" in types and "GPU" not in types else "GPU"


class StrictDeviceSpec(tf.DeviceSpec):  # type: ignore[misc]  # TensorFlow is Any to the type checker
    """A device of devshim while native names are on: in its scope the rules of devshim apply, not TensorFlow's.

    TensorFlow itself opens scopes with plain specs, for example where it writes a checkpoint.
    """


class TensorflowDevices(Backend):
    """The mixin for devices."""

    gpus_hidden: bool = False
    """True if a program has hidden all simulated GPUs, with ``tf.config.set_visible_devices([], "GPU")``."""

    def kinds(self) -> Sequence[str]:
        seen = {found.device_type.lower() for found in tf.config.get_visible_devices()}
        return ("gpu", *(kind for kind in KINDS[2:] if kind in seen))

    def count(self, kind: str) -> int:
        if kind == "cpu":
            return 1
        if self.simulated:
            return self.simulated if kind == "gpu" and not self.gpus_hidden else 0
        if has_started_with_host_alone():
            return 0
        if self.platform(kind) == "metal" and self.started():  # before, the query would start TensorFlow
            metal_works()
        return 0 if startup.reason(self.name, kind) else len(logical_gpus(kind))

    def why_unavailable(self, kind: str) -> str:
        if kind != "gpu":
            return f"TensorFlow lists no {kind.upper()} among its physical devices"
        physical, visible = tf.config.list_physical_devices(gpu_type()), tf.config.get_visible_devices(gpu_type())
        if len(visible) < len(physical):
            return f"tf.config.set_visible_devices makes {len(visible)} of {len(physical)} GPUs visible"
        if gpu_type() != "GPU" or (physical and _is_plug_in()):
            return f"TensorFlow's plug-in lists {self.count(kind)}"
        if not tf.test.is_built_with_gpu_support():
            return "this TensorFlow is a CPU-only build (tf.test.is_built_with_gpu_support() is False)"
        if not physical and nvml.visible_cards():
            return cuda.why_not_started() or (
                "the driver lists GPUs, but TensorFlow starts none: it cannot load CUDA (pip install "
                "'tensorflow[and-cuda]'), or the driver is too old for it; TensorFlow's log says which"
            )
        return nvml.why_no_more(len(visible))

    def platform(self, kind: str) -> str:
        if kind != "gpu":
            return kind
        if gpu_type() == "XPU":
            return "xpu"
        if tf.test.is_built_with_rocm():
            return "rocm"
        plug_in = _is_plug_in() and tf.config.list_physical_devices("GPU")
        return "metal" if plug_in and sys.platform == "darwin" else "gpu" if plug_in else "cuda"

    def to_native(self, device: Device) -> Any:
        if self.native_names:
            return StrictDeviceSpec(device_type=device.kind.upper(), device_index=device.index)
        if device is CPU:
            return "/CPU:0"
        if self.simulated and device.kind == "gpu":
            # This is an object, because code that does not know of the simulation takes the text "/CPU:2" for the host.
            return tf.DeviceSpec(device_type="CPU", device_index=device.index + 1)
        return f"/{_type_of(device.kind)}:{device.index}"

    def from_native(self, native: object) -> Device | None:
        if isinstance(native, (tf.config.LogicalDevice, tf.config.PhysicalDevice)):
            return self.device_named(native.name)
        if isinstance(native, (tf.DeviceSpec, tf.compat.v1.DeviceSpec)):
            return self.device_named(native.to_string())
        return None

    def device_named(self, name: str) -> Device | None:
        """Return the `Device` for a TensorFlow device name, from a cache, or None if the text names no device."""
        found = DEVICE_BY_NAME.get(name)
        if found is None:
            read = parse(name)
            if read is None:
                return None
            kind, index = read
            if kind != "CPU":
                found = Device(ALIASES[kind.lower()], index)
            else:
                found = Device("gpu", index - 1) if 0 < index <= self.simulated_or_removed else CPU
            DEVICE_BY_NAME[name] = found
        return found

    def is_accelerator(self, device: Device) -> bool:
        """Return True if a device is a real accelerator, whose memory is not the host's."""
        return device is not CPU and not self.simulated

    def describe(self, device: Device) -> DeviceInfo:
        if device is CPU:
            return host.describe(self.name)
        if self.simulated:
            return host.describe_simulated(self.name, device, SIMULATED[device.index].limit)
        details = tf.config.experimental.get_device_details(logical_gpus(device.kind)[device.index])
        model = details.get("device_name") or device.kind.upper()
        return DeviceInfo(
            device=device,
            name=model,
            backend=self.name,
            total_memory=_total_memory(model),
            compute_capability=details.get("compute_capability"),
        )

    def native_text(self, device: Device) -> str:
        name = _type_of(device.kind)
        if self.simulated and device.kind == "gpu":
            name = "XPU" if self.simulated_like == "xpu" else "GPU"
        return f'"/{name}:{device.index}"'

    def snippet(self, call: str) -> str | None:
        line = self.snippets.get(call)
        name = "XPU" if self.simulated and self.simulated_like == "xpu" else "GPU" if self.simulated else gpu_type()
        return line if line is None or name == "GPU" else line.replace('"GPU', f'"{name}').replace("/GPU", f"/{name}")


def logical_gpus(kind: str) -> list[Any]:
    """Return the physical GPU behind each logical device of a kind, in order; a split GPU appears several times."""
    return [
        card
        for card in tf.config.get_visible_devices(_type_of(kind))
        for _ in tf.config.get_logical_device_configuration(card) or (None,)
    ]


@cache
def metal_works() -> bool:
    """Use Apple's GPU once: hosted Macs list one that cannot allocate memory. Store the reason if it fails."""
    try:
        use_gpu()
    except Exception as error:
        reason = str(error).split("\n")[0].rstrip(" .")
        startup.note("tensorflow", "gpu", f"the Metal device is listed, but using it fails ({reason})")
        return False
    return True


def use_gpu() -> None:
    """Compute one number on TensorFlow's first GPU; raise an error if TensorFlow cannot, or computes elsewhere."""
    with tf.device("/GPU:0"):
        found = tf.ones(1) + 1
    if "GPU" not in found.backing_device:
        msg = f"TensorFlow computes on {found.backing_device} instead"
        raise RuntimeError(msg)
    found.numpy()


def _type_of(kind: str) -> str:
    return gpu_type() if kind == "gpu" else kind.upper()


def _is_plug_in() -> bool:
    """Return True if GPUs are those of a plug-in, such as Apple's: this build itself cannot have any."""
    return not tf.test.is_built_with_gpu_support()


def _total_memory(model: str) -> int | None:
    """Return the memory of GPUs of a model, if NVML reports the same for all: TensorFlow may order GPUs differently."""
    sizes = {card.total_memory for card in nvml.cards() if card.name == model}
    return sizes.pop() if len(sizes) == 1 else None
