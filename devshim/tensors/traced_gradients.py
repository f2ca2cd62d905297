"""`devshim.value_and_grad` inside a function that a compiler traces (torch.compile).

The compiler can follow lists and tuples, but not `devshim.trees.multi_map` or context variables. Therefore the
arguments are flattened, and the adapter differentiates a function of a list of tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.contract.gradients import FLOATING
from devshim.errors import messages
from devshim.errors.formatting import with_article
from devshim.registry import current, registry
from devshim.tensors import gradient_errors
from devshim.trees.flatten import Flattened, flatten

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend, Tensor

__all__ = ["MODELS_OUTSIDE", "differentiate"]

MODELS_OUTSIDE = "compile the model, and call ds.value_and_grad outside of compiled functions"


def differentiate(
    backend: Backend, fn: Callable[[list[Any]], tuple[Any, Any]], args: tuple[Any, ...], positions: list[int]
) -> tuple[Any, Any, list[Any]]:
    """Return the value, the other results, and the gradients of each argument.

    Args:
        backend: The backend whose compiler is reading the calling code.
        fn: Takes the arguments, and returns the value and the other results.
        args: The arguments.
        positions: Which of them to differentiate.
    """
    flats: list[Flattened] = []
    places: list[int] = []
    xs: list[Tensor] = []
    for given in positions:
        if not -len(args) <= given < len(args):
            backend.raise_error(gradient_errors.position_error, (given, len(args)))
        at = given % len(args)
        flat = _flat(backend, at, args[at])
        places.append(at)
        flats.append(flat)
        xs.extend(flat.tensors)
    kept: list[Any] = []

    def call(variables: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        inputs = list(args)
        for at, tree in zip(places, _rebuild(flats, variables), strict=True):
            inputs[at] = tree
        value, aux = fn(inputs)
        gradient_errors.require_scalar(backend, value, _describe)
        found = flatten(aux)
        kept.append(found)
        return value, found.tensors

    device = backend.device_of(xs[0])
    for x in xs:
        if backend.device_of(x) is not device:
            value, tensors, grads = backend.differentiate_in_trace(call, xs)
            break
    else:
        current.note_traced_scope()
        current.TRACED.devices.append(device)  # the function's new tensors are also there
        try:
            with backend.scope(device):
                value, tensors, grads = backend.differentiate_in_trace(call, xs)
        finally:
            current.TRACED.devices.pop()
    return value, _rebuild(kept, tensors)[0], _rebuild(flats, grads)


def _flat(backend: Backend, at: int, tree: Any) -> Flattened:
    """Return an argument as lists; refuse leaves that cannot be differentiated."""
    flat = flatten(tree)
    if flat.models:
        backend.raise_error(messages.tracing, (backend, "value_and_grad of a model", MODELS_OUTSIDE))
    if type(tree) in gradient_errors.NUMBERS:
        backend.raise_error(gradient_errors.number_error, (tree, at, None))
    for _, _, _, (_, found, _) in flat.containers:
        for child in found:
            if type(child) in gradient_errors.NUMBERS:
                backend.raise_error(gradient_errors.number_error, (child, at, None))
    for _, cell, x, owner in flat.leaves:
        if owner is not backend:
            backend.raise_error(messages.tracing, (backend, f"value_and_grad of {owner.title}", MODELS_OUTSIDE))
        name = backend.dtype_name(x)
        if not name.startswith(FLOATING):
            backend.raise_error(gradient_errors.dtype_error, (name, at, cell))
    if not flat.tensors:
        backend.raise_error(gradient_errors.no_tensor_error, (at, with_article(type(tree).__name__)))
    return flat


def _rebuild(flats: list[Flattened], xs: list[Tensor]) -> list[Any]:
    """Return the trees with other tensors."""
    trees: list[Any] = []
    start = 0
    for flat in flats:
        end = start + len(flat.numbers)
        trees.append(flat.rebuild(dict(zip(flat.numbers, xs[start:end], strict=True))))
        start = end
    return trees


def _describe(value: Any) -> str:
    """Return a few words for a value, as `devshim.errors.formatting.describe` does, by code that can be traced."""
    return repr(value) if type(value) in registry.LEAF_TYPES else with_article(type(value).__name__)
