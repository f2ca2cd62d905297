"""The frameworks' own device objects, for `devshim.devices`, which does not know any framework.

Once imported, this module is the value of `devshim.devices.device.FRAMEWORKS`. Before that, the value is a stand-in
that imports it.
"""

from __future__ import annotations

import sys

from devshim.devices import device as device_module
from devshim.devices.device import CPU, Device
from devshim.registry import argument_hints, current, platform_names, registry, simulation_request

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from devshim.errors import DeviceSpecError
    from devshim.registry.discovery import BackendName

__all__ = ["check_platform", "from_native", "is_simulated", "is_tensor", "no_device", "to_native"]

check_platform: Callable[[str, object, str | None], bool] = platform_names.check
is_simulated: Callable[[Device], bool] = simulation_request.is_simulated
no_device: Callable[[str, object, object, DeviceSpecError], DeviceSpecError] = argument_hints.no_device


def to_native(device: Device, backend: BackendName | None) -> Any:
    """Return the framework's own object for a device; the default is the current framework."""
    adapter = current.current() if backend is None else registry.load(backend)
    return adapter.to_native(device if device.text else CPU)


def from_native(spec: Any) -> Device | None:
    """Return the device that a framework's own object names, or None.

    The framework is imported already, or the object could not exist.
    """
    maker = registry.load_maker(type(spec))
    return None if maker is None else registry.load(maker).from_native(spec)


def is_tensor(x: object) -> bool:
    """Return True if an object is a tensor of a framework; False if inspecting an object of an unknown type fails."""
    try:
        return registry.backend_for(x) is not None
    except Exception:
        return False


device_module.FRAMEWORKS = sys.modules[__name__]
