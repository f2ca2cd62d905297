"""`Rows`: one rank's rows of a tensor that is cut along its first axis over the ranks of a job.

Requirements of this module:

* In every other call of devshim, a `Rows` is a container with one tensor: `place` and `leaves` reach it. In checkpoints
  it is a leaf, so that its key path is that of the whole tensor.
* A cut is described by its bounds: rank ``k`` has the rows from ``bounds[k]`` to ``bounds[k + 1]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from devshim.errors import ArgumentError
from devshim.errors.formatting import describe
from devshim.registry import registry
from devshim.trees import multi_map

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Ranks", "Rows", "bounds_of", "even_bounds", "is_leaf", "require_ranks", "rows_in"]


class Ranks(Protocol):
    """The part of a `World` that checkpoints use."""

    @property
    def rank(self) -> int:
        """The number of this process."""

    @property
    def size(self) -> int:
        """The number of processes in the job."""

    @property
    def host(self) -> str:
        """The name of this rank's host."""

    def gather_for(self, call: str, tree: Any, /) -> Any:
        """Return the tree of every rank, in the order of the ranks, as a part of a call that all ranks make."""
        ...


@dataclass(eq=False)
class Rows:
    """This rank's rows of a tensor that all ranks have together, in the order of the ranks.

    With ``ds.save(tree, path, world=world)``, each rank writes its own rows; `load` gives each rank its rows again,
    even to another number of ranks. The ranks may have different numbers of rows, and a rank may have zero.

    Args:
        part: A tensor with at least one axis, on any device. The other axes and the dtype are the same on all ranks.

    Raises:
        ArgumentError: ``part`` is not a tensor, or has no axis.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.Rows(ds.zeros((2, 3))).part.shape
        (2, 3)
    """

    part: Any

    def __post_init__(self) -> None:
        require_tensor(self)


def require_tensor(rows: Rows) -> None:
    """Raise ArgumentError if a `Rows` does not have a tensor with at least one axis."""
    backend = registry.backend_for(rows.part)
    if backend is None:
        msg = f"ds.Rows takes a tensor, and was given {describe(rows.part)}"
        raise ArgumentError(msg, "pass this rank's rows of the tensor: ds.Rows(x[world.part(len(x))])")
    if not backend.shape(rows.part):
        msg = "ds.Rows takes a tensor that has rows, and was given one without an axis"
        raise ArgumentError(msg, "save it without ds.Rows: it is the same on all ranks")


def is_leaf(node: Any) -> bool:
    """Return True for a leaf of a tree in a checkpoint: a `Rows` is one, too."""
    return isinstance(node, Rows) or multi_map.is_leaf(node)


def rows_in(tree: Any) -> list[Rows]:
    """Return each `Rows` in a tree, in order."""
    found: list[Rows] = []

    def visit(_: Any, nodes: list[Any]) -> None:
        if isinstance(nodes[0], Rows):
            require_tensor(nodes[0])
            found.append(nodes[0])

    multi_map.map_leaves([tree], visit, multi_map.structure_error("load", "tree"), is_leaf)
    return found


def require_ranks(call: str, world: Any) -> None:
    """Raise ArgumentError if an object cannot be the ``world`` of `save` or `load`."""
    if not all(hasattr(world, name) for name in ("rank", "size", "host", "gather_for")):
        msg = f"{call} takes the ranks of the job as world, and was given {describe(world)}"
        raise ArgumentError(msg, "pass world=ds.world()")


def even_bounds(length: int, size: int) -> list[int]:
    """Return the bounds of a cut whose parts differ by at most one row; the first ranks have the larger parts."""
    rows, more = divmod(length, size)
    return [rank * rows + min(rank, more) for rank in range(size + 1)]


def bounds_of(counts: Sequence[int]) -> list[int]:
    """Return the bounds of a cut from the number of rows of each rank."""
    bounds = [0]
    for count in counts:
        bounds.append(bounds[-1] + count)
    return bounds
