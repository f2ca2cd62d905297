"""Several trees walked side by side: `gather` joins, and `load` fills, the leaves at the same key path in each.

Requirements of this module:

* Trees of different structure are refused before anything is done: the message gives the key path and the tree.
* Containers are those of `devshim.trees.containers`, rebuilt as in the first tree; depth is unlimited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import ArgumentError, DevshimError
from devshim.errors.formatting import describe, show, type_name, with_article
from devshim.registry import registry
from devshim.registry.registry import model_backend
from devshim.trees.containers import children
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.contract.backend import Backend
    from devshim.trees.key_paths import Cell

    Visit = Callable[[Cell, list[Any]], Any]
    Unlike = Callable[[Cell, int, str], Exception]

__all__ = [
    "is_leaf",
    "locate_errors",
    "map_leaves",
    "require_equal",
    "require_same_form",
    "same_value",
    "structure_error",
]


class _Level:
    """A container that is being rebuilt: the items that remain to be visited, and the results of the others."""

    def __init__(self, cell: Cell | None, node: Any, items: Iterator[tuple[object, list[Any]]], rebuild: Any) -> None:
        self.cell, self.node, self.items, self.rebuild = cell, node, items, rebuild
        self.done: list[Any] = []


def map_leaves(
    trees: list[Any],
    visit: Visit,
    unlike: Unlike,
    leaf: Callable[[Any], bool] | None = None,
    enter: Callable[[Any], None] | None = None,
) -> Any:
    """Return the first tree with every leaf replaced by a visitor's result for the leaves of all trees at that path.

    Args:
        trees: At least one tree.
        visit: Called with the cell of a leaf of the first tree, and the object at that path in each tree.
        unlike: Makes the error, from the cell, the number of a tree with another container there, and the reason.
        leaf: Returns True for a leaf; the default is `is_leaf`.
        enter: Called with each container of the first tree, before its leaves.

    Raises:
        ArgumentError: The first tree contains itself.
    """
    leaf = is_leaf if leaf is None else leaf
    if leaf(trees[0]):  # the usual case: a single tensor
        return visit((None, None), trees)
    stack = [_Level(None, None, iter([(None, trees)]), lambda made: made[0])]
    above: set[int] = set()
    while True:
        level = stack[-1]
        for key, nodes in level.items:
            cell = (level.cell, key)
            flat = None if leaf(nodes[0]) else children(nodes[0])
            if flat is None:
                level.done.append(visit(cell, nodes))
                continue
            if id(nodes[0]) in above:
                raise ArgumentError("the tree contains itself", "break the cycle: a tree of tensors is finite")
            if enter is not None:
                enter(nodes[0])
            columns = [
                flat[1],
                *(_align_children(flat[0], nodes[0], node, cell, i + 1, unlike) for i, node in enumerate(nodes[1:])),
            ]
            above.add(id(nodes[0]))
            items = zip(flat[0], map(list, zip(*columns, strict=True)), strict=True)
            stack.append(_Level(cell, nodes[0], items, flat[2]))
            break
        else:
            stack.pop()
            above.discard(id(level.node))
            made = level.rebuild(level.done)
            if not stack:
                return made
            stack[-1].done.append(made)


def is_leaf(node: Any) -> bool:
    """Return True for a tensor, a model or optimizer, or a plain value; other leaves have no children either."""
    if type(node) in registry.LEAF_TYPES or registry.backend_for(node) is not None:
        return True
    return model_backend(node) is not None


def _align_children(keys: list[Any], first: Any, node: Any, cell: Cell, which: int, unlike: Unlike) -> list[Any]:
    """Return the children of another tree's container in the order of the first tree's."""
    flat = None if is_leaf(node) else children(node)
    if flat is None:
        raise unlike(cell, which, f"{_describe_leaf(node)}, not {with_article(type_name(first))}")
    if flat[0] == keys:
        return flat[1]
    have = dict(zip(flat[0], flat[1], strict=True))
    if have.keys() != set(keys) and isinstance(first, dict) != isinstance(node, dict):
        raise unlike(cell, which, f"{with_article(type_name(node))}, not {with_article(type_name(first))}")
    if have.keys() != set(keys):
        lacking, more = [key for key in keys if key not in have], [key for key in have if key not in keys]
        differences = [f"no {lacking[0]!r}"] if lacking else []
        raise unlike(cell, which, ", but ".join([*differences, *([f"the additional key {more[0]!r}"] if more else [])]))
    return [have[key] for key in keys]


def _describe_leaf(node: Any) -> str:
    """Return words for a leaf in a sentence; tensors and models of a checkpoint provide their own."""
    in_words = getattr(type(node), "in_words", None)
    if in_words is not None:
        return str(in_words(node))
    return describe(node)


_SAME = {
    "dtype": "cast them before, for example with the framework's own x.astype or x.to",
    "shape": "cut or pad them before, or leave out the one that differs",
}


def locate_errors(cell: Cell, how: Callable[..., Any], *args: Any) -> Any:
    """Call a function for one tensor of a tree; add the tensor's key path to an error."""
    try:
        return how(*args)
    except DevshimError as error:
        where = brackets(cell)
        if where:
            error.add_leaf(where)
        raise


