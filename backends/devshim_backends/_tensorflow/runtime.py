"""TensorFlow at run time: settings that must come before its devices start, and memory.

TensorFlow starts its devices with its eager context, at the first operator or `tf.device` block. From then on,
visibility, memory growth and logical devices cannot be changed. Every public function of TensorFlow that could say
whether this has happened makes it happen.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Literal

import tensorflow as tf
from tensorflow.python.eager import context

from devshim.devices import host, startup
from devshim.devices.device import CPU
from devshim.devices.info import MemoryInfo
from devshim.errors.out_of_memory import lacks_another_resource, reports_full_device
from devshim_backends._tensorflow.devices import TensorflowDevices, gpu_type, metal_works
from devshim_backends._tensorflow.simulation.memory import update_variables
from devshim_backends._tensorflow.simulation.storage import SIMULATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.devices.device import Device

_NO_START_TEXTS = (
    *("CUDA runtime implicit initialization", "failed initializing StreamExecutor", "driver version is insufficient"),
    *("cudaSetDevice() on GPU", "cudaGetDevice() failed", "cudaGetDeviceCount() failed", "CUDA_ERROR_NO_DEVICE"),
    *("CUDA_ERROR_NOT_INITIALIZED", "CUDA_ERROR_UNKNOWN", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
)
"""Texts in TensorFlow's errors (2.16 to 2.21) if it cannot start a GPU that it has listed."""


class TensorflowRuntime(TensorflowDevices):
    """The mixin for memory and the start of TensorFlow."""

    def started(self) -> bool:
        return bool(getattr(context._context, "_initialized", False))

    def set_visible(self, indices: Sequence[int] | None) -> None:
        if self.simulated:
            return
        if getattr(context._context, "_physical_devices", None) is None:
            return  # TensorFlow has not looked for GPUs yet, and will respect CUDA_VISIBLE_DEVICES
        if indices is None:
            tf.config.set_visible_devices(tf.config.list_physical_devices("GPU"), "GPU")
            return
        cards = tf.config.get_visible_devices("GPU")
        tf.config.set_visible_devices([cards[index] for index in indices if index < len(cards)], "GPU")

    def memory(self, device: Device) -> MemoryInfo:
        if device is CPU:
            return host.memory()
        if self.simulated:
            update_variables(SIMULATED[device.index])
            return SIMULATED[device.index].info()
        if device.kind != "gpu":
            return MemoryInfo()
        try:
            known = tf.config.experimental.get_memory_info(f"{gpu_type()}:{device.index}")
        except ValueError:  # a plug-in's allocator keeps no statistics
            return MemoryInfo(total=self.describe(device).total_memory)
        total = self.describe(device).total_memory
        return MemoryInfo(total=total, used=known["current"], peak=known["peak"])

    def empty_cache(self, device: Device) -> None:
        if self.is_accelerator(device):
            gc.collect()  # TensorFlow keeps the GPU's memory; this frees dead tensors in cycles, so it can reuse theirs

    def memory_policy(self, policy: Literal["grow"] | float) -> None:
        if self.simulated:
            return
        if policy == "grow":
            for card in tf.config.get_visible_devices(gpu_type()):
                tf.config.experimental.set_memory_growth(card, True)
            return
        # A logical device's limit is in bytes, and would need the GPU's size. TensorFlow also has an option for a
        # fraction, which tf.config does not offer (2.16 to 2.21).
        chosen = context.context()
        settings = tf.compat.v1.ConfigProto()
        if chosen._config is not None:
            settings.CopyFrom(chosen._config)
        settings.gpu_options.per_process_gpu_memory_fraction = float(policy)
        chosen._config = settings

    def is_out_of_memory(self, error: BaseException) -> bool:
        if isinstance(error, tf.errors.ResourceExhaustedError):
            return not lacks_another_resource(error)  # a full disk raises the same class
        kinds = (tf.errors.InternalError, tf.errors.UnknownError, RuntimeError)
        return isinstance(error, kinds) and reports_full_device(error)

    def why_unable_to_start(self, error: BaseException) -> str | None:
        message = str(error).partition("\n")[0]
        unable = isinstance(error, (tf.errors.OpError, RuntimeError)) and any(
            text in message for text in _NO_START_TEXTS
        )
        if not unable and self.platform("gpu") == "metal" and isinstance(error, (tf.errors.OpError, RuntimeError)):
            return None if metal_works() else startup.reason(self.name, "gpu")
        return f"TensorFlow cannot start the GPUs ({message})" if unable else None
