"""Match the weights of a file with those of a model by their layers: in order, and in a canonical form.

Requirements of this module:

* Kinds, roles, canonical shapes and the layers' other properties must agree; `checkpoints.layouts` converts layouts
  on the way. An error about a difference names both sides.
* If the layout of a weight is unknown, the weight is refused, rather than filled with the right numbers in the wrong
  places. Within one framework, every layout is the same on both sides.
* Every parameter is filled completely, or nothing is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from devshim.checkpoints.layouts import Term, canonical_shape
from devshim.checkpoints.stored import Source
from devshim.contract.models import Weight
from devshim.errors import CheckpointError
from devshim.errors.formatting import list_some, show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devshim.checkpoints.stored import StoredObject, StoredTensor
    from devshim.contract.backend import Backend
    from devshim.contract.models import Layer, Leaf

    Terms = list[tuple[StoredTensor, Term]]

__all__ = ["match_layers", "name_some"]

_BY_HAND = "load the file without `into`, and set these weights by hand"


def match_layers(
    backend: Backend, obj: Any, stored: StoredObject, what: str, leaves: Mapping[str, Leaf]
) -> dict[str, Source]:
    """Return the source of the values of each leaf of a model that belongs to a layer, by the leaf's path.

    Raises:
        CheckpointError: The layers are not the same, or a parameter is in none of them.
    """
    mine = [layer for layer in backend.layers(obj) if layer.weights]
    theirs = [layer for layer in stored.layers if layer["weights"]]
    layer_lists = f"the file's {len(theirs)} layers are {_layers(theirs)}; the model's {len(mine)} are " + _layers(
        [{"kind": layer.kind, "path": layer.path} for layer in mine]
    )
    if len(mine) != len(theirs):
        msg = f"the file does not fit {what}: {layer_lists}"
        unbuilt = ", and call it once (layers without sizes have no weights yet)" if len(mine) < len(theirs) else ""
        hint = f"build the model like the one that was saved{unbuilt}; ds.load(path) returns only the tensors"
        raise CheckpointError(msg, hint)
    same = stored.library == backend.library(obj)
    found: dict[str, Terms] = {}
    for ours, other in zip(mine, theirs, strict=True):
        difference = _difference(ours, other, same)
        hint = "create the layers in the order of the saved model; ds.load(path) returns only the tensors"
        for role, weight in ours.weights.items() if difference is None else ():
            for tensor, term in _terms(role, weight, other["weights"], stored, same):
                if why := term.theirs.unclear or term.mine.unclear:
                    difference, hint = why, _BY_HAND
                elif difference is None:
                    difference = _form_difference(backend, role, tensor, term, leaves[weight.path])
                found.setdefault(weight.path, []).append((tensor, term))
        if difference is not None:
            msg = (
                f"the file does not fit {what}: its {show(ours.path)} ({ours.kind}) would get {show(other['path'])} "
                f"({show(other['kind'])}) of {stored.title}, and {difference}; {layer_lists}"
            )
            raise CheckpointError(msg, hint)
    sources = {path: _source(backend, leaves[path], terms) for path, terms in found.items()}
    owners = {(id(leaves[path].owner), leaves[path].kind): source for path, source in sources.items()}
    for path, leaf in leaves.items():  # a layer names only one of the names of a tied parameter
        if (id(leaf.owner), leaf.kind) in owners:
            sources.setdefault(path, owners[id(leaf.owner), leaf.kind])
    _require_covered(leaves, sources, {path for layer in mine for path in layer.unused}, what)
    return sources


def _source(backend: Backend, leaf: Leaf, terms: Terms) -> Source:
    ((tensor, term), *more) = terms
    plain = Weight(leaf.path)
    if not more and term.counts and term.mine == plain and term.theirs == Weight(term.theirs.path):
        return Source(tensor)
    return Source(tensor, tuple(terms), backend.shape(leaf.read()))


def _terms(role: str, weight: Weight, others: Mapping[str, Weight], stored: StoredObject, same: bool) -> Terms:
    """Return a weight's terms: the tensor of its role, those whose sum it is, or one that is a sum."""
    sums = {part: name for name in others for part in name.split("+")}
    names = [role] if role in others else [name for name in role.split("+") if name in others]
    counts = bool(names) or role == sums[role].partition("+")[0]  # the first part gets the sum, the others zeros
    found = []
    for name in names or [sums[role]]:
        tensor = stored.leaves[others[name].path][1]
        if same and (weight.unclear or others[name].unclear):
            found.append((tensor, Term(Weight(others[name].path), Weight(weight.path), counts)))
        else:
            found.append((tensor, Term(others[name], weight, counts)))
    return found


