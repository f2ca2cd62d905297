"""JAX's devices of a platform, and its CPU: the host, and the devices that simulate GPUs.

Workarounds:

* JAX raises if a platform is absent. If a platform fails to start, JAX raises once, at the first call for any platform,
  and then continues without it, so the host is still available.
* With native names, JAX answers the program as if the simulated GPUs were real. So this module keeps JAX's true client
  and true attributes for devshim.
"""

from __future__ import annotations

import re
from typing import Any

import jax
from jax._src import xla_bridge
from jax._src.lib import xla_client

from devshim.devices import startup
from devshim.devices.device import ALIASES

_START_FAILURE = re.compile("Unable to initialize backend '([^']*)'")
"""The beginning of the JAX error for a platform that does not start."""


def local_devices(platform: str) -> list[Any]:
    """Return JAX's local devices of a platform. Starts JAX."""
    for _ in range(2):
        try:
            return list(jax.local_devices(backend=platform))
        except RuntimeError as error:
            platform_named = _START_FAILURE.match(str(error))
            if platform_named is None:
                break
            why = str(error).partition(" (you may")[0].partition(" (set JAX")[0]
            startup.note("jax", ALIASES.get(platform_named[1].lower(), "gpu"), why)
    return []


def started() -> bool:
    """Return True if JAX has started its devices."""
    return _kept_client is not None or bool(xla_bridge.backends_are_initialized())


_kept_client: Any = None
_true_devices, _true_live_arrays = xla_client.Client.local_devices, xla_client.Client.live_arrays
_true_devices_of_all = xla_client.Client.devices
true_id: Any = xla_client.Device.id.fget
"""JAX's own attributes, which `simulation.native_names` replaces for the program."""


def keep_client(client: Any) -> None:
    """Use this CPU client of JAX from now on, even if JAX gives the program another; None: ask JAX again."""
    global _kept_client
    _kept_client = client


def kept_client() -> Any | None:
    """Return the client of `keep_client`."""
    return _kept_client


def cpu_devices() -> list[Any]:
    """Return JAX's CPU devices: the host, and those that simulate GPUs. Starts JAX."""
    client = _kept_client  # read once, because another thread may switch native names
    if client is None:
        natives = local_devices("cpu")
        client = kept_client()  # with native names, the start keeps the client
        if client is None:
            return natives
    return list(_true_devices(client))


def devices_of_all_processes() -> list[Any]:
    """Return JAX's CPU devices in all processes of a job. Starts JAX."""
    natives = cpu_devices()
    return list(_true_devices_of_all(natives[0].client)) if natives else []


def live_arrays(client: Any) -> list[Any]:
    """Return the arrays that use memory on the devices of a client."""
    return list(_true_live_arrays(client))


def arrays_on(native: Any) -> list[Any]:
    """Return the arrays that use memory on a JAX device."""
    return [x for x in live_arrays(native.client) if native in x.sharding.device_set]


def is_on_one_device(x: Any) -> bool:
    """Return True for an array on a single device."""
    return len(x.sharding.device_set) == 1


def computes_on_cpu(native: Any) -> bool:
    """Return True if a device is the host or a simulated GPU, which native names call a GPU."""
    return bool(native.client.platform == "cpu")
