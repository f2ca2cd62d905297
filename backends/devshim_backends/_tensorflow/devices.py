"""TensorFlow's devices: naming, counting and describing them without starting them.

Requirements this module answers:

* Counting starts nothing.  ``tf.config.list_logical_devices`` creates the context, and with it takes the memory
  of every card; physical devices and their planned partition are asked instead.
* A name says nothing about existence.  With soft placement, which is on by default, an absent ``/GPU:7`` is
  silently the CPU (tensorflow/tensorflow#29342); that switch is the user's and is left alone, so existence is
  settled by `count` before a name is used.
* A simulated card is a logical CPU: ``CPU:0`` is always the host, ``CPU:1`` stands for ``gpu:0``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.contract.backend import Backend
from devshim.devices import cuda, host, nvml, startup
from devshim.devices.device import ALIASES, CPU, KINDS, Device
from devshim.devices.info import DeviceInfo
from devshim_backends._tensorflow.simulation.devices import CARDS

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACES: dict[str, Device] = {}
"""TensorFlow's device strings -> `Device`; filled when first met, emptied when a simulation changes."""


def parse(name: str) -> tuple[str, int] | None:
    """Read the type and number out of a device string, or return None where it has none (``""``, a job alone)."""
    last = name.rpartition("/")[2].removeprefix("physical_").removeprefix("device:")
    kind, _, number = last.partition(":")
    return (kind.upper(), int(number)) if kind.lower() in KINDS and number.isdecimal() else None


class TensorflowDevices(Backend):
    """The room of devices."""

    def kinds(self) -> Sequence[str]:
        seen = {found.device_type.lower() for found in tf.config.get_visible_devices()}
        return ("gpu", *(kind for kind in KINDS[2:] if kind in seen))

    def count(self, kind: str) -> int:
        if kind == "cpu":
            return 1
        if self.simulated:
            return self.simulated if kind == "gpu" else 0
        return 0 if startup.reason(self.name, kind) else len(logical_cards(kind))

    def absence(self, kind: str) -> str:
        if kind != "gpu":
            return f"TensorFlow shows no {kind.upper()} among its physical devices"
        physical, visible = tf.config.list_physical_devices("GPU"), tf.config.get_visible_devices("GPU")
        if len(visible) < len(physical):
            return f"tf.config.set_visible_devices shows {len(visible)} of {len(physical)}"
        if not tf.test.is_built_with_gpu_support():
            return "this TensorFlow is a CPU-only build (tf.test.is_built_with_gpu_support() is False)"
        if not physical and nvml.visible():
            return cuda.refusal() or (
                "the driver shows cards, and TensorFlow starts none: it cannot load CUDA (pip install "
                "'tensorflow[and-cuda]'), or the driver is too old for it; its log says which"
            )
        return nvml.why_not(len(visible))

    def to_native(self, device: Device) -> Any:
        if device is CPU:
            return "/CPU:0"
        if self.simulated and device.kind == "gpu":
            # An object, not text: "/CPU:2" means the host to whoever reads it without knowing of the simulation.
            return tf.DeviceSpec(device_type="CPU", device_index=device.index + 1)
        return f"/{device.kind.upper()}:{device.index}"

    def from_native(self, native: object) -> Device | None:
        if isinstance(native, (tf.config.LogicalDevice, tf.config.PhysicalDevice)):
            return self.named(native.name)
        if isinstance(native, (tf.DeviceSpec, tf.compat.v1.DeviceSpec)):
            return self.named(native.to_string())
        return None

    def named(self, name: str) -> Device | None:
        """The `Device` behind one of TensorFlow's device strings, remembered; None where it names none."""
        found = PLACES.get(name)
        if found is None:
            read = parse(name)
            if read is None:
                return None
            kind, index = read
            if kind != "CPU":
                found = Device(ALIASES[kind.lower()], index)
            else:
                found = Device("gpu", index - 1) if 0 < index <= self.labelled else CPU
            PLACES[name] = found
        return found

    def is_card(self, device: Device) -> bool:
        """Whether a device is a real accelerator, with memory that is not the host's."""
        return device is not CPU and not self.simulated

    def describe(self, device: Device) -> DeviceInfo:
        if device is CPU:
            return host.describe(self.name)
        if self.simulated:
            return host.describe_simulated(self.name, device, CARDS[device.index].limit)
        details = tf.config.experimental.get_device_details(logical_cards(device.kind)[device.index])
        model = details.get("device_name") or device.kind.upper()
        return DeviceInfo(
            device=device,
            name=model,
            backend=self.name,
            total_memory=_total_memory(model),
            compute_capability=details.get("compute_capability"),
        )

    def native_text(self, device: Device) -> str:
        return f'"/{device.kind.upper()}:{device.index}"'


def logical_cards(kind: str) -> list[Any]:
    """The physical card behind each logical device of a kind, in order; a split card stands there repeatedly."""
    return [
        card
        for card in tf.config.get_visible_devices(kind.upper())
        for _ in tf.config.get_logical_device_configuration(card) or (None,)
    ]


def _total_memory(model: str) -> int | None:
    """What NVML says about cards of this model, if they are all alike: TensorFlow's order need not be the driver's."""
    sizes = {card.total_memory for card in nvml.cards() if card.name == model}
    return sizes.pop() if len(sizes) == 1 else None
