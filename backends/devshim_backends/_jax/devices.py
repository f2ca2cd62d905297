"""JAX's devices: which exist, what they are called, and on which of them an array is.

Workarounds:

* Asking JAX for its devices starts it, and then it takes 75% of a GPU's memory. So devshim counts GPUs with
  `real_gpus` until the program has started JAX. ``jax.devices("gpu")`` raises if there is no GPU; here the count is 0.
* ``Device.id`` is global in a job of several processes, so an index is a position among the local devices.
* JAX can have several CPU "devices". Only devshim's simulation uses them; without it, all of them are the host.
* The sharding of an array in ``pinned_host`` memory names a GPU, but the array is on the host.
* Under ``jax.grad`` and ``jax.vmap`` an array is a tracer without a device (jax-ml/jax#26000). It wraps a concrete
  array, whose device is the answer. Under ``jax.jit`` a tracer has no device, because one trace serves all devices.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax._src.interpreters import partial_eval
from jax.core import Tracer

from devshim.contract.backend import Backend
from devshim.devices import host as host_module
from devshim.devices import startup
from devshim.devices.device import ALIASES, CPU, Device
from devshim.devices.info import DeviceInfo
from devshim.errors import DeviceNotFoundError, UnsupportedError, messages
from devshim.registry import missing_devices
from devshim_backends._jax import real_gpus
from devshim_backends._jax.capabilities import GAPS, LIMITS
from devshim_backends._jax.internals import layout
from devshim_backends._jax.internals.clients import computes_on_cpu, cpu_devices, local_devices, started, true_id
from devshim_backends._keras.traversal import is_variable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from devshim.contract.backend import Tensor
    from devshim.devices.nvml import Card

DEVICES: dict[Any, Device] = {}
"""Maps a JAX device to devshim's. Entries are added on first use; the table is cleared when the simulation changes."""

_HOST_VALUES = (np.ndarray, np.generic, bool, int, float, complex)
_HOST_KINDS = {"pinned_host", "unpinned_host"}
"""JAX's names for host memory. In older releases they also name the memory of a CPU device."""


def in_gpu_host_memory(x: Tensor) -> bool:
    """Return True if an array is in the host memory that belongs to a GPU or simulated GPU, not in the GPU's own."""
    return is_gpu_host_memory(x.sharding)


def is_gpu_host_memory(sharding: Any) -> bool:
    """Return True if a sharding puts arrays into the host memory that belongs to GPUs or simulated GPUs."""
    kind = sharding.memory_kind
    if kind not in _HOST_KINDS:
        return False
    (native, *_) = sharding.device_set
    return not computes_on_cpu(native) or bool(kind != native.default_memory().kind)


def concrete(x: Tensor) -> Any | None:
    """Return the array (or host value) inside ``grad`` and ``vmap`` tracers, or None under `jit`.

    The result is also None for a tracer of ``jax.shard_map`` outside `jit`: the array inside it is sharded differently.
    """
    while isinstance(x, Tracer):
        if isinstance(x, partial_eval.DynamicJaxprTracer) or type(x).__name__ == "ShardMapTracer":
            return None
        x = x.primal if hasattr(x, "primal") else getattr(x, "val", None)
    return x if isinstance(x, (jax.Array, *_HOST_VALUES)) else None


