"""The devices that a copy of a tensor reads from."""

from __future__ import annotations

from devshim.errors import TracingError

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device

__all__ = ["source_of", "sources_of"]


def source_of(backend: Backend, x: Tensor) -> Device:
    """Return the device of a tensor; of one whose data is on several devices, that of the first part."""
    parts = backend.shards(x)
    return backend.device_of(x if parts is None else parts[0])


def sources_of(backend: Backend, x: Tensor) -> Sequence[tuple[Device, int]]:
    """Return each device that a copy of a tensor reads from, with the bytes.

    Returns nothing in a compiled function: this call makes no copy, and the framework makes one each time that runs.
    """
    if backend.compiling():
        return ()
    try:
        return backend.sources(x)
    except TracingError:
        return ()
