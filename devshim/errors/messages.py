"""The texts of the errors that several packages raise, so that the wording is the same for every framework.

Nothing here is on a fast path: the module is imported when an error is about to be raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from devshim.errors import (
    AlreadyStartedError,
    ArgumentError,
    BackendBrokenError,
    ConversionError,
    CopyNeededError,
    DeviceFailedError,
    DeviceNotFoundError,
    NotATensorError,
    OutOfMemoryError,
    PlacementError,
    SimulationError,
    TracingError,
)
from devshim.errors.formatting import describe, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device


def not_started(backend: Backend, why: str) -> DeviceNotFoundError:
    """Return the error for a framework that starts its GPUs together with the host, when they cannot start."""
    return DeviceNotFoundError(
        f"{backend.title} does not start: {why}",
        "to leave the GPUs out, set CUDA_VISIBLE_DEVICES='' in the environment; `devshim doctor` shows more",
    )


def copy_needed(source: Device, target: Device) -> CopyNeededError:
    """Return the error for ``copy=False`` and a tensor on another device."""
    return CopyNeededError(
        f"copy=False was given, and a tensor on {source} cannot be on {target} without a copy",
        "leave copy out to copy only when it is needed",
    )


def cannot_share(what: str, why: str) -> CopyNeededError:
    """Return the error for ``copy=False`` and memory that cannot be shared."""
    return CopyNeededError(
        f"copy=False was given, and {what} cannot share its memory: {why}", "leave copy out to get a copy"
    )


def misplaced(backend: Backend, requested: Device, actual: Device) -> PlacementError:
    """Return the error for a result that is not on the requested device: the postcondition of every placement."""
    return PlacementError(
        f"{backend.title} put the result on {actual} instead of {requested}",
        "this is a bug in the framework's build or its adapter: please report it with the output of `devshim doctor`",
    )


def broken(name: str, title: str, error: Exception) -> BackendBrokenError:
    """Return the error for a framework that is installed but cannot be imported."""
    from traceback import format_exception

    traceback = "".join(format_exception(error)).rstrip()
    return BackendBrokenError(
        f"{title} is installed, but importing it fails:\n\n{traceback}",
        f"run `python -c 'import {name}'`, then reinstall it; `devshim doctor` shows what is installed",
    )


def tracing(backend: Backend, call: str, instead: str) -> TracingError:
    """Return the error for a call that cannot work inside a compiled function.

    Args:
        backend: The backend that is tracing.
        call: The devshim call, such as ``"place"``.
        instead: What to do outside, as an imperative clause.
    """
    return TracingError(f"ds.{call} cannot work inside a function that {backend.title} is compiling", instead)


def not_accepted(backend: Backend, source: object, error: Exception) -> ConversionError:
    """Return the error for DLPack memory that cannot be shared: the producer, the framework or its adapter refuses."""
    why = str(error).partition("\n")[0] or type(error).__name__
    internal = type(source).__module__.startswith("devshim")  # an exporter
    what = "this memory" if internal else f"the memory of this {type_name(source)}"
    return ConversionError(f"{backend.title} does not accept {what}: {why}", "leave copy out to copy it")


def not_converted(source: Backend, target: Backend, error: Exception) -> ConversionError:
    """Return the error for a framework that fails, with its own error, to read or to make a tensor."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    why = lines[-1 if lines[0].startswith("Traceback") else 0]  # MXNet's errors begin with a C++ traceback
    return ConversionError(
        f"this tensor of {source.title} cannot be converted to {target.title}: {why}",
        "convert a plain tensor of its values: dense, initialized, and with no more axes than both frameworks support",
    )


def missing_there(source: Backend, target: Backend, device: Device) -> DeviceNotFoundError:
    """Return the error for a conversion without ``device`` if the other framework lacks the tensor's device."""
    count = target.count(device.kind)
    have = f"{count} {device.kind} device{'' if count == 1 else 's'}"
    return DeviceNotFoundError(
        f"the tensor of {source.title} is on {device}, and {target.title} has {have}",
        f"name the device of the result: ds.convert(x, {target.name!r}, 'cpu')",
    )


def several_frameworks(call: str, found: Iterable[Backend], target: Backend) -> ArgumentError:
    """Return the error for tensors of several frameworks, in a call that needs one.

    Args:
        call: The call, such as ``"ds.asarray"``.
        found: The backends of its tensors, and of the function if that belongs to one.
        target: The backend that the hint suggests.
    """
    return ArgumentError(
        f"{call} needs tensors of one framework, and was given {' and '.join(each.title for each in found)}",
        f"bring them to one framework first: ds.convert(x, {target.name!r})",
    )


def no_dtype(backend: Backend, name: str, instead: str = "float32") -> ConversionError:
    """Return the error for a dtype that the framework lacks."""
    return ConversionError(
        f"{backend.title} has no dtype {name!r}", f"convert the values first, for example to {instead!r}"
    )


def masked() -> ConversionError:
    """Return the error for an array whose mask would be lost."""
    return ConversionError(
        "a masked array cannot be converted: tensor frameworks have no masks",
        "fill the masked values: a.filled(0)",
    )


def no_numpy_dtype(name: str) -> ConversionError:
    """Return the error for a dtype that NumPy itself lacks."""
    return ConversionError(
        f"NumPy has no dtype {name!r}, so it cannot store these values without loss",
        "install ml_dtypes (pip install ml_dtypes), which adds that dtype to NumPy, or cast to 'float32' first",
    )


