"""Match the tensors of a file with the leaves of a model or optimizer, by name or by layer.

Requirements of this module:

* The same framework and the same names: match leaf by leaf; dtypes and shapes are equal, none is missing or left over.
* Another framework, or other names: match layer by layer (`checkpoints.layer_matching`), even if the names agree:
  PyTorch and Paddle both have a ``0.weight``, with different layouts.
* An optimizer's state means nothing to another framework's optimizer, regardless of the name of its class.
* Keras models and optimizers have the same names and shapes on every framework: match these leaf by leaf.
* A mismatch is reported before anything is read, and the error names the leaf, or the layers on both sides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from devshim.checkpoints.layer_matching import match_layers, name_some
from devshim.checkpoints.stored import Source
from devshim.errors import CheckpointError
from devshim.errors.formatting import show, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devshim.checkpoints.stored import StoredObject
    from devshim.contract.backend import Backend
    from devshim.contract.models import Leaf

__all__ = ["KEPT", "match_leaves"]

KEPT = ("parameter", "buffer", "state", "stream")
"""The kinds of leaves that are saved."""


def match_leaves(backend: Backend, obj: Any, stored: StoredObject, place: str) -> dict[str, Source]:
    """Return the source of the values of each leaf of a model or optimizer, by the leaf's path.

    Raises:
        CheckpointError: The file does not fit the model or optimizer.
    """
    leaves = {leaf.path: leaf for leaf in backend.leaves(obj) if leaf.kind in KEPT}
    same = stored.library == backend.library(obj)
    what = f"the {type_name(obj)}{f' at {place}' if place else ''}"
    if not same and stored.framework and not stored.is_model:
        msg = (
            f"the file has the state of an optimizer of {stored.title} ({stored.cls}), and {what} is one of "
            f"{backend.title}: the meaning of the state differs between frameworks"
        )
        raise CheckpointError(
            msg,
            "load only the model: pass None instead of the optimizer, such as into=[model, None]",
        )
    kinds = {path: leaf.kind for path, leaf in leaves.items()}
    # The files of other programs have no kinds.
    alike = _weights(kinds) == _weights(
        {path: kind or kinds.get(path, "") for path, (kind, _) in stored.leaves.items()}
    )
    if alike and (same or not stored.layers):
        found = {path: Source(tensor) for path, (_, tensor) in stored.leaves.items() if path in leaves}
        if stored.framework and stored.framework != backend.name:
            found = {path: _convert_integers(backend, leaves[path], source) for path, source in found.items()}
    elif stored.layers and any(leaf.kind == "parameter" for leaf in leaves.values()):
        try:
            found = match_layers(backend, obj, stored, what, leaves)
        except CheckpointError as error:
            if same:
                raise _names_mismatch(leaves, stored, what) from error
            raise
    else:
        raise _names_mismatch(leaves, stored, what)
    found = {path: _check_form(backend, leaves[path], source, what) for path, source in found.items()}
    _check_ties(leaves, found, what)
    return found


def _convert_integers(backend: Backend, leaf: Leaf, source: Source) -> Source:
    """Return a source in the leaf's dtype if both are integers: seeds and counts of a library on another framework."""
    dtype, stored = backend.dtype_name(leaf.read()), source.tensor.dtype
    return replace(source, dtype=dtype) if dtype != stored and _is_integer(dtype) and _is_integer(stored) else source


def _is_integer(dtype: str) -> bool:
    return dtype.lstrip("u").startswith("int")


def _weights(kinds: Mapping[str, str]) -> set[str]:
    """Return the leaves that must agree: a model's weights, or an optimizer's state.

    A compiled Keras model has state besides its weights, and an NNX module streams of random numbers. These are
    restored if both sides have them.
    """
    weights = {path for path, kind in kinds.items() if kind not in ("state", "stream")}
    return weights or set(kinds)


def _names_mismatch(leaves: Mapping[str, Any], stored: StoredObject, what: str) -> CheckpointError:
    missing = [path for path in leaves if path not in stored.leaves]
    more = [path for path in stored.leaves if path not in leaves]
    differences = [
        f"the file lacks {name_some(missing)}" if missing else "",
        f"it also has {name_some(more)}" if more else "",
    ]
    unbuilt = "" if leaves else "; the model has no weights yet: build it first"
    return CheckpointError(
        f"the file does not fit {what}: {' and '.join(filter(None, differences))}{unbuilt}",
        "load it into an object like the saved one, or without `into` to get its tensors by name",
    )


def _check_form(backend: Backend, leaf: Leaf, source: Source, what: str) -> Source:
    """Return a source, after checking that its form is the leaf's."""
    x = leaf.read()
    have = (backend.dtype_name(x), backend.shape(x))
    dtypes = {tensor.dtype for tensor, _ in source.terms} or {source.dtype or source.tensor.dtype}
    if ({have[0]}, have[1]) == (dtypes, source.shape if source.terms else source.tensor.shape):
        return source
    found = source.tensor.source_for(backend, x)
    if found is None:
        msg = (
            f"the file does not fit {what}: its {show(leaf.path)} is {have[0]} of shape {have[1]}, and in the file "
            f"{show(source.tensor.name)} is {source.tensor.form()}"
        )
        raise CheckpointError(msg, "load it into an equal model, and convert the dtype of that model afterwards")
    return found


def _check_ties(leaves: Mapping[str, Leaf], found: Mapping[str, Source], what: str) -> None:
    """Refuse two tensors for one parameter."""
    owners: dict[tuple[int, str], tuple[str, Source]] = {}
    for path, source in found.items():
        first, other = owners.setdefault((id(leaves[path].owner), leaves[path].kind), (path, source))
        if other.tensor is not source.tensor:
            msg = f"the file does not fit {what}: {show(first)} and {show(path)} are one tensor, but two in the file"
            raise CheckpointError(
                msg,
                "untie them in the model, or take one of them from the dict that ds.load(path) returns",
            )
