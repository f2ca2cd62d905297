"""The errors for devices that do not exist here: how many there are, why, and what to type instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from devshim.devices import startup
from devshim.errors import DeviceNotFoundError, DevshimError
from devshim.registry import current, simulation_request
from devshim.registry.discovery import title_of

if TYPE_CHECKING:
    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

E = TypeVar("E", bound=DevshimError)

_SHOW = "show them with another value, or use ds.try_gpu() to fall back to the CPU"

__all__ = [
    "all_hidden_error",
    "not_found_error",
    "plain_array_error",
    "refuse_plain_array",
    "stays_on_host",
    "why_hidden",
]


def not_found_error(backend: Backend, device: Device) -> DeviceNotFoundError:
    """Return the error for a device that does not exist: how many there are, why, and what to type instead."""
    if stays_on_host(backend):
        return plain_array_error(backend, device)
    count = backend.count(device.kind)
    have = f"{count} {device.kind} device{'' if count == 1 else 's'}"
    refused = backend.simulation_refused if device.kind == "gpu" else None
    is_hidden = device.kind == "gpu" and not count and (backend.native_names or simulation_request.why_hidden())
    if backend.simulated and device.kind == "gpu":
        why = f"devshim simulates {backend.simulated}"
    elif refused is not None:
        why = refused.problem
    elif is_hidden:
        why = why_hidden()
    else:
        why = startup.reason(backend.name, device.kind) or backend.why_unavailable(device.kind)
    if refused is not None and refused.hint:
        hint = refused.hint
    elif is_hidden:
        hint = _SHOW
    elif count:
        last = f" to {device.kind}:{count - 1}" if count > 1 else ""
        hint = f"use {device.kind}:0{last}, or ds.try_gpu({device.index}) to fall back to the CPU"
    else:
        hint = "use ds.try_gpu() to fall back to the CPU, or run `devshim doctor` to see why"
        if "simulate" not in backend.gaps:
            hint += "; ds.simulate(gpus=2) simulates two"
    return DeviceNotFoundError(f"{device} was asked for, and {backend.title} has {have}: {why}", hint)


def all_hidden_error(cls: type[E], real_text: str) -> E:
    """Return the error of a program that uses a GPU by its native name while all simulated GPUs are hidden.

    Args:
        cls: The class of the error.
        real_text: The text of the framework's build for CUDA, which is the first line.
    """
    return cls(f"{real_text}\n{why_hidden()}", _SHOW)


def why_hidden() -> str:
    """Return why all simulated GPUs are hidden from a framework whose native names are on."""
    return simulation_request.why_hidden() or "all simulated GPUs were hidden when they were requested"


def stays_on_host(backend: Backend) -> bool:
    """Return True if another framework is current, to whose GPUs the arrays of this backend cannot go."""
    return backend.has_plain_arrays and current.chosen_name() != backend.name


def refuse_plain_array(backend: Backend, device: Device) -> None:
    """Raise `DeviceNotFoundError` for an array in host memory that would go to a GPU, if another framework is current.

    Simulated GPUs belong to the current framework, which would treat this array as one in host memory.
    """
    if stays_on_host(backend):
        backend.raise_error(plain_array_error, (backend, device))


def plain_array_error(backend: Backend, device: Device) -> DeviceNotFoundError:
    """Return the error for an array in host memory (`Backend.has_plain_arrays`) and a GPU of another framework."""
    name = current.chosen_name()
    if name is None:
        problem, first = "no framework is chosen", "choose one, such as ds.use('torch'), then call "
    else:
        problem, first = f"the current framework is {title_of(name)}", ""
    return DeviceNotFoundError(
        f"{device} was asked for, and this is a {backend.title} array: {backend.title} has no GPUs, and {problem}",
        f"{first}ds.from_numpy(x, {str(device)!r}), which makes a tensor of the current framework there",
    )
