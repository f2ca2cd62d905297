"""Fill a tree from a file of another structure by key path: nested, flat, and models' files have the same paths.

Requirements of this module:

* A key path is the keys that lead to a tensor, joined by dots: ``params.dense.kernel``, as `devshim.leaves` names it.
  A dict of dicts, the flat dict of another program, and the model whose leaves have these names are equivalent.
* Every tensor on either side has a partner, or nothing is loaded: a path that is missing, left over or ambiguous is
  named. The only exceptions are code, and numbers and text, which other programs' files do not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.checkpoints.layer_matching import name_some
from devshim.checkpoints.rows import Rows, is_leaf
from devshim.checkpoints.stored import CODE, StoredObject, StoredTensor
from devshim.contract.blocks import join_path
from devshim.errors import CheckpointError
from devshim.registry import registry
from devshim.registry.registry import model_backend
from devshim.trees import key_paths, multi_map
from devshim.trees.not_moved import is_code

if TYPE_CHECKING:
    from devshim.trees.key_paths import Cell

__all__ = ["named_tensors", "rearrange"]


def rearrange(into: Any, stored: Any) -> Any:
    """Return the file's tree in the structure of ``into``; unchanged if it has this structure, or other key paths.

    Raises:
        CheckpointError: One side is a flat dict of key paths or a model, and a path is only on one side.
    """
    if model_backend(into) is not None or _is_aligned(into, stored):
        return stored
    wanted, skipped = _wanted_paths(into)
    have = {} if wanted is None else _paths(stored)
    if wanted is None or have is None:
        return stored
    have = {path: value for path, value in have.items() if not any(_is_below(path, each) for each in skipped)}
    needed = [path for path, is_tensor in wanted.items() if is_tensor or not _is_flat(stored)]
    missing = [path for path in needed if path not in have]
    more = [path for path in have if path not in wanted]
    if missing or more:
        if len(missing) < len(needed) and any(map(_is_flat, (into, stored))):
            raise _mismatch(missing, more)
        return stored
    return multi_map.map_leaves(
        [into],
        lambda cell, nodes: _find_value(cell, nodes[0], have),
        multi_map.structure_error("load", "tree"),
        is_leaf,
    )


def named_tensors(stored: Any) -> dict[str, StoredTensor] | None:
    """Return the tensors of a tree of a file by key path; None if it has anything else, or a path occurs twice."""
    found = None if multi_map.is_leaf(stored) or isinstance(stored, StoredObject) else _paths(stored, into_models=False)
    if not found or not all(isinstance(each, StoredTensor) for each in found.values()):
        return None
    return found


class _OtherStructureError(Exception):
    """The file has another structure."""


def _is_aligned(into: Any, stored: Any) -> bool:
    """Return True if the file has the structure of a tree."""

    def compare(cell: Cell, nodes: list[Any]) -> None:
        mine, theirs = nodes
        if mine is not None and model_backend(mine) is None and isinstance(theirs, (dict, StoredObject)):
            raise _OtherStructureError

    try:
        multi_map.map_leaves([into, stored], compare, lambda *_: _OtherStructureError(), is_leaf)
    except _OtherStructureError:
        return False
    return True


def _wanted_paths(into: Any) -> tuple[dict[str, bool] | None, list[str]]:
    """Return the paths of a tree's leaves, True for tensors, and the paths to skip; None for a tree with models."""
    found: list[tuple[str, Any]] = []
    multi_map.map_leaves(
        [into],
        lambda cell, nodes: found.append((key_paths.path_text(cell), nodes[0])),
        multi_map.structure_error("load", "tree"),
        is_leaf,
    )
    skipped = [path for path, leaf in found if leaf is None]
    data = [(path, leaf) for path, leaf in found if leaf is not None and not is_code(leaf)]
    leaves = {path: isinstance(leaf, Rows) or registry.backend_for(leaf) is not None for path, leaf in data}
    ambiguous = len(leaves) < len(data) or not any(leaves.values())
    return (None if ambiguous or any(model_backend(leaf) is not None for _, leaf in found) else leaves), skipped


def _paths(stored: Any, into_models: bool = True) -> dict[str, Any] | None:
    """Return the tensors and values of a file by key path; None if a path occurs twice."""
    found: dict[str, Any] = {}
    count = 0

    def add(path: str, value: Any) -> None:
        nonlocal count
        count += 1
        found[path] = value

    def visit(cell: Cell, nodes: list[Any]) -> None:
        path, (value,) = key_paths.path_text(cell), nodes
        if isinstance(value, StoredObject) and into_models:
            for below, (_, tensor) in value.leaves.items():
                add(join_path(path, below), tensor)
        elif value is not CODE and value is not None:
            add(path, value)

    multi_map.map_leaves([stored], visit, multi_map.structure_error("load", "tree"))
    return found if count == len(found) else None


def _find_value(cell: Cell, mine: Any, have: dict[str, Any]) -> Any:
    """Return the file's value for a leaf; a leaf that is not a tensor may keep its value."""
    return have.get(key_paths.path_text(cell), CODE if is_code(mine) else mine)


def _is_flat(tree: Any) -> bool:
    """Return True for a dict by key path, or a model of a file."""
    if isinstance(tree, StoredObject):
        return True
    return isinstance(tree, dict) and any(isinstance(key, str) and "." in key for key in tree)


def _is_below(path: str, prefix: str) -> bool:
    return not prefix or path == prefix or path.startswith(f"{prefix}.")


def _mismatch(missing: list[str], more: list[str]) -> CheckpointError:
    differences = [
        f"the file lacks {name_some(missing)}" if missing else "",
        f"it also has {name_some(more)}" if more else "",
    ]
    return CheckpointError(
        f"the file does not fit `into`: {' and '.join(filter(None, differences))}",
        "pass a tree with the key paths of the file, which ds.leaves(ds.load(path)) lists; "
        "None skips what the file has at that position",
    )
