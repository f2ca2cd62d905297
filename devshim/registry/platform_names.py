"""The check of a device that is named by its platform, such as ``mps:0``: is the framework's GPU of that platform?

A `Device` names no platform: ``ds.device("mps")`` is ``gpu:0``. But a call that uses a device, such as
``ds.place(x, "mps")``, refuses the name where the framework's GPUs are of another platform.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from devshim._compiler_marks import constant_under_compile
from devshim.devices import platforms
from devshim.errors import BackendError, ConversionError, DeviceNotFoundError
from devshim.registry import current, registry

if TYPE_CHECKING:
    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

__all__ = ["check", "dtype_error", "is_of_platform", "platform_of"]


def check(name: str, x: object, framework: str | None) -> bool:
    """Return True if a platform's name may be used for the GPUs of a tensor's framework, or of the current one.

    The answer is False if the framework has no GPUs: then the call that uses the device reports that.

    Raises:
        DeviceNotFoundError: The GPUs are of another platform.
    """
    backend = None if x is None else registry.backend_for(x)
    return _check(name, framework if backend is None else backend.name)


@constant_under_compile
def _check(name: str, framework: str | None) -> bool:
    for backend in _candidates(framework):
        if is_of_platform(backend, name):
            return True
        if backend.count("gpu"):
            backend.raise_error(_refusal, (backend, name))
    return platforms.family(name) == "cuda"


def _candidates(framework: str | None) -> list[Backend]:
    """Return the backend of a framework, if any, and the current one, if any."""
    found = []
    with suppress(BackendError):  # it is unknown, or broken: the call itself reports that
        found += [] if framework is None else [registry.load(framework)]
    with suppress(BackendError):  # none is chosen
        found.append(current.current())
    return found


def platform_of(backend: Backend) -> str:
    """Return the platform of a backend's GPUs, or of its simulated GPUs."""
    return backend.simulated_like if backend.simulated else backend.platform("gpu")


def is_of_platform(backend: Backend, name: str) -> bool:
    """Return True if a platform's name, or its family, is that of a backend's GPUs."""
    return platforms.family(platform_of(backend)) == platforms.family(name)


def dtype_error(backend: Backend, device: Device, dtype: str) -> ConversionError:
    """Return the error for a dtype that a backend's GPU cannot hold."""
    return platforms.missing_dtype_error(device, dtype, platform_of(backend))


def _refusal(backend: Backend, name: str) -> DeviceNotFoundError:
    simulated = " simulated as" if backend.simulated else ""
    there = platforms.maker(platform_of(backend))
    return DeviceNotFoundError(
        f"a device of the platform {name} was asked for, and the GPU of {backend.title} is{simulated} {there}",
        "write 'gpu:0', which names the GPU of any platform, or use ds.try_gpu()",
    )