def _form_difference(backend: Backend, role: str, tensor: StoredTensor, term: Term, leaf: Leaf) -> str | None:
    """Return why a tensor of the file does not have a weight's form, or None."""
    x = leaf.read()
    shape = backend.shape(x)
    there = canonical_shape(term.theirs, tensor.shape)
    rank = len(term.mine.folded or term.mine.axes or shape)
    if rank != len(there):
        return f"its {role} has {rank} axes, and in the file {len(there)}"
    if len(term.mine.axes or ()) == len(shape) or term.mine.axes is None or term.mine.folded:
        here = canonical_shape(term.mine, shape)
        if (here, backend.dtype_name(x)) == (there, tensor.dtype):
            return None
    return (
        f"its {show(leaf.path)} is {backend.dtype_name(x)} of shape {shape}, and in the file {show(tensor.name)} is "
        f"{tensor.dtype} of shape {tensor.shape}"
    )


def _require_covered(leaves: Mapping[str, Leaf], found: Mapping[str, Source], unused: set[str], what: str) -> None:
    """Refuse a parameter that would not be filled, or only in part."""
    filled = {path for path, source in found.items() if _fills_leaf(source)} | unused
    lacking = [path for path, leaf in leaves.items() if leaf.kind == "parameter" and path not in filled]
    if lacking:
        msg = f"the file does not fit {what}: no layer that devshim knows on both frameworks has {name_some(lacking)}"
        raise CheckpointError(msg, _BY_HAND)


def _fills_leaf(source: Source) -> bool:
    """Return True if the terms of a source fill the whole leaf."""
    parts = {term.mine.part for _, term in source.terms if term.mine.part is not None}
    return not parts or sum(stop - start for start, stop in parts) == math.prod(source.shape)


def name_some(names: Sequence[str]) -> str:
    """Return the first of some names, and the number of the others."""
    return list_some(names, 3, show)


def _layers(layers: Sequence[Mapping[str, Any]]) -> str:
    return list_some(layers, 12, lambda each: f"{show(each['path'])} ({str(each['kind'])[:20]})")


def _difference(mine: Layer, other: Mapping[str, Any], same: bool) -> str | None:
    """Return why two layers are not the same, or None."""
    if mine.kind != other["kind"]:
        return "they are of different kinds"
    if mine.kind == "other" and not same:
        return "devshim knows no such layer on both frameworks"
    if _parts(mine.weights) != _parts(other["weights"]):
        return f"one has {', '.join(sorted(mine.weights))}, the other {', '.join(sorted(other['weights']))}"
    for name in sorted({*mine.settings, *other["facts"]}):
        ours, theirs = mine.settings.get(name), other["facts"].get(name)
        if not _equal(ours, theirs):
            return f"{name} is {show(ours)} here and {show(theirs)} in the file"
    return None


def _parts(roles: Mapping[str, Weight]) -> list[str]:
    return sorted(part for role in roles for part in role.split("+"))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-6)  # 1e-5 in 32 bits is not 1e-5 in 64
    return (list(a) if isinstance(a, tuple) else a) == (list(b) if isinstance(b, tuple) else b)
