"""The attributes that JAX devices report while a simulated GPU has the name of a real one: ``CudaDevice(id=1)``.

The class of devices is JAX's compiled one, and the attributes of the class are replaced. Each one asks the original for
every device that is not a simulated GPU. A simulated GPU keeps its name as long as an array is on it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
from jax._src.lib import xla_client

from devshim.devices import host
from devshim.devices.device import Device
from devshim.simulation.properties import CAPABILITY, MULTIPROCESSORS
from devshim_backends._jax.simulation import memory as memory_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from devshim.simulation.patching import Patches
    from devshim_backends._jax.backend import JaxBackend

_ATTRIBUTES = {
    "compute_capability": ".".join(map(str, CAPABILITY)),
    "core_count": MULTIPROCESSORS,
    "device_vendor": "NVIDIA Corporation",
    "shared_memory_per_block_optin": 166912,
}
"""Attributes of CUDA devices that a CPU device lacks: the numbers of an Ampere GPU, with one multiprocessor."""
_indices: dict[Any, int] = {}
"""Maps a JAX device to the index of its simulated GPU, even of a removed GPU that still holds arrays."""
_shown: list[Any] = []


def show(natives: list[Any], count: int) -> None:
    """Call these devices GPUs, and list the first ``count`` of them."""
    global _indices, _shown
    _indices, _shown = {native: index for index, native in enumerate(natives)}, natives[:count]


def shown() -> list[Any]:
    """Return JAX's devices for the simulated GPUs."""
    return list(_shown)


def is_gpu(native: Any) -> bool:
    """Return True if a device has the name of a GPU."""
    return native in _indices


def arrays(xs: Iterable[Any], gpus: bool) -> list[Any]:
    """Return the arrays that are on simulated GPUs, or those that are not."""
    return [x for x in xs if any(native in _indices for native in x.sharding.device_set) is gpus]


def install(patches: Patches, backend: JaxBackend) -> None:
    """Replace the attributes of the JAX device class."""
    kind = host.describe_simulated(backend.name, Device("gpu"), None).name
    for name, value in {
        "id": lambda index: index,
        "local_hardware_id": lambda index: index,
        "platform": lambda _: "gpu",
        "device_kind": lambda _: kind,
    }.items():
        _replace_property(patches, name, value)
    for name in _ATTRIBUTES:
        patches.replace(xla_client.Device, name, property(partial(_attribute_of_gpu, name)))
    _replace_method(patches, "__str__", "cuda:{}".format)
    _replace_method(patches, "__repr__", "CudaDevice(id={})".format)
    _replace_method(patches, "memory_stats", lambda index: _memory_stats(backend, index))
    patches.replace(xla_client.Device, "addressable_memories", _memories(xla_client.Device.addressable_memories))
    patches.replace(xla_client.Device, "memory", _memory(xla_client.Device.memory))


def _memories(original: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    """Return a replacement for the memories of a device: a real GPU cannot use memory that is not pinned."""

    def addressable_memories(native: Any) -> list[Any]:
        found = original(native)
        return [each for each in found if each.kind != "unpinned_host"] if native in _indices else found

    return addressable_memories


def _memory(original: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Return a replacement for a memory of a device: a GPU refuses a kind that it lacks in the words of XLA."""

    def memory(native: Any, kind: str) -> Any:
        if native in _indices:
            kinds = [each.kind for each in native.addressable_memories()]
            name = native.device_kind
            if kind not in kinds:
                msg = (
                    f"INVALID_ARGUMENT: Could not find memory addressable by device {name}. Device {name} can address "
                    f"the following memory kinds: {', '.join(kinds)}. Got memory kind: {kind}"
                )
                raise jax.errors.JaxRuntimeError(msg)
        return original(native, kind)

    return memory


def _attribute_of_gpu(name: str, native: Any) -> Any:
    if native in _indices:
        return _ATTRIBUTES[name]
    raise AttributeError(name)


def gpu_index(x: Any) -> int | None:
    """Return the index of the simulated GPU that has a whole array, or None."""
    natives = x.sharding.device_set
    return _indices.get(next(iter(natives))) if len(natives) == 1 else None


def _replace_property(patches: Patches, name: str, value: Callable[[int], Any]) -> None:
    original = vars(xla_client.Device)[name]

    def get(native: Any) -> Any:
        index = _indices.get(native)
        return original.fget(native) if index is None else value(index)

    patches.replace(xla_client.Device, name, property(get, doc=original.__doc__))


def _replace_method(patches: Patches, name: str, value: Callable[[int], Any]) -> None:
    original = vars(xla_client.Device)[name]

    def method(native: Any) -> Any:
        index = _indices.get(native)
        return original(native) if index is None else value(index)

    patches.replace(xla_client.Device, name, method)


def _memory_stats(backend: JaxBackend, index: int) -> dict[str, int]:
    """Return the statistics under the names that XLA's allocator for CUDA uses; nothing is reserved or kept free.

    The number of allocations and the size of the largest one are not counted.
    """
    memory_module.update_counts()
    assert backend.simulated_devices is not None
    info = backend.simulated_devices[index].info()
    limit = (host.memory().total if info.total is None else info.total) or 0
    used, peak = info.used or 0, info.peak or 0
    return {
        **dict.fromkeys(("bytes_in_use", "pool_bytes"), used),
        **dict.fromkeys(("peak_bytes_in_use", "peak_pool_bytes"), peak),
        **dict.fromkeys(("bytes_reserved", "peak_bytes_reserved"), 0),
        "bytes_limit": limit,
        "largest_free_block_bytes": max(limit - used, 0),
    }
