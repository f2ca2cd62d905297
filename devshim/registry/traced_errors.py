"""Errors inside compiled functions, wrapped so that they leave the function as they would leave any other.

The arguments are plain text, because a compiler caches the results of such calls.
"""

from __future__ import annotations

from devshim.devices import parsing
from devshim.errors import NotATensorError, messages
from devshim.registry import mismatches, missing_devices, registry

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["copy_needed", "mismatch", "not_a_tensor", "not_found"]


@registry.constant_under_compile
def not_found(name: str, device: str) -> NoReturn:
    """Raise `DeviceNotFoundError` in a form that leaves a compiled function."""
    backend = registry.load(name)
    raise backend.as_trace_error(missing_devices.not_found(backend, parsing.device(device)))


@registry.constant_under_compile
def copy_needed(name: str, source: str, target: str) -> NoReturn:
    """Raise `CopyNeededError` in a form that leaves a compiled function."""
    raise registry.load(name).as_trace_error(messages.copy_needed(parsing.device(source), parsing.device(target)))


@registry.constant_under_compile
def mismatch(name: str, located: tuple[tuple[str, str, str], ...], call: str) -> NoReturn:
    """Raise `DeviceMismatchError` in a form that leaves a compiled function."""
    devices = {label: parsing.device(device) for label, device, _ in located}
    frameworks = {label: framework for label, _, framework in located}
    raise registry.load(name).as_trace_error(mismatches.mismatch(devices, call, frameworks))


@registry.constant_under_compile
def not_a_tensor(call: str, name: str) -> NoReturn:
    """Raise `NotATensorError` for a class name, in a form that leaves a compiled function."""
    error = NotATensorError(
        f"ds.{call} takes a tensor, a tree of tensors, a model or an optimizer, and was given an object of type {name}",
        "pass a tensor, or a dict or list of them; ds.asarray(x) makes one of a number",
    )
    for backend in registry.loaded():
        if backend.tracing():
            raise backend.as_trace_error(error)
    raise error