class JaxDevices(Backend):
    """The mixin for recognizing tensors and for devices."""

    gaps = GAPS
    limits = LIMITS

    # ------------------------------------------------------------------ recognizing tensors
    def is_tensor(self, cls: type) -> bool:
        return issubclass(cls, (jax.Array, Tracer))

    def is_tracer(self, x: Tensor) -> bool:
        return isinstance(x, Tracer) and concrete(x) is None

    # ------------------------------------------------------------------ devices
    def kinds(self) -> Sequence[str]:
        return ("gpu", "tpu") if real_gpus.has_tpu_library() else ("gpu",)

    def has_only_host(self) -> bool:
        return not self.simulated and real_gpus.gpu_plugin() is None and not real_gpus.has_tpu_library()

    def count(self, kind: str) -> int:
        if kind == "cpu":
            return 1
        if kind == "gpu":
            if self.simulated:
                return self.simulated
            if real_gpus.gpu_plugin() is None or not real_gpus.is_allowed("gpu") or startup.reason(self.name, kind):
                return 0
            if real_gpus.counts_by_starting():
                return _count_working()
            return len(local_devices("gpu")) if started() else real_gpus.count()
        if kind == "tpu" and real_gpus.has_tpu_library() and real_gpus.is_allowed("tpu"):
            return len(local_devices("tpu"))
        return 0

    def why_unavailable(self, kind: str) -> str:
        return real_gpus.why_unavailable(kind, self.count(kind))

    def platform(self, kind: str) -> str:
        return real_gpus.platform() if kind == "gpu" else kind

    def to_native(self, device: Device) -> Any:
        if device is CPU:
            return host_device()
        simulated = self.simulated and device.kind == "gpu"
        name = real_gpus.jax_name(real_gpus.platform()) if device.kind == "gpu" else device.kind
        natives = layout.simulated_gpus(self.simulated) if simulated else local_devices(name)
        if device.index >= len(natives):
            raise missing_devices.not_found_error(self, device)
        return natives[device.index]

    def from_native(self, native: object) -> Device | None:
        if isinstance(native, jax.sharding.SingleDeviceSharding):
            (native,) = native.device_set
        if not isinstance(native, jax.Device):
            return None
        if computes_on_cpu(native):
            index = _index_in(cpu_devices(), native) - layout.host_count()
            return Device("gpu", index) if 0 <= index < self.simulated_or_removed else CPU
        kind = ALIASES.get(native.platform.lower())
        return None if kind is None else Device(kind, _index_in(jax.local_devices(backend=native.platform), native))

    def describe(self, device: Device) -> DeviceInfo:
        if device is CPU:
            return host_module.describe(self.name)
        if self.simulated:
            limit = None if self.simulated_devices is None else self.simulated_devices[device.index].limit
            return host_module.describe_simulated(self.name, device, limit)
        card = real_gpus.nvml_card(device.index) if device.kind == "gpu" else None
        if card is None or started():
            return self._describe_native(device, card)
        return DeviceInfo(device, card.name, self.name, card.total_memory, card.capability, uuid=card.uuid)

    def _describe_native(self, device: Device, card: Card | None) -> DeviceInfo:
        """Return what JAX knows, and what the driver knows if its card is certainly the same GPU. Starts JAX."""
        native = self.to_native(device)
        major, _, minor = str(getattr(native, "compute_capability", "")).partition(".")
        limit = memory_stats(native).get("bytes_limit")  # JAX's share, used if the driver does not say more
        return DeviceInfo(
            device=device,
            name=native.device_kind,
            backend=self.name,
            total_memory=limit if card is None else card.total_memory,
            compute_capability=(int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None,
            uuid=None if card is None else card.uuid,
        )

    # ------------------------------------------------------------------ the device of a tensor
    def device_of(self, x: Tensor) -> Device:
        if isinstance(x, Tracer):
            return self._locate(x)  # reading the tracer's sharding fails slowly: JAX builds a long error message
        try:
            # This fast path uses private names: `x.device` is slower.
            sharding = x.sharding
            found = DEVICES[sharding._device]
            if found is CPU or sharding._memory_kind not in _HOST_KINDS:
                return found
        except (KeyError, AttributeError):
            pass
        return self._locate(x)

    def _locate(self, x: Tensor) -> Device:
        """Return the device of a Keras variable, or of an array on a new device, sharded, or inside a tracer."""
        if is_variable(x):
            return self.device_of(x._value)
        value = concrete(x)
        if value is None:
            raise self._tracing_error("device_of")
        if isinstance(value, _HOST_VALUES):
            return CPU  # jax.grad and jax.vmap wrap NumPy arrays and numbers without conversion
        natives = value.sharding.device_set
        if len(natives) != 1:
            raise self._sharded_error(natives)
        (native,) = natives
        if in_gpu_host_memory(value):
            return CPU
        found = self.from_native(native)
        if found is None:
            msg = f"this array is on {native}, for which devshim has no name"
            raise UnsupportedError(msg, "move it with jax.device_put(x, jax.devices()[0])")
        DEVICES[native] = found
        return found

    def _tracing_error(self, call: str) -> Exception:
        return messages.tracing(
            self,
            call,
            "call it before or after the compiled function, which runs on the device of its arguments",
        )

    def _sharded_error(self, natives: Collection[Any]) -> UnsupportedError:
        devices = [self.from_native(native) for native in natives]
        # Without a simulation, devshim calls all JAX CPU devices "cpu", which would not distinguish them.
        names = sorted(map(str, devices)) if len(set(devices)) > 1 else sorted(map(repr, natives))
        return UnsupportedError(
            f"this array is spread over {len(names)} devices ({', '.join(names)}), so it has no single device",
            "gather it with ds.place(x, device); ds.placement_of(x) has the device of each part",
        )


def memory_stats(native: Any) -> Mapping[str, int]:
    """Return the statistics of a device's allocator; empty if the platform keeps none."""
    try:
        return native.memory_stats() or {}
    except RuntimeError as error:
        if "UNIMPLEMENTED" not in str(error):
            raise
        return {}


def _count_working() -> int:
    """Return the number of GPUs of a platform that only JAX can count; 0 if the first one does not work."""
    natives = local_devices(real_gpus.jax_name(real_gpus.platform()))
    return len(natives) if natives and _works(natives[0]) else 0


@cache
def _works(native: Any) -> bool:
    """Use a device once: hosted Macs list a GPU that cannot allocate memory. Store the reason if it fails."""
    try:
        jax.device_put(np.ones(1, np.float32), native).block_until_ready()
    except Exception as error:
        reason = str(error).split("\n")[0].rstrip(" .")
        startup.note("jax", "gpu", f"the device {native} is listed, but using it fails ({reason})")
        return False
    return True


def _index_in(local: list[Any], native: Any) -> int:
    return local.index(native) if native in local else int(true_id(native))


def host_device() -> Any:
    """Return the JAX device for the host."""
    natives = cpu_devices()
    failures = startup.reasons("jax")
    if not natives and real_gpus.is_allowed("cpu") and failures:
        msg = f"JAX does not start: {failures[-1]}"
        raise DeviceNotFoundError(msg, "set JAX_PLATFORMS=cpu to use only the CPU; `devshim doctor` shows the details")
    if not natives:
        msg = f"JAX_PLATFORMS={jax.config.jax_platforms!r} excludes the CPU, which devshim needs for host memory"
        raise UnsupportedError(msg, f"set JAX_PLATFORMS={jax.config.jax_platforms},cpu")
    return natives[0]
