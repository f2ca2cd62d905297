"""`run`: call a function on the device of its arguments.

Inside, devshim's creation functions and, where the framework has a scope, its own operators use that device. The
function computes at the width of its tensors: JAX, which would otherwise make 32-bit results of 64-bit tensors, too.
"""

from __future__ import annotations

from contextlib import nullcontext

from devshim.devices.device import CPU
from devshim.registry import current, default_devices, registry, tracing
from devshim.runtime import scopes
from devshim.transfers import engine, observing
from devshim.trees import plain

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any, ParamSpec, TypeVar

    from devshim.contract.backend import Backend, Tensor
    from devshim.devices.device import Device
    from devshim.errors import ArgumentError

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = ["run"]


def run(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function on the device of its arguments: compute follows data, on every framework.

    Args:
        fn: Any callable.
        *args: Its arguments; tensors in trees count too.
        **kwargs: Its keyword arguments.

    Returns:
        The return value of ``fn``, computed on the one device of all tensors among the arguments; without tensors,
        ``fn`` is simply called. If they have 64 bits, ``fn`` computes with 64 bits, on JAX too; the floats decide.

    Raises:
        DeviceMismatchError: The arguments are on different devices; ``fn`` is not called.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.run(lambda x, y: x + y, ds.ones(2), ds.ones(2))
        array([2., 2.])
    """
    if not callable(fn):
        raise _not_callable(fn, args)
    reading = tracing.reading
    compiler = None if reading is None or not reading() else tracing.compiler()
    eager = None if kwargs or compiler is not None else _of_eager_tensors(args)
    if eager is None:
        labelled = scopes.labelled_tensors(args, kwargs)
        fn = _at_full_width(fn, labelled)
        in_trace = _scope_in_trace(labelled)
        if in_trace is not None:
            with in_trace:
                return fn(*args, **kwargs)
        where = scopes.locate_labelled("run", labelled)
        if where is None:
            return fn(*args, **kwargs)
        backend, device = where
    else:
        backend, device, tensors = eager
        if backend.narrows:
            fn = backend.at_full_width(fn, tensors)
    if observing.ACTIVE is not None:
        observing.show_call(backend, "run", device, args)
    if compiler is not None:
        current.note_traced_scope()
        current.TRACED.devices.append(device)
        try:
            with backend.scope(device):
                return fn(*args, **kwargs)
        finally:
            current.TRACED.devices.pop()
    before = default_devices.DEFAULT.set((device, default_devices.NOT_A_BLOCK, None))  # where fn creates tensors
    try:
        scope = backend.data_scope(device)
        if type(scope) is nullcontext:
            return fn(*args, **kwargs)
        with scope:
            return fn(*args, **kwargs)
    finally:
        default_devices.DEFAULT.reset(before)


def _of_eager_tensors(args: tuple[Any, ...]) -> tuple[Backend, Device, list[Tensor]] | None:
    """Fast path: return the backend, the device and the tensors of plain trees, if all have the same ones, or None."""
    found: list[Tensor] = []
    tensors = registry.TENSORS
    for arg in args:
        if type(arg) in tensors:
            found.append(arg)
        elif not plain.collect(arg, found):
            return None
    if not found:
        return None
    backend = tensors[type(found[0])]
    if backend.tracers_have_no_device and backend.tracing():
        return None
    if len(found) > 3 and len(set(map(type, found))) == 1 and engine.are_on_host(backend, found):
        return backend, CPU, found  # for a few tensors, the loop is faster
    device, flag = None, backend.fast_paths.host_flag
    for x in found:
        if tensors[type(x)] is not backend:
            return None
        if flag and getattr(x, flag) is True:  # so it is not a tracer either
            here = CPU
        elif backend.is_tracer(x):
            return None
        else:
            here = backend.device_of(x)
        if device is not None and here is not device:
            return None
        device = here
    return None if device is None else (backend, device, found)


def _scope_in_trace(labelled: list[tuple[str, Tensor, Backend]]) -> AbstractContextManager[object] | None:
    """Return the scope of tensors whose devices are known only when a compiled function is called; None for others."""
    for _, _, owner in labelled:
        if owner.tracers_have_no_device and owner.tracing():
            return owner.scope_of_tracers([x for _, x, other in labelled if other is owner])
    return None


def _at_full_width(fn: Callable[P, R], labelled: list[tuple[str, Tensor, Backend]]) -> Callable[P, R]:
    """Return the function, or one that computes with 64 bits if its tensors have 64 bits."""
    for _, _, owner in labelled:
        if owner.narrows:
            return owner.at_full_width(fn, [x for _, x, other in labelled if other is owner])
    return fn


def _not_callable(fn: object, args: tuple[object, ...]) -> ArgumentError:
    from devshim.registry import argument_hints

    return argument_hints.no_callable("run", fn, args)
