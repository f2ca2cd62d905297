"""The errors for tensors on different devices or of different frameworks, with the line that brings them together.

Nothing here is on a fast path.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from devshim.errors import ArgumentError, DeviceMismatchError
from devshim.registry import current, registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

_SHOWN = 6
"""The number of tensors that a message names one by one."""


def mismatch_error(call: str, *found: tuple[str, Device, str]) -> DeviceMismatchError:
    """Return the error for arguments on different devices, with each device and the line that fixes it.

    Args:
        call: The public call.
        *found: The name of each argument, its device, and the name of its framework.
    """
    located = {name: device for name, device, _ in found}
    owners = {name: framework for name, _, framework in found}
    best, description = _most_common_device(located), list_devices(located)
    there = next(owners[name] for name, device in located.items() if device is best)
    fixes = [
        f"{name} = {_suggest_move(name, owners[name], there, device, best)}"
        for name, device in located.items()
        if device is not best
    ]
    if any(fix.startswith("args[") for fix in fixes) and not any("ds.from_numpy" in fix for fix in fixes):
        # Positional arguments have no names, and a tuple's items cannot be assigned: place all of them together.
        fixes = [f"args = ds.place(args, {str(best)!r})", *(fix for fix in fixes if not fix.startswith("args["))]
    if len(fixes) > _SHOWN:
        fixes[_SHOWN:] = ["and so on"]
    return DeviceMismatchError(f"ds.{call} needs its tensors on one device: {description}", "; ".join(fixes))


def native_mismatch_error(
    located: Mapping[str, Device], call: str, native_line: Callable[[Device], str | None] | None = None
) -> DeviceMismatchError:
    """Return the error for tensors on different devices in one of a framework's operators.

    Args:
        located: The device of each argument, by words that name it in a sentence.
        call: The operator, as the framework's users write it.
        native_line: Returns the framework's line that moves ``x`` to a device; None for devshim's line.
    """
    best = _most_common_device(located)
    line = None if native_line is None else native_line(best)
    others = [name for name, device in located.items() if device is not best]
    if len(others) > _SHOWN:
        others[_SHOWN:] = [f"{len(others) - _SHOWN} more"]
    return DeviceMismatchError(
        f"{call} needs its tensors on one device: {list_devices(located)}",
        f"bring {' and '.join(others)} to {best} first: {line or f'x = ds.place(x, {str(best)!r})'}",
    )


def require_plain_arrays(backend: Backend, name: str, values: Iterable[Any]) -> None:
    """Raise `ArgumentError` if a function for plain arrays was given a tensor of another framework."""
    error = other_framework_error(backend, name, values)
    if error is not None:
        raise error


def other_framework_error(backend: Backend, name: str, values: Iterable[Any]) -> ArgumentError | None:
    """Return the error for a namespace's function that was given a tensor of another framework, or None.

    Args:
        backend: The backend of the namespace.
        name: The function's name.
        values: The arguments; the items of lists and tuples among them count, too.
    """
    for value in values:
        if isinstance(value, (list, tuple)):
            error = other_framework_error(backend, name, value)
            if error is not None:
                return error
            continue
        owner = registry.backend_for(value)
        if owner is not None and owner is not backend:
            msg = f"xp.{name} is a function of {backend.title}, and was given a tensor of {owner.title}"
            array, there = (backend, owner) if backend.has_plain_arrays else (owner, backend)
            if not array.has_plain_arrays:
                return ArgumentError(msg, f"bring all to one framework first: ds.convert(a, {there.name!r})")
            fix = _suggest_conversion("a", there.name)
            return ArgumentError(msg, f"bring all to one framework first, for example each NumPy array: a = {fix}")
    return None


def _most_common_device(located: Mapping[str, Device]) -> Device:
    """Return the device of most arguments; in a tie, not the host."""
    counted = Counter(located.values())
    return max(counted, key=lambda device: (counted[device], device))


def list_devices(located: Mapping[str, Device]) -> str:
    """Return text that says which argument is on which device.

    For more than a few arguments, name the first on each device and say how many more there are.
    """
    if len(located) <= _SHOWN:
        return ", ".join(f"{name} is on {device}" for name, device in located.items())
    names: dict[Device, list[str]] = {}
    for name, device in located.items():
        names.setdefault(device, []).append(name)
    return ", ".join(
        f"{first} and {len(more)} more are on {device}" if more else f"{first} is on {device}"
        for device, (first, *more) in names.items()
    )


def _suggest_move(name: str, framework: str, there: str, device: Device, target: Device) -> str:
    """Return the call that brings an argument to a device; a plain array becomes a tensor of the framework there."""
    if not registry.load(framework).has_plain_arrays or there == framework or device.kind != "cpu":
        return f"ds.place({name}, {str(target)!r})"
    return _suggest_conversion(name, there, target)


def _suggest_conversion(name: str, there: str, target: Device | None = None) -> str:
    """Return the call that makes a plain array a tensor of a framework."""
    where = "" if target is None else f", {str(target)!r}"
    if current.chosen_name() == there:
        return f"ds.from_numpy({name}{where})"
    return f"ds.convert({name}, {there!r}{where})"
