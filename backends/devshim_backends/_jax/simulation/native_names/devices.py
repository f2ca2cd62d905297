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
    from collections.abc import Callable, Iterable, Sequence

    from devshim.simulation.patching import Patches
    from devshim_backends._jax.backend import JaxBackend

_ATTRIBUTES = {
    "compute_capability": ".".join(map(str, CAPABILITY)),
    "core_count": MULTIPROCESSORS,
    "device_vendor": "NVIDIA Corporation",
    "shared_memory_per_block_optin": 166912,
}
"""Attributes of CUDA devices that a CPU device lacks: the numbers of an Ampere GPU, with one multiprocessor."""
_numbers: dict[Any, int] = {}
"""JAX's device -> its number among the GPUs of all processes of the job; a removed GPU with arrays has one too."""
_indices: dict[Any, int] = {}
"""JAX's device -> the index of its simulated GPU, for the GPUs of this process."""
_ordinals: dict[Any, int] = {}
"""JAX's device -> the number that the driver gives to its GPU, for the GPUs of this process."""
_shown: list[Any] = []
_shown_of_all: list[Any] = []
_unused: list[Any] = []
"""Devices of earlier simulated GPUs, which are neither a GPU nor the host."""


def show(
    natives: list[Any], counts: tuple[int, int], ordinals: Sequence[int] = (), processes: Sequence[list[Any]] = ()
) -> None:
    """Call devices of this process GPUs.

    Args:
        natives: JAX's devices for simulated GPUs.
        counts: The number of devices to call GPUs, and the number of GPUs to list.
        ordinals: The number that the driver gives to each GPU.
        processes: In a job of several processes, the GPUs of each process.
    """
    global _numbers, _indices, _ordinals, _shown, _shown_of_all, _unused
    named, listed = counts
    everywhere = [native for gpus in processes or [natives[:named]] for native in gpus]
    _numbers = {native: number for number, native in enumerate(everywhere)}
    _indices = {native: index for index, native in enumerate(natives[:named])}
    _ordinals = dict(zip(natives, ordinals, strict=False))
    _shown, _unused = natives[:listed], natives[named:]
    _shown_of_all = [native for native in everywhere if native not in natives[listed:]]


def shown() -> list[Any]:
    """Return JAX's devices for the simulated GPUs of this process."""
    return list(_shown)


def shown_of_all_processes() -> list[Any]:
    """Return JAX's devices for the simulated GPUs of all processes of the job."""
    return list(_shown_of_all)


def is_gpu(native: Any) -> bool:
    """Return True if a device has the name of a GPU."""
    return native in _numbers


def is_host(native: Any) -> bool:
    """Return True if a device is the host, of this process or of another one."""
    return native not in _numbers and native not in _unused


def arrays(xs: Iterable[Any], gpus: bool) -> list[Any]:
    """Return the arrays that are on simulated GPUs, or those that are not."""
    return [x for x in xs if any(native in _numbers for native in x.sharding.device_set) is gpus]


def install(patches: Patches, backend: JaxBackend) -> None:
    """Replace the attributes of the JAX device class."""
    kind = host.describe_simulated(backend.name, Device("gpu"), None).name
    for name, value in {
        "id": lambda _, number: number,
        "local_hardware_id": lambda native, _: _ordinals.get(native),  # JAX knows it for this process only
        "platform": lambda *_: "gpu",
        "device_kind": lambda *_: kind,
    }.items():
        _replace_property(patches, name, value)
    for name in _ATTRIBUTES:
        patches.replace(xla_client.Device, name, property(partial(_attribute_of_gpu, name)))
    _replace_method(patches, "__str__", lambda _, number: f"cuda:{number}")
    _replace_method(patches, "__repr__", lambda _, number: f"CudaDevice(id={number})")
    _replace_method(patches, "memory_stats", partial(_memory_stats, backend, xla_client.Device.memory_stats))
    patches.replace(xla_client.Device, "addressable_memories", _memories(xla_client.Device.addressable_memories))
    patches.replace(xla_client.Device, "memory", _memory(xla_client.Device.memory))


def _memories(original: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    """Return a replacement for the memories of a device: a real GPU cannot use memory that is not pinned."""

    def addressable_memories(native: Any) -> list[Any]:
        found = original(native)
        return [each for each in found if each.kind != "unpinned_host"] if native in _numbers else found

    return addressable_memories


def _memory(original: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Return a replacement for a memory of a device: a GPU refuses a kind that it lacks in the words of XLA."""

    def memory(native: Any, kind: str) -> Any:
        lacking = text_of_lacking_memory(native, kind)
        if lacking:
            msg = f"INVALID_ARGUMENT: {lacking}"
            raise jax.errors.JaxRuntimeError(msg)
        return original(native, kind)

    return memory


def text_of_lacking_memory(native: Any, kind: str) -> str:
    """Return the words of XLA for a kind of memory that a simulated GPU lacks, or an empty text if it has it."""
    kinds = [each.kind for each in native.addressable_memories()]
    if native not in _numbers or kind in kinds:
        return ""
    name = native.device_kind
    return (
        f"Could not find memory addressable by device {name}. Device {name} can address the following memory kinds: "
        f"{', '.join(kinds)}. Got memory kind: {kind}"
    )


def _attribute_of_gpu(name: str, native: Any) -> Any:
    if native in _numbers:
        return _ATTRIBUTES[name]
    raise AttributeError(name)


def gpu_index(x: Any) -> int | None:
    """Return the index of the simulated GPU that has a whole array, or None."""
    natives = x.sharding.device_set
    return _indices.get(next(iter(natives))) if len(natives) == 1 else None


def _replace_property(patches: Patches, name: str, value: Callable[[Any, int], Any]) -> None:
    original = vars(xla_client.Device)[name]

    def get(native: Any) -> Any:
        number = _numbers.get(native)
        return original.fget(native) if number is None else value(native, number)

    patches.replace(xla_client.Device, name, property(get, doc=original.__doc__))


def _replace_method(patches: Patches, name: str, value: Callable[[Any, int], Any]) -> None:
    original = vars(xla_client.Device)[name]

    def method(native: Any) -> Any:
        number = _numbers.get(native)
        return original(native) if number is None else value(native, number)

    patches.replace(xla_client.Device, name, method)


def _memory_stats(backend: JaxBackend, original: Callable[[Any], Any], native: Any, _: int) -> Any:
    """Return the statistics under the names that XLA's allocator for CUDA uses; nothing is reserved or kept free.

    The number of allocations and the size of the largest one are not counted.
    """
    index = _indices.get(native)
    if index is None:  # of another process
        return original(native)
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
