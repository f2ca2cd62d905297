"""The layers of a flax NNX module in canonical terms: their kinds, and the roles and layouts of their weights.

Requirements of this module:

* Layers are listed in the order in which the module got them, as on the other frameworks. Flax sorts the attributes
  of a module by name in `nnx.jit`; where it keeps no other order, the weights are unclear.
* Flax stores the axis of inputs before that of outputs, and the window of a convolution before both.
* Flax's maps have their channels last. A flattened map is in another order than on frameworks with channels first;
  `nnx_orders` finds where that is so, and a weight whose order it cannot find is unclear.
* A layer that differs from those that its class makes (a subclass with its own call, a mask) gets no kind.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any

from devshim.contract.models import Layer, Weight
from devshim_backends._jax.models.internals.nnx import is_nnx
from devshim_backends._jax.models.internals.nnx_orders import PLAIN, flattened_orders

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["layers_of"]

_UNCLEAR = (
    "its features may be those of a flattened map, which flax stores in another order than other frameworks, and the "
    "order cannot be found by calling the module with one image"
)
_SORTED = (
    "flax has sorted the layers by name, in a dict or in a module whose attributes it does not list in order, "
    "so the order of their creation is lost"
)
_KERNEL = {"kernel": "weight", "bias": "bias"}
_SCALE = {"scale": "weight", "bias": "bias"}
_KINDS: dict[str, tuple[str, Mapping[str, str], Mapping[str, str]]] = {
    "Linear": ("linear", _KERNEL, {}),
    "Conv": ("conv", _KERNEL, {"groups": "feature_group_count"}),
    "BatchNorm": ("batch_norm", {**_SCALE, "mean": "mean", "var": "variance"}, {"epsilon": "epsilon"}),
    "LayerNorm": ("layer_norm", _SCALE, {"epsilon": "epsilon"}),
    "GroupNorm": ("group_norm", _SCALE, {"epsilon": "epsilon", "groups": "num_groups"}),
    "Embed": ("embedding", {"embedding": "weight"}, {}),
}
"""Class -> the kind, the roles of its variables, and the attributes of its settings."""
_USUAL = {"mask": None, "axis": -1, "reduction_axes": -1, "feature_axes": -1}
"""The values of attributes with which a layer computes what other frameworks compute."""
_ORDERED = ("linear", "batch_norm", "layer_norm")
"""The kinds of layers that may take a flattened map."""


def layers_of(model: Any, path_of: Mapping[int, str]) -> list[Layer]:
    """Return the layers with weights of a module.

    Args:
        model: The module.
        path_of: Id of a variable -> its key path, for parameters and buffers.
    """
    modules = [module for module in _modules(model, set()) if _own_variables(module, path_of)]
    kinds = {id(module): _classify(module) for module in modules}
    orders = flattened_orders(model) if _may_flatten(modules, kinds) else None
    layers = [_make_layer(module, kinds[id(module)], _own_variables(module, path_of), orders) for module in modules]
    lost = _find_unordered(model, path_of)
    return [
        _mark_unclear(layer) if id(module) in lost else layer for module, layer in zip(modules, layers, strict=True)
    ]


def _modules(node: Any, seen: set[int]) -> Iterator[Any]:
    """Yield an NNX object and those in its attributes, lists and dicts, each once, in the order of their creation."""
    if _is_object(node):
        if id(node) in seen:
            return
        seen.add(id(node))
        yield node
    for each in _parts(node).values():
        yield from _modules(each, seen)


def _is_object(node: Any) -> bool:
    return is_nnx(type(node))


def _parts(node: Any) -> dict[Any, Any]:
    """Return the attributes or elements of an NNX object, list or dict, in the order of their creation if it is known.

    `nnx.jit`, `nnx.merge` and `nnx.clone` fill an object again, sorted by name, but its list of names stays in order.
    """
    if not _is_object(node):
        return node if isinstance(node, dict) else dict(enumerate(node)) if isinstance(node, (list, tuple)) else {}
    own = dict(vars(node))
    names = dict.fromkeys((*_names_in_order(node), *own)) if _is_sorted(node) else own
    return {name: own[name] for name in names if name in own}


def _is_sorted(node: Any) -> bool:
    """Return True if flax has filled an object again: a new one has its state before its list of names."""
    marks = [name for name in vars(node) if name.startswith(("_pytree__", "_object__"))]
    return len(marks) > 1 and marks == sorted(marks)


def _names_in_order(node: Any) -> list[str]:
    """Return the names of the attributes whose order of creation flax keeps.

    These are none with ``pytree=False``, and before flax 0.12, whose list is a set. Names that the class lists are in
    the order of their annotations.
    """
    names = getattr(node, "_pytree__nodes", ())
    of_class = () if is_dataclass(node) else getattr(type(node), "_pytree__nodes", ())
    return [name for name in names if name not in of_class] if isinstance(names, Mapping) else []


def _find_unordered(model: Any, path_of: Mapping[int, str]) -> set[int]:
    """Return the ids of the modules whose order of creation is lost: flax has sorted the attributes or dict with them.

    Args:
        model: The module.
        path_of: Id of a variable -> its key path, for parameters and buffers.
    """
    found: set[int] = set()
    for node in filter(_is_sorted, _modules(model, set())):
        parts = _parts(node)
        unlisted = parts.keys() - set(_names_in_order(node))
        for group, names in ((parts, unlisted), *((each, each.keys()) for each in _dicts(list(parts.values())))):
            if any(_is_nested(group[name]) for name in names):
                below = [
                    [id(x) for x in _modules(part, set()) if _own_variables(x, path_of)] for part in group.values()
                ]
                is_lost = any(ids for name, ids in zip(group, below, strict=True) if name in names)
                found.update(*below if is_lost and sum(map(bool, below)) > 1 else ())
    return found


def _is_nested(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict)) or _is_object(value)


def _dicts(value: Any) -> Iterator[dict[Any, Any]]:
    """Yield the dicts in an attribute, but not those of other objects."""
    if isinstance(value, dict):
        yield value
    for each in () if _is_object(value) else _parts(value).values():
        yield from _dicts(each)


def _own_variables(module: Any, path_of: Mapping[int, str]) -> dict[str, str]:
    """Return the names and key paths of a module's own variables."""
    return {name: path_of[id(value)] for name, value in vars(module).items() if id(value) in path_of}