def key_not_converted(source: Backend, target: Backend) -> ConversionError:
    """Return the error for a random key of a framework's own generator."""
    return ConversionError(
        f"a random key of {source.title} cannot be converted: {target.title} has no such keys",
        "convert its data: ds.convert(jax.random.key_data(x), ...)",
    )


def simulated_too_late(backend: Backend, why: str, move: str) -> SimulationError:
    """Return the error for a simulation that was requested after the framework started its devices."""
    return SimulationError(f"{backend.title} cannot simulate GPUs now: {why}", move)


def real_gpus_present(backend: Backend, count: int) -> SimulationError:
    """Return the error for a simulation in a framework that sees real GPUs."""
    return SimulationError(
        f"{backend.title} sees {count} real GPU{'' if count == 1 else 's'}, so it cannot simulate others",
        "use the real GPUs, or hide them: set CUDA_VISIBLE_DEVICES='' in the environment",
    )


def too_many_gpus(backend: Backend, gpus: int) -> SimulationError:
    """Return the error for more simulated GPUs than a framework can show."""
    most = backend.most_simulated_gpus
    msg = f"{backend.title} can show {most} simulated GPUs at most, and {gpus} were requested"
    return SimulationError(msg, f"ds.simulate(gpus={most})")


def already_started(backend: Backend, call: str) -> AlreadyStartedError:
    """Return the error for a setting that came after the framework started its devices."""
    return AlreadyStartedError(
        f"{call} came too late: {backend.title} has already started its devices",
        f"move {call} to the top of the program, before the first tensor",
    )


def out_of_memory(backend: Backend, device: Device, nbytes: int | None) -> OutOfMemoryError:
    """Return the error for a full device: which one, how much was requested, and how much is free."""
    return full_device(device, nbytes, backend.memory(device).free, backend.out_of_memory_class or OutOfMemoryError)


def out_of_memory_for_clones(backend: Backend, objects: Sequence[Any]) -> OutOfMemoryError:
    """Return `out_of_memory` for models or optimizers that the framework clones: on the device of the first leaf."""
    device = next(backend.device_of(leaf.read()) for obj in objects for leaf in backend.leaves(obj))
    return out_of_memory(backend, device, None)


def full_device(
    device: Device, nbytes: int | None, free: int | None, cls: type[OutOfMemoryError] = OutOfMemoryError
) -> OutOfMemoryError:
    """Return `out_of_memory` for a caller that knows how much is free."""
    amounts = [] if nbytes is None else [f"{nbytes:,} bytes were requested"]
    amounts.append("the free memory is unknown" if free is None else f"{free:,} bytes are free")
    problem = f"{device} is out of memory: {', '.join(amounts)}"
    real = cls._real_text(device, nbytes, free) if cls._native_names and device.kind == "gpu" else None
    if real is not None:
        return cls(f"{real}\n{problem}", "free tensors, use a smaller batch, or another device")
    return cls(
        problem, "free tensors and call ds.empty_cache(), use a smaller batch (ds.shrink_batch), or another device"
    )


def device_failed(device: Device, what: str) -> DeviceFailedError:
    """Return the error for a device that failed or no longer answers."""
    return DeviceFailedError(
        f"{device} failed during {what}",
        "continue on another device, with the values that are not on this one: ds.devices() lists the devices",
    )


def not_a_tensor(x: object, call: str, *, is_model: bool = False) -> NotATensorError:
    """Return the error for a call that takes tensors; ``is_model``: it was given a model, optimizer or variable."""
    fields = getattr(type(x), "__dataclass_fields__", None) or getattr(type(x), "_fields", None)
    if is_model:
        hint = "ds.placement_of(x) shows where each of its tensors is; pass one of these tensors"
    elif fields and isinstance(fields, (dict, tuple)):
        hint = f"pass one of its fields that is a tensor: {', '.join(f'x.{name}' for name in list(fields)[:5])}"
    else:
        hint = "make one with ds.asarray(...); for a dict or list of tensors, call it for each of its leaves"
    msg = f"ds.{call} takes a tensor of an installed framework, and this object is of type {type_name(x)}"
    return NotATensorError(msg, hint)


def bad_argument(name: str, value: object, accepted: str, hint: str) -> ArgumentError:
    """Return the error for an argument that makes no sense.

    Args:
        name: The argument's name in the call's documentation.
        value: The given value.
        accepted: What it must be.
        hint: What to type; does not repeat ``accepted``.
    """
    return ArgumentError(f"{name} is {describe(value)}, and it must be {accepted}", hint)


def not_entered(call: str) -> ArgumentError:
    """Return the error for a context manager that is left before it was entered, or twice."""
    return ArgumentError(f"ds.{call} is left, but it is not open", f"use it in a with statement: with ds.{call}(...):")


def not_a_float_dtype(dtype: object) -> ArgumentError:
    """Return the error for random numbers in a dtype that is not a floating one."""
    hint = "leave dtype out, or write dtype='float32', and cast the result"
    return bad_argument("dtype", dtype, "a floating dtype", hint)


def bad_flag(copy: object) -> ArgumentError:
    """Return the error for an argument ``copy`` that is not None, True or False."""
    hint = "copy=True always copies, copy=False never copies; leave it out to copy only when it is needed"
    return bad_argument("copy", copy, "None, True or False", hint)
