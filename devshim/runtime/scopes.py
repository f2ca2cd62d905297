"""Default devices: `on` for a block, `set_device` for the rest of a thread or task; and the devices of arguments.

There are two default devices.  devshim's creation functions follow a context variable, so each thread and each
asyncio task has its own default. A framework's operators follow the framework's scope, if it has one, and that
scope belongs to a thread. Inside an asyncio task, another task of the same thread may run at every ``await``, so
only the first default is set there. `devshim.run` is right in both cases.
"""

from __future__ import annotations

import sys
from _thread import _local
from contextlib import nullcontext

from devshim.devices import device as device_module
from devshim.devices import parsing
from devshim.devices.device import CPU, Device
from devshim.registry import current, default_devices, mismatches, registry, start_failures, tracing
from devshim.tensors.value_hints import hide_positional
from devshim.transfers import engine, observing
from devshim.trees import key_paths
from devshim.trees.flatten import flatten

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Any

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.parsing import DeviceLike


__all__ = [
    "labelled_tensors",
    "locate_arguments",
    "locate_labelled",
    "on",
    "require_same_device",
    "same_device",
    "set_device",
]


class _Native(_local):
    """The framework scopes that this thread has entered, innermost last."""

    def __init__(self) -> None:
        self.open: list[tuple[AbstractContextManager[object], bool]] = []
        """Each scope, with True if `set_device` entered it; the next `set_device` or the end of the block leaves it."""


_native = _Native()


class on:
    """A ``with`` block with another default device.

    Args:
        device: The device on which devshim's creation functions put new tensors and on which, if the current framework
            has a scope of this kind, its own operators compute.

    Raises:
        DeviceNotFoundError: On entry, if the current framework does not have the device.

    It applies only to this thread or task, can be nested, and restores the earlier default even after an exception.
    The same object can be entered again.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.simulate(2):
        ...     with ds.on("gpu:1"):
        ...         x = ds.ones(3)
        ...     print(ds.device_of(x), ds.device_of(ds.ones(3)))
        gpu:1 cpu
    """

    __slots__ = ("_device",)

    def __init__(self, device: DeviceLike) -> None:
        self._device = parsing.device_of_argument(device)

    def __repr__(self) -> str:
        return f"on({str(self._device)!r})"

    def __enter__(self) -> Device:
        return enter(self._device)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave(kind, error, trace)


def enter(device: Device) -> Device:
    """Make a device the default until the matching `leave`; the block's state belongs only to this thread or task."""
    compiler = tracing.compiler() if tracing.COMPILERS else None
    backend = None if compiler is not None else current.usual_backend  # a compiled function would depend on it
    if backend is None or current.CHOSEN.get():
        backend = current.current()  # loads the backend, and with it its compiler
        if compiler is None:
            compiler = tracing.compiler()
        if compiler is not None:
            return _enter_traced(compiler, device)
    if device is not CPU or observing.ACTIVE is not None:
        engine.require(backend, device)
        observing.show_call(backend, "on", device)
    depth = len(_native.open)
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:  # `_in_task`, without a call
        scope = backend.scope(device)
        if type(scope) is not nullcontext:  # else there is nothing to leave
            _enter(backend, scope, device)
    default_devices.DEFAULT.set((device, depth, default_devices.DEFAULT.get()))
    return device


def leave(
    kind: type[BaseException] | None = None, error: BaseException | None = None, trace: TracebackType | None = None
) -> None:
    """Restore the default device of before the innermost `enter` of this thread or task."""
    if current.traced_scopes and current.TRACED.scopes:
        current.TRACED.devices.pop()
        current.TRACED.scopes.pop().__exit__(kind, error, trace)
        return
    default = default_devices.DEFAULT.get()
    # An asynchronous generator may be closed in another context, in which no block is open: nothing to restore.
    if default is not None and default[1] != default_devices.NOT_A_BLOCK:
        _, depth, outer = default
        default_devices.DEFAULT.set(outer)
        if len(_native.open) > depth:
            _leave(depth, kind, error, trace)


def _enter_traced(compiler: Backend, device: Device) -> Device:
    """Enter the framework's own scope, which a compiler can trace; it cannot trace a context variable."""
    scope = compiler.scope(engine.require(compiler, device))
    scope.__enter__()
    current.note_traced_scope()
    current.TRACED.scopes.append(scope)
    current.TRACED.devices.append(device)
    return device


def _enter(backend: Backend, scope: AbstractContextManager[object], device: Device, lasting: bool = False) -> None:
    """Enter a framework's scope of a device."""
    try:
        scope.__enter__()
    except Exception as error:
        start_failures.raise_unstarted(backend, error, device)
        raise
    _native.open.append((scope, lasting))