def _classify(module: Any) -> tuple[str, Mapping[str, str], dict[str, Any]]:
    """Return the kind, the roles and the settings of a module; the kind is "other" if no other framework has it."""
    nnx = sys.modules["flax.nnx"]
    for name, (kind, roles, settings) in _KINDS.items():
        cls = getattr(nnx, name)
        if isinstance(module, cls) and type(module).__call__ is cls.__call__:
            reduces = {"reduction_axes": None} if kind == "group_norm" else {}
            if all(_is_usual(getattr(module, each, usual), usual) for each, usual in {**_USUAL, **reduces}.items()):
                return kind, roles, {word: getattr(module, each) for word, each in settings.items()}
    return "other", {}, {}


def _is_usual(value: Any, usual: Any) -> bool:
    """Return True if a setting has its usual value; an array is not equal to None, but compares by element."""
    return value is None if usual is None else bool(value == usual)


def _may_flatten(modules: list[Any], kinds: Mapping[int, tuple[str, Any, Any]]) -> bool:
    """Return True if the module has convolutions, and layers that may take their flattened maps."""
    found = {kinds[id(module)][0] for module in modules}
    other_maps = any("Conv" in type(module).__name__ for module in modules)
    return "linear" in found and ("conv" in found or other_maps)


def _make_layer(
    module: Any, kind: tuple[str, Mapping[str, str], dict[str, Any]], own: dict[str, str], orders: Any
) -> Layer:
    name, roles, settings = kind
    path = next(iter(own.values())).rpartition(".")[0]
    if name == "other" or not set(own) <= roles.keys():
        return Layer("other", path, {each: Weight(at) for each, at in own.items()})
    order = orders.get(id(module)) if orders is not None and name in _ORDERED else PLAIN
    return Layer(
        name, path, {roles[each]: _weight(module, name, each, at, order) for each, at in own.items()}, settings
    )


def _mark_unclear(layer: Layer) -> Layer:
    """Return a layer whose place among the others is not known."""
    weights = {role: replace(weight, unclear=weight.unclear or _SORTED) for role, weight in layer.weights.items()}
    return replace(layer, weights=weights)


def _weight(module: Any, kind: str, name: str, path: str, order: tuple[int, int] | None) -> Weight:
    """Return a variable's layout; ``order`` has the channels and positions of a flattened map, or is None."""
    if name == "kernel":
        rank = len(getattr(module, "kernel_size", ()))
        if kind == "conv":
            return Weight(path, (*range(2, rank + 2), 1, 0))
        if order is None:
            return Weight(path, (1, 0), unclear=_UNCLEAR)
        return Weight(path, (1, 0)) if order == PLAIN else Weight(path, (2, 1, 0), ((module.out_features,), order))
    if kind not in ("batch_norm", "layer_norm"):
        return Weight(path, unclear="" if order is not None else _UNCLEAR)
    if order is None:
        return Weight(path, unclear=_UNCLEAR)
    return Weight(path) if order == PLAIN else Weight(path, (1, 0), (order,))
