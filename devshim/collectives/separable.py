"""Check that the tensors of each container can be cut, joined or combined separately, without regard to each other.

`split`, `gather` and `all_reduce_` treat each tensor of a tree separately. The result is wrong, without an error, for

* containers whose tensors belong together, because some are indices: sparse arrays, graphs, packed sequences.
  The adapter names their classes (`Backend.why_inseparable`), and every one of these calls refuses them;
* containers with static data that describes the shape of their tensors, such as the `batch_shape` of a distribution or
  the `in_features` of a layer: the static data would stay as it was. `split` and `gather` refuse them.

Static data counts as such a description in two cases:

* A tuple of ints that is the start or the end of a tensor's shape and includes the axis.
* In an object that can be called, such as a layer: an int above 1 that is the length of the axis, and of no other axis
  of a tensor that the object itself has. So layers can be cut along an axis that was added to all of their tensors (an
  ensemble). An int in an object of plain data is like an int in a dict: it is in every part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import UnsupportedError
from devshim.errors.formatting import type_name
from devshim.registry import registry
from devshim.trees.containers import children
from devshim.trees.flatten import flatten

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["require_separable"]

_VERBS = {"split": "cut", "gather": "join", "all_reduce_": "combine"}


def require_separable(call: str, node: Any, axis: int | None = None) -> None:
    """Refuse a container whose tensors cannot be cut, joined or combined separately.

    Args:
        call: The public call: ``"split"``, ``"gather"`` or ``"all_reduce_"``.
        node: A container.
        axis: The axis that is cut or joined; None if the shapes stay as they are.

    Raises:
        UnsupportedError: The tensors of the container cannot be treated separately.
    """
    if isinstance(node, (dict, list)) or type(node) is tuple:
        return
    for backend in registry.backends_with_containers():
        why = backend.why_inseparable(node)
        if why is not None:
            raise _error(call, node, *why)
        if axis is not None:
            described = _described_shape(node, backend.static_data(node), axis)
            if described is not None:
                why_static = f"its static data has {described}, which would stay as it is"
                raise _error(call, node, why_static, "pass its tensors: ds.leaves(x) returns a dict of them")


def _error(call: str, node: Any, why: str, hint: str) -> UnsupportedError:
    what = f"{_VERBS[call]} objects of the class {type_name(node)}"
    return UnsupportedError(f"ds.{call} cannot {what}: it treats each tensor separately, and {why}", hint)


def _described_shape(node: Any, static: object, axis: int) -> str | None:
    """Return the part of static data that describes the length of a tensor in the container along the axis, or None."""
    found = list(_shapes_in(static))
    shapes = [each for each in found if isinstance(each, tuple)]
    for shape in _shapes_of(flatten(node).tensors) if shapes else ():
        if -len(shape) <= axis < len(shape):
            before = axis % len(shape)
            for each in shapes:
                starts, ends = shape[: len(each)] == each, shape[-len(each) :] == each
                if (starts and before < len(each)) or (ends and before >= len(shape) - len(each)):
                    return f"the shape {each}"
    lengths = {each for each in found if isinstance(each, int) and each > 1} if callable(node) else ()
    for shape in _shapes_of((children(node) or ((), ()))[1]) if lengths else ():
        if -len(shape) <= axis < len(shape) and shape[axis] in lengths and shape.count(shape[axis]) == 1:
            return f"the number {shape[axis]}"
    return None


def _shapes_of(nodes: Iterable[Any]) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of those objects that are tensors."""
    for node in nodes:
        backend = registry.backend_for(node)
        if backend is not None:
            yield backend.shape(node)


def _shapes_in(static: object) -> Iterator[tuple[int, ...] | int]:
    """Yield each tuple of ints, and each other int, in static data: a value, or nested lists, tuples and dicts."""
    if _is_int(static):
        yield static  # type: ignore[misc]
    elif isinstance(static, tuple) and static and all(map(_is_int, static)):
        yield tuple(static)
    elif isinstance(static, (list, tuple, dict)):
        for each in static.values() if isinstance(static, dict) else static:
            yield from _shapes_in(each)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
