"""The parts of a Keras model: what had better stay together on one device, and which weight belongs to which layer.

Requirements this module answers:

* A chain is cut between its links: Sequential and functional models are opened. A layer of the user's own is one block,
  with what it is made of inside; Keras's own layers, recurrent cells and attention among them, are never cut.
* Weights are told by their roles (`kinds`), at the very paths that `leaves` gives them; those of a class that is
  unknown, or that have more to them than their class makes, are of no kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.backend import Backend
from devshim.wholes import Block, Layer, Weight
from devshim_backends._tensorflow.contents import is_layer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devshim_backends._tensorflow.orders import Orders

    Paths = dict[int, str]


class TensorflowLayers(Backend):
    """The room of layers."""

    def blocks(self, model: Any) -> list[Block]:
        paths = _paths(self, model)
        if not is_layer(model):
            leaves = tuple(paths.values())
            return [Block("", leaves)] if isinstance(model, tf.Module) and leaves else []
        return list(_opened(model, paths)) if _can_be_cut(model) else [Block("", tuple(paths.values()))]

    def layers(self, model: Any) -> list[Layer]:
        paths = _paths(self, model)
        if not is_layer(model):
            return [Layer("other", "", {path: Weight(path) for path in paths.values()})] if paths else []
        from devshim_backends._tensorflow.orders import orders_of  # imports Keras, as whoever has a layer has

        return list(_layers(model, paths, orders_of(model), set()))


def _paths(backend: Backend, model: Any) -> Paths:
    """The path of each weight, by the id of whose data it is: TensorFlow's variable."""
    found: Paths = {}
    for leaf in backend.leaves(model):
        if leaf.kind in ("parameter", "buffer"):
            found.setdefault(id(leaf.owner), leaf.path)
    return found


def _named(variables: Iterable[Any], paths: Paths) -> list[str]:
    """The paths of Keras's variables; those without values have none."""
    owners = (getattr(variable, "_value", variable) for variable in variables)
    return list(dict.fromkeys(paths[id(owner)] for owner in owners if id(owner) in paths))


# ---------------------------------------------------------------------- blocks
def _opened(layer: Any, paths: Paths) -> Iterator[Block]:
    """The blocks a model is made of: its own weights first, then its layers, chains among them opened."""
    from devshim_backends._tensorflow.following import is_graph, parts

    own = tuple(_named(_own(layer), paths))
    if own:
        yield Block(own[0], own)
    for each in parts(layer):
        if is_graph(each):
            yield from _opened(each, paths)
            continue
        leaves = tuple(_named(each.variables, paths))
        if leaves:
            inside = tuple(_opened(each, paths)) if _can_be_cut(each) else ()
            yield Block.of(_prefix(leaves), leaves, inside)


def _own(layer: Any) -> list[Any]:
    """A layer's variables that are in no layer it is made of."""
    return [*getattr(layer, "_trainable_variables", ()), *getattr(layer, "_non_trainable_variables", ())]


def _can_be_cut(layer: Any) -> bool:
    """Whether a layer calls the layers it is made of as a user would, so that they can be on other devices."""
    from devshim_backends._tensorflow.following import is_graph, parts

    return any(parts(layer)) and (is_graph(layer) or not type(layer).__module__.startswith("keras."))


def _prefix(paths: tuple[str, ...]) -> str:
    """What the paths of a layer's weights begin with."""
    split = [path.split(".")[:-1] for path in paths]
    common = [names[0] for names in zip(*split, strict=False) if len(set(names)) == 1]
    return ".".join(common)


# ---------------------------------------------------------------------- layers
def _layers(layer: Any, paths: Paths, orders: Orders, seen: set[int]) -> Iterator[Layer]:
    """A layer's own, and those it is made of; one that is in two places is told once."""
    from devshim_backends._tensorflow import kinds
    from devshim_backends._tensorflow.following import parts

    if id(layer) in seen:
        return
    seen.add(id(layer))
    path_of = {id(variable): path for variable in layer.weights for path in _named([variable], paths)}
    told = kinds.told(layer, path_of, orders)
    if told is not None:
        yield from told
        return
    own = _named(_own(layer), paths)
    if own:
        yield Layer("other", _prefix(tuple(own)), {path.rpartition(".")[2]: Weight(path) for path in own})
    for each in parts(layer):
        yield from _layers(each, paths, orders, seen)
