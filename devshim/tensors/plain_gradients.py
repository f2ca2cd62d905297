"""The fast path of `devshim.value_and_grad`: plain trees of tensors in host memory, and a function without ``aux``.

It checks what `devshim.tensors.gradient_inputs` checks, in few calls of functions: a processor whose caches a training
step has just filled with other data takes four times as long for each as in a loop of its own.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU
from devshim.errors.formatting import describe
from devshim.registry import default_devices, registry
from devshim.tensors import gradient_errors
from devshim.transfers import engine
from devshim.trees import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.contract.backend import Backend, Tensor
    from devshim.contract.gradients import Call
    from devshim.contract.models import Leaf
    from devshim.devices.device import Device

__all__ = ["collect", "differentiate", "differentiate_on"]


def collect(args: tuple[Any, ...], positions: list[int]) -> tuple[Backend, list[Tensor]] | None:
    """Return the backend and the tensors of the differentiated arguments.

    Returns None if one of these is not a plain tree, or has no tensor, or if anything must be refused.
    """
    xs: list[Tensor] = []
    for position in positions:
        before = len(xs)
        if not plain.collect(args[position], xs) or len(xs) == before:
            return None
    backends = {registry.TENSORS[kind] for kind in set(map(type, xs))}
    backend = backends.pop()
    if backends or "value_and_grad" in backend.gaps or not backend.are_floating(xs):
        return None
    return backend, xs


def differentiate(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    positions: list[int],
    found: tuple[Backend, list[Tensor]],
) -> tuple[Any, list[Any]] | None:
    """Return the value and the gradients of each argument, or None, before it calls anything, if it is not simple.

    Args:
        fn: The function.
        args: Its arguments.
        kwargs: Its keyword arguments.
        positions: The positions of the differentiated arguments.
        found: The result of `collect`.
    """
    backend, xs = found
    if not engine.are_on_host(backend, xs) or backend.tracing():
        return None

    def call(variables: list[Tensor], models: list[Any]) -> tuple[Tensor, list[Tensor]]:
        new, given = iter(variables), list(args)
        for position in positions:
            given[position] = plain.rebuild(args[position], new)
        value = fn(*given, **kwargs)
        gradient_errors.require_scalar(backend, value, describe)
        return value, models

    value, _, grads = differentiate_on(CPU, backend, call, xs, (), ())
    if not engine.are_on_host(backend, grads):
        grads = [x if engine.are_on_host(backend, [x]) else engine.move(backend, x, CPU) for x in grads]
    new = iter(grads)
    return value, [plain.rebuild(args[position], new) for position in positions]


def differentiate_on(
    device: Device,
    backend: Backend,
    call: Call,
    xs: Sequence[Tensor],
    parameters: Sequence[Leaf],
    models: Sequence[Any],
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Differentiate with a device, on which the function also creates tensors, as `devshim.run` does."""
    before = default_devices.DEFAULT.set((device, default_devices.NOT_A_BLOCK, None))
    try:
        scope = backend.data_scope(device)
        if type(scope) is nullcontext:
            return backend.differentiate(call, xs, parameters, models)
        with scope:
            return backend.differentiate(call, xs, parameters, models)
    finally:
        default_devices.DEFAULT.reset(before)
