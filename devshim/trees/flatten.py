"""Trees as lists: the tensors in nested containers, and the containers rebuilt around others.

Requirements this module answers:

* Containers are those of `devshim.trees.containers`. Depth is unlimited, because no recursion is used.
* Order is kept: a dict's keys stay in their insertion order.
* A container in which nothing moved stays the same object. A tensor or container that occurs in two places has one
  number, so that it is moved once, and occurs in both again. The given tree is never changed.
* Compilers can trace the same code. One that reads code (torch.compile) would compile a function again for every
  other ``id`` that it sees, so in a compiled function each place in the tree has a number of its own. The compiler
  itself sees which tensors are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from devshim.contract import capabilities
from devshim.errors import ArgumentError
from devshim.registry import registry, tracing
from devshim.trees.containers import children

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.contract.backend import Backend
    from devshim.trees.containers import Flat
    from devshim.trees.key_paths import Cell

    Leaf = tuple[int, Cell, Any, Backend]
    """A leaf's number, its cell, the leaf itself, and its backend."""

__all__ = ["Flattened", "flatten", "model_backend"]


class Flattened(NamedTuple):
    """A tree as lists; leaves are in the order of the tree."""

    tree: Any
    leaves: list[Leaf]
    """Every tensor; one that occurs twice in a container or in two, once for each place."""
    models: list[Leaf]
    """The models and optimizers, each once."""
    others: list[tuple[Cell, Any]]
    """All other leaves, each once, except numbers, text and None."""
    containers: list[tuple[int, Sequence[int], Any, Flat]]
    """The number of each container, those of its children, the container, and its children; inner ones first."""

    def rebuild(self, new: dict[int, Any]) -> Any:
        """Return the tree with new objects, given by the numbers of those that they replace; itself if there are none.

        The rebuilt containers are added to ``new``.
        """
        if not self.containers:
            return next(iter(new.values()), self.tree)
        for number, numbers, _, (_, old, build) in self.containers if new else ():
            for each in numbers:  # plain loops: torch.compile before 2.13 cannot trace a comprehension over a generator
                if each in new:
                    pairs = zip(numbers, old, strict=True)
                    new[number] = build([new.get(place, child) for place, child in pairs])
                    break
        return new.get(self.containers[-1][0], self.tree)


def flatten(tree: Any, *, into_models: bool = False) -> Flattened:
    """Return a tree as lists.

    Args:
        tree: Anything.
        into_models: True: the tensors in models and optimizers are leaves of the tree.

    Raises:
        ArgumentError: The tree contains itself.
        UnsupportedError: A leaf is a model or optimizer, and its backend declares that it cannot move those.
    """
    flat = Flattened(tree, [], [], [], [])
    compiler = tracing.compiler()
    count = 0  # in a compiled function: the numbers used so far
    above: set[int] = set()
    seen: set[int] = set()  # the lists of children keep all objects alive, so that no id is reused
    stack: list[Any] = [(0, [], None, None, None, iter([(None, tree, 0 if compiler else id(tree))]))]
    while stack:
        number, numbers, node, found, cell, items = stack[-1]
        for key, child, each in items:
            if type(child) in registry.LEAF_TYPES:
                continue
            backend = registry.backend_for(child)
            if backend is not None:
                flat.leaves.append((each, (cell, key), child, backend))
                continue
            if each in seen:
                _refuse_cycle(each in above)
                continue
            seen.add(each)
            below = _children_of(child, each, (cell, key), flat, compiler, into_models)
            if below is not None:
                count += len(below[1])
                inner = range(count - len(below[1]) + 1, count + 1) if compiler else [id(part) for part in below[1]]
                above.add(each)
                stack.append((each, inner, child, below, (cell, key), zip(below[0], below[1], inner, strict=True)))
                break
        else:
            stack.pop()
            above.discard(number)
            if stack:
                flat.containers.append((number, numbers, node, found))
    return flat


def _refuse_cycle(is_cycle: bool) -> None:
    if is_cycle:
        raise ArgumentError("the tree contains itself", "break the cycle: a tree of tensors is finite")


def _children_of(
    node: Any, number: int, cell: Cell, flat: Flattened, compiler: Backend | None, into_models: bool
) -> Flat | None:
    """Return a container's children; add any other node, and what `flatten` is to find in it, to a flattened tree."""
    owner = model_backend(node)
    if owner is not None:
        if into_models:
            flat.leaves.extend([(-1, (cell, leaf.path), leaf.read(), owner) for leaf in owner.leaves(node)])
        else:
            flat.models.append((number, cell, node, owner))
        return None
    # A compiler can follow only its own framework's registry of containers.
    found = children(node, None if compiler is None else [compiler] if compiler.has_containers else [])
    if found is None:
        flat.others.append((cell, node))
    return found


def model_backend(node: Any) -> Backend | None:
    """Return the backend of a model or optimizer, or None for anything else."""
    if isinstance(node, (dict, list, tuple)):
        return None
    name = _model_framework(type(node))
    if name is None:
        return None
    owner = registry.load(name)
    if "models" in owner.gaps:
        owner.raise_error(capabilities.unsupported, (owner, "models"))
    return owner


@registry.constant_under_compile
def _model_framework(cls: type) -> str | None:
    """Return the name of the backend whose models or optimizers are instances of a type; None for any other type."""
    owner = registry.backend_of_type(cls)
    return owner.name if owner is not None and owner.is_model(cls) else None
