"""Parsing of a list of devices that a call was given."""

from __future__ import annotations

from typing import Any

from devshim.devices import parsing
from devshim.devices.device import Device
from devshim.errors import DeviceSpecError
from devshim.registry import argument_hints, registry

__all__ = ["parse_devices"]


def parse_devices(devices: Any, call: str, first: str, x: object) -> list[Device]:
    """Return the devices that a call was given; refuse a single one, because it must be a list of one.

    Args:
        devices: The argument of the call.
        call: The public call.
        first: The name, in its documentation, of the argument before the devices.
        x: That argument.
    """
    one = isinstance(devices, (str, bytes, int, Device)) or registry.backend_for(devices) is not None
    try:
        found = None if one else [parsing.device_of_argument(each) for each in devices]
    except TypeError:
        found = None
    except DeviceSpecError:
        if argument_hints.device_list_source(x) is None:
            raise
        found = None  # the two arguments are swapped
    if not found:
        raise argument_hints.no_devices(call, first, x, devices)
    return found
