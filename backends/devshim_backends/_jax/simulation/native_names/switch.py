"""Switching JAX's own names for GPUs on and off: patches of JAX's backends, and of its CPU client's lists."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax._src import compiler, hardware_utils, xla_bridge
from jax._src.lib import xla_client

from devshim.errors import UnsupportedError
from devshim.simulation.patching import Patches
from devshim_backends._jax.internals import clients, layout
from devshim_backends._jax.simulation.internals.fast_path import clear_fast_paths
from devshim_backends._jax.simulation.native_names import devices, tensors
from devshim_backends._jax.simulation.native_names.internals import executables, memory_kinds, platforms
from devshim_backends._jax.simulation.native_names.runtime import GpuClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim_backends._jax.backend import JaxBackend

_patches = Patches()
_PLATFORM = "cuda"
_PRIORITY = 200
"""The priority of the CUDA plugin of JAX; that of the CPU is 0."""


def install(backend: JaxBackend) -> None:
    """Let JAX's names for GPUs mean the simulated GPUs of this backend; JAX does not start because of it."""
    clients.keep_client(backend.cpu_client() if clients.started() else None)
    backend.find_plugins()
    try:
        devices.install(_patches, backend)
        tensors.install(_patches)
        _install_client()
        platforms.install(_patches)
        executables.install(_patches)
        memory_kinds.install(_patches)
        _replace(compiler, "get_compile_options", _with_true_ids(compiler.get_compile_options))
        _install_factories(backend, hidden=not backend.simulated)
        refresh(backend)
    except BaseException:
        uninstall()
        raise
    _forget()


def uninstall() -> None:
    """Give JAX's names for GPUs back to JAX, which continues with its CPU if that has started."""
    client = clients.kept_client()
    with xla_bridge._backend_lock:
        _patches.undo()
        if client is not None and not xla_bridge._backends:
            xla_bridge._backends["cpu"] = xla_bridge._default_backend = client
    tensors.uninstall()
    platforms.uninstall()
    devices.show([], (0, 0))
    clients.keep_client(None)
    _forget()


def refresh(backend: JaxBackend) -> None:
    """Use the number of simulated GPUs that the backend has now."""
    if clients.kept_client() is not None:
        _show(backend)
    xla_bridge.local_devices.cache_clear()


def _show(backend: JaxBackend) -> None:
    devices.show(
        layout.simulated_gpus(),
        (backend.simulated_or_removed, backend.simulated),
        layout.ordinals(),
        layout.gpus_of_processes(),
    )


def _forget() -> None:
    """Clear what JAX stored about its backends and their default device; functions are compiled again."""
    for answer in (xla_bridge.get_backend, xla_bridge.local_devices, xla_bridge.process_count):
        answer.cache_clear()
    jax.clear_caches()
    clear_fast_paths()


def _replace(owner: Any, name: str, new: Any) -> None:
    _patches.replace(owner, name, new)


def _with_true_ids(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give XLA the numbers of its CPU devices."""

    @wraps(original)
    def get_compile_options(
        num_replicas: int, num_partitions: int, device_assignment: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if device_assignment is not None and np.asarray(device_assignment).dtype == object:
            device_assignment = np.vectorize(clients.true_id, otypes=[int])(np.asarray(device_assignment))
        return original(num_replicas, num_partitions, device_assignment, *args, **kwargs)

    return get_compile_options


# ---------------------------------------------------------------------- backends
def _install_factories(backend: JaxBackend, *, hidden: bool) -> None:
    """Make JAX start its backends at the next question, with a CPU that is only the host, and with simulated GPUs.

    If all of them are hidden, JAX does not know the backend ``cuda``: its plugin for CUDA finds no GPU, and does not
    register it (0.10.2).
    """
    own = xla_bridge._backend_factories["cpu"].factory
    was_started = xla_bridge.backends_are_initialized
    with xla_bridge._backend_lock:
        factories = {name: each for name, each in xla_bridge._backend_factories.items() if name != _PLATFORM}
        factories["cpu"] = xla_bridge.BackendRegistration(lambda: _started_client(backend, own), 0)
        if not hidden:
            factories[_PLATFORM] = xla_bridge.BackendRegistration(
                lambda: _gpu_client(_started_client(backend, own)), _PRIORITY
            )
        _replace(xla_bridge, "_backend_factories", factories)
        _replace(hardware_utils, "has_visible_nvidia_gpu", lambda: True)
        if hidden:
            _replace(xla_bridge, "_suggest_missing_backends", lambda: None)  # JAX would say that CUDA is not installed
        _replace(xla_bridge, "_backends", {})
        _replace(xla_bridge, "_backend_errors", {})
        _replace(xla_bridge, "_default_backend", None)
        _replace(
            xla_bridge, "backends_are_initialized", lambda: clients.kept_client() is not None or bool(was_started())
        )


def _started_client(backend: JaxBackend, factory: Callable[[], Any]) -> Any:
    """Return the CPU client, which starts at the first call. JAX holds its lock meanwhile."""
    client = clients.kept_client()
    if client is None:
        everything = range(backend.simulated)
        client = backend.start_cpu(factory, [gpu for gpu in everything if _is_visible(gpu)] or everything)
        clients.keep_client(client)
        _show(backend)
        backend.count_on_devices()
    return client


def _is_visible(gpu: int) -> bool:
    """Return True if ``jax_cuda_visible_devices``, or ``jax.distributed.initialize``, lets JAX use a GPU."""
    visible = str(xla_bridge.CUDA_VISIBLE_DEVICES.value)
    return visible == "all" or str(gpu) in map(str.strip, visible.split(","))


def _gpu_client(client: Any) -> GpuClient:
    seen = [_is_visible(gpu) for gpu in layout.ordinals()]
    if not any(seen):
        msg = "INTERNAL: no supported devices found for platform CUDA"
        raise jax.errors.JaxRuntimeError(msg)
    if not all(seen):
        visible = xla_bridge.CUDA_VISIBLE_DEVICES.value
        msg = f"jax_cuda_visible_devices={visible!r} came after JAX had started all simulated GPUs"
        raise UnsupportedError(
            msg, f"set it at the top of the program, or set the environment variable CUDA_VISIBLE_DEVICES={visible}"
        )
    return GpuClient(client)


def _install_client() -> None:
    """Let the CPU client of JAX list the host only."""
    cls = xla_client.Client
    _install_listing("devices")
    _install_listing("local_devices")
    for count, listing in (("device_count", "devices"), ("local_device_count", "local_devices")):
        _replace(cls, count, _wrap_count(listing, getattr(cls, count)))
    live = cls.live_arrays

    def live_arrays(self: Any) -> list[Any]:
        found = live(self)
        return devices.arrays(found, gpus=False) if self is clients.kept_client() else list(found)

    _replace(cls, "live_arrays", live_arrays)


def _install_listing(name: str) -> None:
    original = getattr(xla_client.Client, name)

    def list_devices(self: Any) -> list[Any]:
        found = original(self)
        return [each for each in found if devices.is_host(each)] if self is clients.kept_client() else list(found)

    _replace(xla_client.Client, name, list_devices)


def _wrap_count(name: str, original: Callable[[Any], int]) -> Callable[[Any], int]:
    def count(self: Any) -> int:
        return len(getattr(self, name)()) if self is clients.kept_client() else original(self)

    return count
