"""Errors for arguments in the wrong order or form, with hints that show what to type instead.

This module does not decide what is an error, and nothing here is on a fast path: a call uses it after it has rejected
an argument. The code in a hint can be pasted; it uses the argument names of the call's documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.devices import parsing
from devshim.errors import ArgumentError, BackendNotFoundError, DeviceSpecError, DevshimError
from devshim.errors.formatting import describe, show
from devshim.errors.messages import bad_argument
from devshim.registry import registry

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST = {"from_numpy": "a", "gather": "parts", "load": "path"}
"""The name of a call's first argument, where it is not ``x``."""


def is_tensor(value: object) -> bool:
    """Return True if an object is a tensor of a framework."""
    return registry.backend_for(value) is not None


def nearest(value: object, options: Sequence[str]) -> str | None:
    """Return the option that misspelt text probably means, or None."""
    if not isinstance(value, str):
        return None
    from difflib import get_close_matches

    close = get_close_matches(value[:40].lower(), options, 1)
    return close[0] if close else None


# ---------------------------------------------------------------------- one device
def device_source(value: object) -> str | None:
    """Return the Python source text of the device that a value names, spelled as given; None if it names no device."""
    try:
        found = parsing.device(value)
    except DeviceSpecError:
        return None
    return repr(value) if type(value) is str else repr(str(found))


def no_device(call: str, x: object, spec: object, error: DeviceSpecError) -> DeviceSpecError:
    """Return the error for a call whose second argument names no device.

    The arguments may be swapped, or the second one may be something that another call takes.

    Args:
        call: The public call.
        x: Its first argument.
        spec: Its second argument.
        error: The error of `devshim.devices.device` for ``spec``.
    """
    first, device = _FIRST.get(call, "x"), device_source(x)
    if device is not None and type(spec) is not str:
        return DeviceSpecError(
            f"ds.{call} takes the device second, and was given {device} first and {describe(spec)} second",
            f"the arguments are swapped: ds.{call}({first}, {device})",
        )
    if call == "load" and device_list_source(list(spec.values()) if type(spec) is dict else spec) is None:
        problem = f"ds.load takes the device second, and was given {describe(spec)}"
        return DeviceSpecError(problem, "to load into what is there, name it: ds.load(path, into=model)")
    if type(spec) is dict and call in ("place", "load"):
        hint = f"make a placement of the leaves' devices: ds.{call}({first}, ds.Placement(devices))"
    elif type(spec) in (list, tuple) and call in ("place", "copy"):
        hint = f"ds.broadcast({first}, devices) gives a copy to each of several devices"
    elif is_tensor(spec):
        hint = f"to go where a tensor y is: ds.{call}({first}, ds.device_of(y))"
    else:
        return error
    return DeviceSpecError(f"ds.{call} takes one device, and was given {describe(spec)}", hint)


# ---------------------------------------------------------------------- several devices
def no_devices(call: str, first: str, x: object, given: object) -> DevshimError:
    """Return the error for a call that takes a list of devices and got one device, a number, a tensor, or nothing.

    Args:
        call: The public call.
        first: The name, in its documentation, of the argument before the devices.
        x: That argument.
        given: The value passed for the devices.
    """
    listed = None if isinstance(given, str) else device_list_source(x)
    if listed is not None:
        return ArgumentError(
            f"ds.{call} takes the devices second, and was given {describe(x)} first and {describe(given)} second",
            f"the arguments are swapped: ds.{call}({first}, {listed})",
        )
    if isinstance(given, (list, tuple)) and not given:
        return ArgumentError(f"ds.{call} was given an empty list of devices", f"ds.{call}({first}, ds.try_all_gpus())")
    problem = f"ds.{call} takes a list of devices, and was given {describe(given)}"
    if type(given) is int and 1 < given <= 64:
        return ArgumentError(
            problem, f"name them: ds.{call}({first}, {_write_devices(given, differ='balanced' in call)})"
        )
    device = device_source(given)
    if device is not None:
        return ArgumentError(problem, f"pass a list of one: ds.{call}({first}, [{device}])")
    return ArgumentError(problem, f"ds.{call}({first}, ds.try_all_gpus())")


def device_list_source(value: object) -> str | None:
    """Return the Python source text of a list of the devices that a value names; None if it names none."""
    if type(value) in (list, tuple):
        names = [device_source(each) for each in value]  # type: ignore[attr-defined]
        return f"[{', '.join(map(str, names))}]" if names and None not in names else None
    device = None if type(value) is int else device_source(value)
    return None if device is None else f"[{device}]"


def _write_devices(count: int, *, differ: bool) -> str:
    """Return Python code for a list of ``count`` devices: GPUs if there are enough, otherwise the CPU repeated."""
    from devshim.registry import current

    try:
        gpus = current.current().count("gpu")
    except DevshimError:
        gpus = 0
    if gpus < count:
        return "['cpu']" if differ else f"['cpu'] * {count}"
    return repr([f"gpu:{i}" for i in range(count)]) if count <= 4 else f"[ds.gpu(i) for i in range({count})]"