def structure_error(call: str, noun: str) -> Unlike:
    """Return a function that makes the error for trees of different structure.

    Args:
        call: The public call, such as ``"gather"``.
        noun: What the call's documentation calls one of the trees, such as ``"part"``.
    """

    def make(cell: Cell, which: int, why: str) -> Exception:
        where = brackets(cell)
        at = f" at {where}" if where else ""
        return ArgumentError(
            f"ds.{call} needs trees of one structure: {noun} {which} has {why}{at}, unlike {noun} 0",
            "pass trees with the same keys, such as ds.split and ds.broadcast return",
        )

    return make


def require_equal(call: str, noun: str, cell: Cell, nodes: Sequence[Any]) -> None:
    """Raise `ArgumentError` for objects that are not tensors and differ between trees."""
    for which, node in enumerate(nodes):
        if not same_value(nodes[0], node):
            msg = (
                f"ds.{call} keeps objects that are not tensors from the first {noun}, and at "
                f"{brackets(cell) or 'the top'} {noun} {which} has {show(node)} where {noun} 0 has {show(nodes[0])}"
            )
            raise ArgumentError(msg, "make them tensors, with ds.asarray, or leave them out")


def same_value(a: Any, b: Any) -> bool:
    """Return True if two plain values have the same type and value."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    try:
        return bool(a == b) or (a != a and b != b)  # nan equals nan here
    except Exception:  # an object that cannot be compared
        return False


def require_same_form(
    call: str, noun: str, cell: Cell, nodes: Sequence[Any], backend: Backend, axis: int | None = None
) -> None:
    """Raise `ArgumentError` for tensors of different framework, dtype, or shape (except along an axis); name each."""
    if len(nodes) == 1 or _are_alike(nodes, backend, axis):
        return
    for which, node in enumerate(nodes):
        other = registry.backend_for(node)
        if other is None:
            differences = f"{noun} {which} is a {type_name(node)}, and {noun} 0 a tensor of {backend.title}"
        elif other is not backend:
            differences = f"{noun} 0 is a tensor of {backend.title}, and {noun} {which} one of {other.title}"
        else:
            continue
        msg = f"ds.{call} needs tensors of one framework{_name_place(cell)}: {differences}"
        raise ArgumentError(msg, f"ds.convert(x, {backend.name!r}) converts one")
    for what, ask in (("dtype", backend.dtype_name), ("shape", lambda x: _drop_axis(backend.shape(x), axis))):
        found = [ask(node) for node in nodes]
        if found.count(found[0]) != len(found):
            shown = [backend.shape(node) if what == "shape" else backend.dtype_name(node) for node in nodes]
            differences = ", ".join(f"{noun} {i} has {each}" for i, each in enumerate(shown))
            but = "" if axis is None or what == "dtype" else f" except along axis {axis}"
            msg = f"ds.{call} needs tensors of one {what}{but}{_name_place(cell)}: {differences}"
            raise ArgumentError(msg, _SAME[what])


def _are_alike(nodes: Sequence[Any], backend: Backend, axis: int | None) -> bool:
    """Return True if a look at each tensor shows that all agree, as they nearly always do."""
    kind, name, shape = type(nodes[0]), backend.dtype_name(nodes[0]), _drop_axis(backend.shape(nodes[0]), axis)
    for node in nodes[1:]:
        if type(node) is not kind or backend.dtype_name(node) != name or _drop_axis(backend.shape(node), axis) != shape:
            return False
    return True


def _drop_axis(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    return shape if axis is None else (len(shape), *shape[:axis], *shape[axis + 1 :])


def _name_place(cell: Cell) -> str:
    where = brackets(cell)
    return f" at {where}" if where else ""
