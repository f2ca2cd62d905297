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
from devshim_backends._jax.internals import clients
from devshim_backends._jax.simulation.internals.fast_path import clear_fast_paths
from devshim_backends._jax.simulation.native_names import devices, tensors
from devshim_backends._jax.simulation.native_names.internals import platforms
from devshim_backends._jax.simulation.native_names.runtime import GpuClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim_backends._jax.backend import JaxBackend

_patches = Patches()
_PLATFORM = "cuda"
_PRIORITY = 200
"""The priority of the CUDA plugin of JAX; that of the CPU is 0."""


def install(backend: JaxBackend) -> None:
    """Let JAX's names for GPUs mean the simulated GPUs of this backend."""
    client = backend.cpu_client()
    clients.keep_client(client)
    try:
        _show(backend)
        devices.install(_patches, backend)
        tensors.install(_patches)
        _install_client(client)
        platforms.install(_patches)
        _replace(compiler, "get_compile_options", _with_true_ids(compiler.get_compile_options))
        _install_factories(client)
    except BaseException:
        uninstall()
        raise
    _forget()


def uninstall() -> None:
    """Give JAX's names for GPUs back to JAX."""
    with xla_bridge._backend_lock:
        _patches.undo()
    tensors.uninstall()
    platforms.uninstall()
    devices.show([], 0)
    clients.keep_client(None)
    _forget()


def refresh(backend: JaxBackend) -> None:
    """Use the number of simulated GPUs that the backend has now."""
    _show(backend)
    xla_bridge.local_devices.cache_clear()


def _show(backend: JaxBackend) -> None:
    devices.show(clients.cpu_devices()[1 : backend.simulated_or_removed + 1], backend.simulated)


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
def _install_factories(client: Any) -> None:
    """Make JAX start its backends again, with a CPU that is only the host, and with the simulated GPUs."""
    factories = xla_bridge._backend_factories
    with xla_bridge._backend_lock:
        for name, priority, factory in (
            ("cpu", 0, lambda: client),
            (_PLATFORM, _PRIORITY, lambda: _gpu_client(client)),
        ):
            new = xla_bridge.BackendRegistration(factory, priority, fail_quietly=False)
            _patches.replace_item(factories, name, new)
        _replace(hardware_utils, "has_visible_nvidia_gpu", lambda: True)
        _replace(xla_bridge, "_backends", {})
        _replace(xla_bridge, "_backend_errors", {})
        _replace(xla_bridge, "_default_backend", None)


def _gpu_client(client: Any) -> GpuClient:
    visible = xla_bridge.CUDA_VISIBLE_DEVICES.value
    if visible != "all":
        msg = f"jax_cuda_visible_devices={visible!r} does not choose simulated GPUs"
        raise UnsupportedError(msg, f"set the environment variable CUDA_VISIBLE_DEVICES={visible}")
    return GpuClient(client)


def _install_client(client: Any) -> None:
    """Let the CPU client of JAX list the host only."""
    cls = xla_client.Client
    _install_listing(client, "devices")
    _install_listing(client, "local_devices")
    for count, listing in (("device_count", "devices"), ("local_device_count", "local_devices")):
        _replace(cls, count, _wrap_count(client, listing, getattr(cls, count)))
    live = cls.live_arrays

    def live_arrays(self: Any) -> list[Any]:
        found = live(self)
        return devices.arrays(found, gpus=False) if self is client else list(found)

    _replace(cls, "live_arrays", live_arrays)


def _install_listing(client: Any, name: str) -> None:
    original = getattr(xla_client.Client, name)

    def list_devices(self: Any) -> list[Any]:
        found = original(self)
        return [each for each in found if not devices.is_gpu(each)] if self is client else list(found)

    _replace(xla_client.Client, name, list_devices)


def _wrap_count(client: Any, name: str, original: Callable[[Any], int]) -> Callable[[Any], int]:
    def count(self: Any) -> int:
        return len(getattr(self, name)()) if self is client else original(self)

    return count