def _leave(
    depth: int,
    kind: type[BaseException] | None = None,
    error: BaseException | None = None,
    trace: TracebackType | None = None,
) -> None:
    """Leave the scopes beyond the first ``depth``, innermost first."""
    while len(_native.open) > depth:
        _native.open.pop()[0].__exit__(kind, error, trace)


def _in_task() -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def set_device(device: DeviceLike) -> None:
    """Set the default device for the rest of this thread or task, or of the `on` block in which it is called.

    Args:
        device: As for `on`.

    Raises:
        DeviceNotFoundError: The current framework does not have the device; nothing has changed.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.set_device("cpu")
        >>> ds.device_of(ds.ones(3))
        Device('cpu')
    """
    tracing.refuse("set_device", "call it outside, or enter ds.on inside")
    backend = current.current()
    target = engine.require(backend, parsing.device_of_argument(device))
    observing.show_call(backend, "set_device", target)
    if not _in_task():
        if _native.open and _native.open[-1][1]:
            _leave(len(_native.open) - 1)
        _enter(backend, backend.scope(target), target, lasting=True)
    _, depth, outer = default_devices.DEFAULT.get() or (target, default_devices.NOT_A_BLOCK, None)
    default_devices.DEFAULT.set((target, depth, outer))


def locate_arguments(call: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Backend, Device] | None:
    """Return the backend and the device of a call's arguments, or None without tensors."""
    return locate_labelled(call, labelled_tensors(args, kwargs))


def locate_labelled(call: str, labelled: list[tuple[str, Tensor, Backend]]) -> tuple[Backend, Device] | None:
    """Return the backend and the device of tensors that `labelled_tensors` found, as `locate_arguments` does."""
    located: dict[str, tuple[Backend, Device]] = {}
    for label, x, owner in labelled:
        if not (owner.jit_is_single_device and owner.is_tracer(x)):
            located[label] = (owner, owner.device_of(x))
    return _require_agreement(located, call) if located else None


def labelled_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Tensor, Backend]]:
    """Return every tensor among a call's arguments, direct or in a tree, with its name for errors.

    Plain loops, because torch.compile before 2.13 cannot trace a comprehension over a generator.
    """
    found: list[tuple[str, Tensor, Backend]] = []
    for name, value in [*[(f"args[{i}]", value) for i, value in enumerate(args)], *kwargs.items()]:
        backend = registry.backend_for(value)
        if backend is not None:
            found.append((name, value, backend))
        elif type(value) not in registry.LEAF_TYPES:
            for _, cell, x, owner in flatten(value, into_models=True).leaves:
                found.append((name + key_paths.brackets(cell), x, owner))
    return found


def same_device(*objs: object) -> bool:
    """Return True if all tensors among the arguments, and in trees of them, are on one device.

    This includes the case of at most one tensor.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.same_device(ds.ones(2), [ds.zeros(3), ds.ones(1)])
        True
    """
    _explain_devices(labelled := labelled_tensors(objs, {}))
    return len({owner.device_of(x) for _, x, owner in labelled}) <= 1


def _explain_devices(labelled: list[tuple[str, Tensor, Backend]]) -> None:
    for name, _, owner in labelled:
        observing.show_call(owner, "device_of", x=name)


def require_same_device(*_unnamed: object, **objs: object) -> Device | None:
    """Return the one device of all tensors among the named arguments, or None without tensors.

    Args:
        **objs: Tensors, or trees of tensors, by their names for errors: ``x=x, y=y``.

    Raises:
        ArgumentError: An argument has no name.
        DeviceMismatchError: They are on different devices; the error names each argument, its device, and a fix.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.require_same_device(x=ds.ones(2), y=ds.zeros(3))
        Device('cpu')
    """
    if _unnamed:
        from devshim.registry import argument_hints

        raise argument_hints.unnamed_arguments(len(_unnamed))
    labelled = labelled_tensors((), objs)
    _explain_devices(labelled)
    located = {label: (owner, owner.device_of(x)) for label, x, owner in labelled}
    return _require_agreement(located, "require_same_device")[1] if located else None


def _require_agreement(located: dict[str, tuple[Backend, Device]], call: str) -> tuple[Backend, Device]:
    """Return the backend and the device that all tensors share, or raise `DeviceMismatchError`."""
    backend, device = next(iter(located.values()))
    if any(other is not device for _, other in located.values()):
        found = [(name, where, owner.name) for name, (owner, where) in located.items()]
        backend.raise_error(mismatches.mismatch_error, (call, *found))
    return backend, device


device_module.SCOPES = sys.modules[__name__]
hide_positional(require_same_device)
