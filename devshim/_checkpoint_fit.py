"""Which tensor of a file belongs to which leaf of a model or optimizer: by its name, or by the layer it is of.

Requirements this module answers:

* The same framework and the same names: leaf by leaf, dtypes and shapes equal, none missing and none left over.
* Another framework, or other names (Keras numbers its layers anew in each process): layer by layer, in order. Kinds,
  roles, shapes and facts must agree; axes are exchanged on the way (`devshim.wholes.Weight`).
* An optimizer's state means nothing to another framework's optimizer, whatever its class is called.
* Whatever does not fit is said before anything is read, and named: the leaf, or the layers on both sides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from devshim._show import show, type_name
from devshim.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devshim.backend import Backend
    from devshim.wholes import Leaf

__all__ = ["KEPT", "Source", "StoredTensor", "StoredWhole", "fit"]

KEPT = ("parameter", "buffer", "state")
"""The kinds of leaves that are saved."""


class StoredTensor:
    """A tensor of a file. No dataclass: it stands in trees, as a leaf."""

    __slots__ = ("crc32", "dtype", "name", "shape")

    def __init__(self, name: str, dtype: str, shape: tuple[int, ...], crc32: int | None) -> None:
        self.name, self.dtype, self.shape, self.crc32 = name, dtype, shape, crc32


class StoredWhole:
    """A model or optimizer of a file: its leaves by path, its layers, and what else the framework needs."""

    __slots__ = ("cls", "facts", "framework", "layers", "leaves", "title")

    def __init__(
        self,
        framework: str,
        title: str,
        cls: str,
        leaves: Mapping[str, tuple[str, StoredTensor]],
        layers: Sequence[Mapping[str, Any]],
        facts: Any,
    ) -> None:
        self.framework, self.title, self.cls = framework, title, cls
        self.leaves, self.layers, self.facts = leaves, layers, facts

    @property
    def is_model(self) -> bool:
        """Whether it holds weights, which other frameworks can use, too."""
        return bool(self.layers) or any(kind != "state" for kind, _ in self.leaves.values())


@dataclass(frozen=True)
class Source:
    """Where a leaf's values come from: a tensor of the file, and its axes in the leaf's order where that differs."""

    tensor: StoredTensor
    axes: tuple[int, ...] | None = None

    def shaped(self, array: np.ndarray) -> np.ndarray:
        """Return the values in the leaf's order of axes."""
        return array if self.axes is None else array.transpose(self.axes)


def fit(backend: Backend, whole: Any, stored: StoredWhole, place: str) -> dict[str, Source]:
    """Return for each leaf of a model or optimizer, by its path, where its values come from.

    Raises:
        CheckpointError: They do not fit.
    """
    leaves = {leaf.path: leaf for leaf in backend.leaves(whole) if leaf.kind in KEPT}
    same = stored.framework == backend.name
    what = f"the {type_name(whole)}{f' at {place}' if place else ''}"
    if not same and stored.framework and not stored.is_model:
        raise CheckpointError(
            f"the file has the state of an optimizer of {stored.title} ({stored.cls}), and {what} is one of "
            f"{backend.title}: what the numbers mean differs from framework to framework",
            "load the model alone: pass None in the optimizer's place of `into`, such as into=[model, None]",
        )
    if leaves.keys() == stored.leaves.keys():
        found = {path: Source(tensor) for path, (_, tensor) in stored.leaves.items()}
    elif stored.layers and any(leaf.kind == "parameter" for leaf in leaves.values()):
        try:
            found = _by_layers(backend, whole, stored, what, same)
            _require_covered(leaves, found, what)
        except CheckpointError as error:
            if same:
                raise _other_names(leaves, stored, what) from error
            raise
    else:
        raise _other_names(leaves, stored, what)
    for path, source in found.items():
        _check(backend, leaves[path], source, what)
    _check_ties(leaves, found, what)
    return found


def _other_names(leaves: Mapping[str, Any], stored: StoredWhole, what: str) -> CheckpointError:
    missing = [path for path in leaves if path not in stored.leaves]
    more = [path for path in stored.leaves if path not in leaves]
    told = [f"the file lacks {_listed(missing)}" if missing else "", f"it has {_listed(more)}, too" if more else ""]
    unbuilt = "" if leaves else "; it holds nothing yet: a model that is not built has no weights to load into"
    return CheckpointError(
        f"the file does not fit {what}: {' and '.join(filter(None, told))}{unbuilt}",
        "load it into what it was saved from, or without `into` to get its tensors by their names",
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(show, names[:3])) + more


