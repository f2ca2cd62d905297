"""Trees as lists: the tensors in nested containers, and the containers rebuilt around others.

Requirements of this module:

* Containers are those of `devshim.trees.containers`. Depth is unlimited, because no recursion is used.
* Order is kept: a dict's keys stay in their insertion order.
* A container in which nothing moved stays the same object. A tensor or container that occurs in two places has one
  number, so that it is moved once, and occurs in both again. The given tree is never changed.
* Compilers can trace the same code. One that reads code (torch.compile) would compile a function again for every
  other ``id`` that it sees, so in a compiled function each place in the tree has its own number. The compiler
  itself sees which tensors are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.errors import ArgumentError
from devshim.registry import registry, tracing
from devshim.trees.containers import children
from devshim.trees.key_paths import brackets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim.contract.backend import Backend
    from devshim.trees.containers import Flat
    from devshim.trees.key_paths import Cell

    Leaf = tuple[int, Cell, Any, Backend]
    """A leaf's number, its cell, the leaf itself, and its backend."""

__all__ = ["Flattened", "flatten"]

_FEW = 8
"""With at most this many children, it is not worth checking if all are tensors of one type."""
_DEEPEST = 200
"""The depth from which a tree in a compiled function counts as one that contains itself."""


class Flattened:
    """A tree as lists, in the order of the tree.

    The tensors are in one list, and what is known about them is in others of the same length: an object for each tensor
    would be work for the garbage collector.
    """

    __slots__ = (
        "backends",
        "compiler",
        "containers",
        "keys",
        "models",
        "numbers",
        "others",
        "parents",
        "tensors",
        "tree",
    )

    def __init__(self, tree: Any, compiler: Backend | None) -> None:
        self.tree: Any = tree
        self.compiler: Backend | None = compiler
        """The backend whose compiler is reading the calling code, or None."""
        self.tensors: list[Any] = []
        """Every tensor; one that occurs in several places, once for each."""
        self.numbers: list[int] = []
        self.backends: list[Backend] = []
        self.parents: list[Cell | None] = []
        """The cell of the container that each tensor is in."""
        self.keys: list[object] = []
        self.models: list[Leaf] = []
        """The models and optimizers, each once."""
        self.others: list[tuple[Cell, Any]] = []
        """All other leaves, each once, except numbers, text and None."""
        self.containers: list[tuple[int, Sequence[int], Any, Flat]] = []
        """The number of each container, those of its children, the container, and its children; inner ones first."""

    @property
    def leaves(self) -> list[Leaf]:
        """The tensors, each with its number, its cell and its backend."""
        cells = zip(self.parents, self.keys, strict=True)
        return list(zip(self.numbers, cells, self.tensors, self.backends, strict=True))

    def cell(self, i: int) -> Cell:
        """Return the cell of a tensor."""
        return self.parents[i], self.keys[i]

    def name(self, i: int) -> str:
        """Return the keys that lead to a tensor, as Python writes them."""
        return brackets(self.cell(i))

    def add_all(self, numbers: Sequence[int], cell: Cell, found: Flat) -> bool:
        """Add the children of a container if all are tensors of one type; return False otherwise."""
        keys, xs, _ = found
        kinds = list(dict.fromkeys(map(type, xs)))
        backend = registry.TENSORS.get(kinds[0]) if len(kinds) == 1 else None
        if backend is None:
            return False
        self.numbers.extend(numbers)
        self.parents.extend([cell] * len(xs))
        self.keys.extend(keys)
        self.tensors.extend(xs)
        self.backends.extend([backend] * len(xs))
        return True

    def add(self, number: int, parent: Cell | None, key: object, x: Any, backend: Backend) -> None:
        """Add a tensor."""
        self.numbers.append(number)
        self.parents.append(parent)
        self.keys.append(key)
        self.tensors.append(x)
        self.backends.append(backend)

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
    compiler = tracing.compiler()
    flat = Flattened(tree, compiler)
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
                flat.add(each, cell, key, child, backend)
                continue
            if each in above:
                raise _cycle()
            if compiler and len(stack) > _DEEPEST:  # here an object has another number each time
                compiler.raise_error(_cycle, ())
            if each in seen:
                continue
            seen.add(each)
            below = _children_of(child, each, (cell, key), flat, compiler, into_models)
            if below is not None:
                count += len(below[1])
                inner = range(count - len(below[1]) + 1, count + 1) if compiler else list(map(id, below[1]))
                above.add(each)
                items = zip(below[0], below[1], inner, strict=True)
                if len(inner) > _FEW and flat.add_all(inner, (cell, key), below):
                    items = iter(())
                stack.append((each, inner, child, below, (cell, key), items))
                break
        else:
            stack.pop()
            above.discard(number)
            if stack:
                flat.containers.append((number, numbers, node, found))
    return flat


def _cycle() -> ArgumentError:
    return ArgumentError("the tree contains itself", "break the cycle: a tree of tensors is finite")


def _children_of(
    node: Any, number: int, cell: Cell, flat: Flattened, compiler: Backend | None, into_models: bool
) -> Flat | None:
    """Return a container's children; add any other node, and what `flatten` is to find in it, to a flattened tree."""
    owner = registry.model_backend(node)
    if owner is not None:
        if into_models:
            for leaf in owner.leaves(node):
                flat.add(-1, cell, leaf.path, leaf.read(), owner)
        else:
            flat.models.append((number, cell, node, owner))
        return None
    # A compiler can follow only its own framework's registry of containers.
    found = children(node, None if compiler is None else [compiler] if compiler.has_containers else [])
    if found is None:
        flat.others.append((cell, node))
    return found
