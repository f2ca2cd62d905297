"""The texts of the errors that several rooms raise: one wording for every framework.

Nothing here is on a fast path: it is imported when something is refused.
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
from devshim.errors.formatting import described, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device


def not_started(backend: Backend, why: str) -> DeviceNotFoundError:
    """The framework starts its GPUs with the host, and they cannot start."""
    return DeviceNotFoundError(
        f"{backend.title} does not start: {why}",
        "set CUDA_VISIBLE_DEVICES='' in the environment to leave the GPUs out; `devshim doctor` says more",
    )


def copy_needed(source: Device, target: Device) -> CopyNeededError:
    """``copy=False``, and the tensor is elsewhere."""
    return CopyNeededError(
        f"copy=False was given, and a tensor on {source} cannot be on {target} without a copy",
        "leave copy out to copy when it is needed",
    )


def cannot_share(what: str, why: str) -> CopyNeededError:
    """``copy=False``, and the memory cannot be shared."""
    return CopyNeededError(
        f"copy=False was given, and {what} cannot share its memory: {why}", "leave copy out to get a copy of its own"
    )


def misplaced(backend: Backend, asked: Device, found: Device) -> PlacementError:
    """The postcondition of every placement failed."""
    return PlacementError(
        f"{asked} was asked for, and {backend.title} put the result on {found}",
        "this is a defect of the framework's build or of its adapter: please report it with `devshim doctor`",
    )


def broken(name: str, title: str, error: Exception) -> BackendBrokenError:
    """A framework is installed, and cannot be imported."""
    from traceback import format_exception

    told = "".join(format_exception(error)).rstrip()
    return BackendBrokenError(
        f"{title} is installed, and importing it fails:\n\n{told}",
        f"try `python -c 'import {name}'`, then reinstall it; `devshim doctor` shows what is here",
    )


def tracing(backend: Backend, call: str, instead: str) -> TracingError:
    """The call cannot do its work inside a compiled function.

    Args:
        backend: Who is tracing.
        call: The devshim call, such as ``"place"``.
        instead: What to do outside, as an imperative clause.
    """
    return TracingError(f"ds.{call} cannot work inside a function that {backend.title} is compiling", instead)


def not_taken(backend: Backend, source: object, error: Exception) -> ConversionError:
    """Memory offered by DLPack is not shared: the producer, the framework or its adapter objects."""
    why = str(error).partition("\n")[0] or type(error).__name__
    ours = type(source).__module__.startswith("devshim")  # an exporter, of which nobody else knows
    what = "this memory" if ours else f"the memory of this {type_name(source)}"
    return ConversionError(f"{backend.title} does not take {what}: {why}", "leave copy out to copy it")


def not_converted(source: Backend, target: Backend, error: Exception) -> ConversionError:
    """A framework fails to read or to make a tensor, with an error of its own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    why = lines[-1 if lines[0].startswith("Traceback") else 0]  # MXNet's errors begin with one of its own
    return ConversionError(
        f"{source.title}'s tensor cannot become {target.title}'s: {why}",
        "make a plain tensor of its values first: dense, initialized, and of as many axes as both frameworks have",
    )


def no_dtype(backend: Backend, name: str, instead: str = "float32") -> ConversionError:
    """The framework has no such dtype."""
    return ConversionError(
        f"{backend.title} has no dtype {name!r}", f"convert the values first, for example to {instead!r}"
    )


def masked() -> ConversionError:
    """An array whose mask would be lost."""
    return ConversionError(
        "a masked array's mask has no counterpart in a tensor framework", "give it values: a.filled(0)"
    )


def no_numpy_dtype(name: str) -> ConversionError:
    """NumPy itself has no such dtype."""
    return ConversionError(
        f"NumPy has no dtype {name!r} of its own, so the values cannot be kept to the bit",
        "pip install ml_dtypes, which gives NumPy that dtype, or cast to 'float32' first",
    )


def simulated_too_late(backend: Backend, why: str, move: str) -> SimulationError:
    """The framework started its devices before the simulation was asked for."""
    return SimulationError(f"{backend.title} cannot simulate GPUs now: {why}", move)


def real_cards(backend: Backend, count: int) -> SimulationError:
    """Simulated and real cards do not stand side by side."""
    return SimulationError(
        f"{backend.title} sees {count} real GPU{'' if count == 1 else 's'}, beside which none can be simulated",
        "hide the real ones first: CUDA_VISIBLE_DEVICES='' in the environment, or use them",
    )


def already_started(backend: Backend, call: str) -> AlreadyStartedError:
    """A setting came after the framework started its devices."""
    return AlreadyStartedError(
        f"{call} came too late: {backend.title} has already started its devices",
        f"move {call} to the top of the program, before the first tensor",
    )


def out_of_memory(backend: Backend, device: Device, nbytes: int | None) -> OutOfMemoryError:
    """A device is full: which, what was asked, and what is free."""
    return full(device, nbytes, backend.memory(device).free, backend.full_error or OutOfMemoryError)


def no_room_for_clones(backend: Backend, wholes: Sequence[Any]) -> OutOfMemoryError:
    """`out_of_memory` where models or optimizers are copied by the framework: on the device of the first leaf."""
    device = next(backend.device_of(leaf.read()) for whole in wholes for leaf in backend.leaves(whole))
    return out_of_memory(backend, device, None)


def full(
    device: Device, nbytes: int | None, free: int | None, cls: type[OutOfMemoryError] = OutOfMemoryError
) -> OutOfMemoryError:
    """`out_of_memory` for those who know what is free."""
    asked = "an allocation" if nbytes is None else f"{nbytes:,} bytes"
    room = "how much is free is not known" if free is None else f"{free:,} bytes are free"
    return cls(
        f"{device} has no room for {asked}: {room}",
        "free tensors and call ds.empty_cache(), use a smaller batch (ds.shrink_batch), or another device",
    )


def device_failed(device: Device, what: str) -> DeviceFailedError:
    """A device failed, or does not answer any more."""
    return DeviceFailedError(
        f"{device} failed at {what}",
        "go on from what is not on it, with another device: ds.devices() lists them",
    )


def not_a_tensor(x: object, call: str, *, is_model: bool = False) -> NotATensorError:
    """The call takes tensors, and this is something else; a model, optimizer or variable where ``is_model`` says so."""
    return NotATensorError(
        f"ds.{call} takes a tensor of an installed framework, and this is of type {type_name(x)}",
        "ds.placement_of(x) says where each of its tensors is; pass one of these tensors"
        if is_model
        else "make one with ds.asarray(...); for a dict or list of tensors, ask each of its leaves",
    )


def bad_argument(name: str, value: object, accepted: str, hint: str) -> ArgumentError:
    """An argument that makes no sense.

    Args:
        name: What the call's documentation calls it.
        value: What was given.
        accepted: What it must be.
        hint: What to type; not ``accepted`` again.
    """
    return ArgumentError(f"{name} is {described(value)}, and it must be {accepted}", hint)


def no_float(dtype: object) -> ArgumentError:
    """Random numbers were asked for in a dtype that is not a floating one."""
    hint = "leave dtype out, or write dtype='float32', and cast what was drawn"
    return bad_argument("dtype", dtype, "a floating dtype", hint)


def bad_flag(copy: object) -> ArgumentError:
    """The argument ``copy`` of a placement or conversion is not None, True or False."""
    hint = "copy=True always copies, copy=False never does; leave it out to copy where it is needed"
    return bad_argument("copy", copy, "None, True or False", hint)