# ---------------------------------------------------------------------- functions, parts
def no_callable(call: str, fn: object, args: tuple[object, ...]) -> ArgumentError:
    """Return the error for a call that takes a function first and got something else."""
    problem = f"ds.{call} takes a function first, and was given {describe(fn)}"
    second = "x" if call == "run" else show(fn) if type(fn) is int else "64"
    if args and callable(args[0]):
        return ArgumentError(problem, f"the arguments are swapped: ds.{call}(fn, {second})")
    return ArgumentError(problem, f"pass the function to call: ds.{call}(fn, {second})")


def no_pairs(fns: Any, inputs: Any) -> ArgumentError | None:
    """Return the error for `parallel` if it got one function or one input instead of lists; None if both are lists."""
    if callable(fns) and not isinstance(fns, (list, tuple)):
        return ArgumentError(
            f"ds.parallel takes a list of functions, and was given {describe(fns)}",
            "to call one function with each input: ds.parallel([fn] * len(inputs), inputs)",
        )
    for what, given in (("functions", fns), ("inputs", inputs)):
        if isinstance(given, (str, bytes, dict)) or is_tensor(given) or not hasattr(type(given), "__iter__"):
            hint = "ds.parallel([fn], [x])" if what == "inputs" else "ds.parallel([fn] * len(inputs), inputs)"
            return ArgumentError(f"ds.parallel takes a list of {what}, and was given {describe(given)}", hint)
    return None


def no_parts(parts: Any) -> ArgumentError | None:
    """Return the error for `gather` if it got one tensor or tree instead of a list of parts; None if it is a list."""
    if not (isinstance(parts, (str, bytes, dict)) or is_tensor(parts) or not hasattr(type(parts), "__iter__")):
        return None
    return ArgumentError(
        f"ds.gather takes a list of parts, and was given {describe(parts)}",
        "ds.gather([x], device) for a list of one; ds.place(x, device) moves one tensor or tree",
    )


def unnamed_arguments(count: int) -> ArgumentError:
    """Return the error for `require_same_device` with arguments without names."""
    names = ("x", "y", "z")[:count]
    return ArgumentError(
        f"ds.require_same_device takes its arguments by name, which its error shows, and was given {count} without",
        f"ds.require_same_device({', '.join(f'{name}={name}' for name in names)})",
    )


# ---------------------------------------------------------------------- frameworks, placements, logs, GPUs
def swapped_conversion(name: object) -> ArgumentError:
    """Return the error for `convert` with a framework's name first."""
    return ArgumentError(
        f"ds.convert takes the tensor first and the framework second, and was given {describe(name)} first",
        f"the arguments are swapped: ds.convert(x, {show(name)})",
    )


def no_backend(backend: object, error: BackendNotFoundError) -> BackendNotFoundError:
    """Return the error for `convert` with a device instead of a framework; otherwise the given error."""
    device = None if type(backend) is int else device_source(backend)
    if device is None:
        return error
    return BackendNotFoundError(
        f"ds.convert takes a framework second, and was given the device {device}",
        f"name both: ds.convert(x, 'numpy', {device}); ds.place(x, {device}) moves x and keeps its framework",
    )


def no_places(places: object) -> ArgumentError:
    """Return the error for a `Placement` of something other than a mapping."""
    problem = f"ds.Placement takes a mapping of leaf paths to devices, and was given {describe(places)}"
    devices = device_list_source(places)
    if devices is None:
        return ArgumentError(problem, "ds.Placement({'0.weight': 'cpu'}, default='cpu')")
    if type(places) in (list, tuple):
        return ArgumentError(problem, f"to spread a model over devices: ds.Placement.balanced(model, {devices})")
    return ArgumentError(problem, f"for every leaf on one device: ds.Placement(default={device_source(places)})")


def swapped_log(device: object, capacity: object) -> ArgumentError:
    """Return the error for a `MetricLog` that got a device as its capacity."""
    number = device if type(device) is int else 1024
    return ArgumentError(
        f"ds.MetricLog takes the device first and the capacity second, and was given {describe(device)} first and "
        f"{describe(capacity)} second",
        f"the arguments are swapped: ds.MetricLog({device_source(capacity)}, {number})",
    )


def no_indices(indices: object) -> ArgumentError:
    """Return the error for `set_visible_devices` with something other than a list of ints."""
    given = (
        indices.split(",") if isinstance(indices, str) else indices if isinstance(indices, (list, tuple)) else [indices]
    )
    found = []
    for each in given:
        name = device_source(
            int(each) if isinstance(each, str) and each.strip().isdecimal() and each.isascii() else each
        )
        if name is None or ":" not in name:
            found = [0, 1]
            break
        found.append(parsing.device(name.strip("'")).index)
    return bad_argument("indices", indices, "a list of ints", f"ds.set_visible_devices({found})")


def swapped_simulate(gpus: str, memory: object) -> ArgumentError:
    """Return the error for `simulate` with the memory first."""
    if memory is None:
        return ArgumentError(
            f"ds.simulate takes the number of GPUs first, and was given the memory {gpus!r}",
            f"give the memory by its name: ds.simulate(memory={gpus!r})",
        )
    return ArgumentError(
        f"ds.simulate takes the number of GPUs first and the memory second, and was given {gpus!r} first and "
        f"{describe(memory)} second",
        f"the arguments are swapped: ds.simulate({show(memory)}, {gpus!r})",
    )
