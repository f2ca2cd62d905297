"""`python -m devshim.cli._probe NAME`: print the devices that one framework sees, as JSON on standard output.

It runs in a separate process, because frameworks that are imported together may crash, and because asking a framework
starts its devices. Anything that the framework prints goes to standard error.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

import devshim as ds
from devshim.cli._why import why_no_more
from devshim.devices import nvml
from devshim.registry import processes

__all__ = ["look", "main", "used"]


def look(name: str) -> dict[str, Any]:
    """Return the devices that a framework sees, and the reason if it has not more GPUs."""
    with ds.using(name):
        ds.framework()
        with suppress(ds.DevshimError):  # NumPy has no such setting, and does not need it
            ds.memory_policy("grow")  # a query must not take a whole GPU
        return {
            "devices": [_to_json(device) for device in ds.devices()],
            "why": why_no_more(ds.device_count("gpu")),
            "clashes": [clash for info in ds.backends().values() for clash in info.clashes],
        }


def _to_json(device: ds.Device) -> dict[str, Any]:
    info = ds.describe(device)
    return {
        "device": str(device),
        "native": str(device.native()),
        "name": info.name,
        "platform": info.platform,
        "memory": info.total_memory,
        "used": used(device),
        "capability": info.compute_capability,
        "uuid": info.uuid,
        "simulated": info.simulated,
    }


def used(device: ds.Device) -> int | None:
    """Return the bytes in use on a device by all processes, or None if finding out would start a GPU."""
    if device.kind == "cpu" or ds.describe(device).simulated:
        with suppress(ds.UnsupportedError):
            found = ds.memory(device)
            if found.total is None or found.free is None:
                return found.used
            return found.total - found.free  # for the host, `used` counts only this process
        return None
    card = nvml.card_at(device.index) if device.kind == "gpu" else None
    if card is None or card.total_memory is None or card.free_memory is None:
        return None
    return card.total_memory - card.free_memory


def main(name: str) -> None:
    """Print the framework's devices as one line of JSON; for a broken framework, print the reason."""
    with processes.answer_stream() as stream:
        try:
            seen = look(name)
        except ds.DevshimError as error:
            seen = {"broken": error.problem.rstrip().splitlines()[-1].strip()}
        print(json.dumps(seen), file=stream)


if __name__ == "__main__":
    main(sys.argv[1])
