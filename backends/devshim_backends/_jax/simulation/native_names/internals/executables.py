"""Compiled functions that are loaded from bytes with native names: `jax.experimental.serialize_executable`.

JAX loads them for the devices of a client, which it takes from a device. The client of a simulated GPU is that of the
CPU, which lists the host only, and XLA ends the process if it gets fewer devices than a function was compiled for. So
here JAX is given the devices that the client of real GPUs would list.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import jax
from jax.experimental import serialize_executable

from devshim.errors import UnsupportedError
from devshim_backends._jax.internals import clients
from devshim_backends._jax.simulation.native_names.devices import is_gpu
from devshim_backends._jax.simulation.native_names.runtime import GpuClient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.simulation.patching import Patches

__all__ = ["install"]


def install(patches: Patches) -> None:
    """Load compiled functions for the simulated GPUs, or for the host."""
    patches.replace(serialize_executable, "deserialize_and_load", _load_on(serialize_executable.deserialize_and_load))


def _load_on(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def deserialize_and_load(
        serialized: Any,
        in_tree: Any,
        out_tree: Any,
        backend: Any = None,
        execution_devices: Sequence[Any] | None = None,
    ) -> Any:
        if backend is None or isinstance(backend, (str, GpuClient)):
            listed = jax.devices("cuda" if isinstance(backend, GpuClient) else backend)
            backend = listed[0].client
            if execution_devices is None:
                execution_devices = listed
            elif is_gpu(execution_devices[0]) is not is_gpu(listed[0]):
                msg = "Execution devices belong to a client other than `backend`."
                raise ValueError(msg)
        elif execution_devices is None and backend is clients.kept_client():
            msg = "device.client is the client of the host, and of the simulated GPUs too"
            raise UnsupportedError(msg, "leave backend out, or pass execution_devices=[device]")
        return original(serialized, in_tree, out_tree, backend=backend, execution_devices=execution_devices)

    return deserialize_and_load