def _check(backend: Backend, leaf: Leaf, source: Source, what: str) -> None:
    x = leaf.read()
    shape = source.tensor.shape if source.axes is None else tuple(source.tensor.shape[axis] for axis in source.axes)
    have = (backend.dtype_name(x), backend.shape(x))
    if have != (source.tensor.dtype, shape):
        raise CheckpointError(
            f"the file does not fit {what}: its {show(leaf.path)} is {have[0]} of shape {have[1]}, and in the file "
            f"{show(source.tensor.name)} is {source.tensor.dtype} of shape {source.tensor.shape}",
            "load it into an equal model; convert that one's dtype afterwards",
        )


def _check_ties(leaves: Mapping[str, Leaf], found: Mapping[str, Source], what: str) -> None:
    """Refuse two tensors for one parameter."""
    owners: dict[tuple[int, str], tuple[str, Source]] = {}
    for path, source in found.items():
        first, other = owners.setdefault((id(leaves[path].owner), leaves[path].kind), (path, source))
        if other.tensor is not source.tensor:
            raise CheckpointError(
                f"the file does not fit {what}: {show(first)} and {show(path)} are one there, and two in the file",
                "load it into a model in which they are two",
            )


def _require_covered(leaves: Mapping[str, Leaf], found: Mapping[str, Source], what: str) -> None:
    lacking = [path for path, leaf in leaves.items() if leaf.kind == "parameter" and path not in found]
    if lacking:
        raise CheckpointError(
            f"the file does not fit {what}: {_listed(lacking)} of it belong to no layer known on both sides",
            "load the file without `into`, and set those weights by hand",
        )


# ---------------------------------------------------------------------- layer by layer
def _by_layers(backend: Backend, whole: Any, stored: StoredWhole, what: str, same: bool) -> dict[str, Source]:
    mine = [layer for layer in backend.layers(whole) if layer.weights]
    theirs = [layer for layer in stored.layers if layer["weights"]]
    told = f"the file's {len(theirs)} layers are {_layers(theirs)}; the model's {len(mine)} are " + _layers(
        [{"kind": layer.kind, "path": layer.path} for layer in mine]
    )
    if len(mine) != len(theirs):
        raise CheckpointError(f"the file does not fit {what}: {told}", "load it into a model of the same layers")
    found: dict[str, Source] = {}
    for ours, other in zip(mine, theirs, strict=True):
        why = _unlike(ours, other, same)
        for role, weight in ours.weights.items() if why is None else ():
            path, axes = other["weights"][role]
            tensor = stored.leaves[path][1]
            if weight.axes is not None and len(weight.axes) != len(tensor.shape):
                why = f"its {role} has {len(weight.axes)} axes, and in the file {len(tensor.shape)}"
                break
            found[weight.path] = Source(tensor, _axes(axes, weight.axes))
        if why is not None:
            raise CheckpointError(
                f"the file does not fit {what}: its {show(ours.path)} ({ours.kind}) would get {show(other['path'])} "
                f"({show(other['kind'])}) of {stored.title}, and {why}; {told}",
                "load it into a model of the same layers in the same order",
            )
    return found


def _layers(layers: Sequence[Mapping[str, Any]]) -> str:
    more = f" and {len(layers) - 12} more" if len(layers) > 12 else ""
    return ", ".join(f"{show(each['path'])} ({str(each['kind'])[:20]})" for each in layers[:12]) + more


def _unlike(mine: Any, other: Mapping[str, Any], same: bool) -> str | None:
    """Why two layers are not the same, or None."""
    if mine.kind != other["kind"]:
        return "they are of different kinds"
    if mine.kind == "other" and not same:
        return "devshim knows no such layer on both frameworks"
    if mine.weights.keys() != other["weights"].keys():
        return f"one has {', '.join(sorted(mine.weights))}, the other {', '.join(sorted(other['weights']))}"
    for name in sorted({*mine.facts, *other["facts"]}):
        ours, theirs = mine.facts.get(name), other["facts"].get(name)
        if not _equal(ours, theirs):
            return f"{name} is {show(ours)} here and {show(theirs)} in the file"
    return None


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-6)  # 1e-5 in 32 bits is not 1e-5 in 64
    return (list(a) if isinstance(a, tuple) else a) == (list(b) if isinstance(b, tuple) else b)


def _axes(theirs: Sequence[int] | None, mine: Sequence[int] | None) -> tuple[int, ...] | None:
    """The axes of their tensor in the order in which mine has them; both are said as orders of the canonical axes."""
    if theirs is None and mine is None:
        return None
    order: Sequence[int] = range(len(theirs or mine or ()))
    back = np.argsort(order if theirs is None else list(theirs))
    return tuple(int(back[axis]) for axis in (order if mine is None else mine))
