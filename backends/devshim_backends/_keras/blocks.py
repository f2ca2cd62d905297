"""The structure of a Keras model: the blocks that should stay on one device, and the layer that each weight is in.

Requirements of this module:

* A chain is cut between its elements: Sequential and functional models are opened. A layer with a class of the user's
  own is one block, which contains the blocks inside it; Keras's own layers, including recurrent cells and attention,
  are never cut.
* Weights are identified by their roles (`layer_specs`), with the same key paths as in `leaves`. A layer of an unknown
  class, or with more weights than its class makes, has no kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.contract.blocks import whole_classes
from devshim.contract.models import Block, Layer, Weight
from devshim_backends._keras.traversal import is_layer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from devshim.contract.backend import Backend
    from devshim_backends._keras.layout_features import FeatureOrders
    from devshim_backends._keras.traversal import Contents

__all__ = ["blocks_of", "layers_of"]


class Paths:
    """The key path of each weight of a model, found by the object with its data."""

    def __init__(self, backend: Backend, contents: Contents, model: Any) -> None:
        self._contents = contents
        self._found: dict[int, str] = {}
        for leaf in backend.leaves(model):
            if leaf.kind in ("parameter", "buffer"):
                self._found.setdefault(id(leaf.owner), leaf.path)

    def all(self) -> tuple[str, ...]:
        """Return every path."""
        return tuple(self._found.values())

    def of(self, variables: Iterable[Any]) -> list[str]:
        """Return the key paths of Keras variables, without those that have no value yet."""
        owners = (id(self._contents.owner(variable)) for variable in variables)
        return list(dict.fromkeys(self._found[owner] for owner in owners if owner in self._found))


def blocks_of(backend: Backend, contents: Contents, model: Any) -> list[Block]:
    """Return the parts of a Keras model or a module; see `devshim.contract.models.ModelBackend.blocks`."""
    paths = Paths(backend, contents, model)
    if not is_layer(model):
        return [Block("", paths.all())] if contents.is_module(model) and paths.all() else []
    from devshim_backends._keras.layout_features import all_layers

    kept = whole_classes(all_layers(model))
    return list(_chain_blocks(model, paths, kept)) if _can_be_cut(model) else [Block("", paths.all())]


def layers_of(backend: Backend, contents: Contents, model: Any) -> list[Layer]:
    """Return the layers with weights of a Keras model or a module; see `ModelBackend.layers`."""
    paths = Paths(backend, contents, model)
    if not is_layer(model):
        return [Layer("other", "", {path: Weight(path) for path in paths.all()})] if paths.all() else []
    # This imports Keras, which a program with a layer has imported.
    from devshim_backends._keras.layout_inference import infer_orders

    return list(_walk_layers(model, paths, infer_orders(model), set()))


# ---------------------------------------------------------------------- blocks
def _chain_blocks(layer: Any, paths: Paths, kept: frozenset[str]) -> Iterator[Block]:
    """Yield the blocks of a model: its own weights first, then its layers, with chains opened."""
    from devshim_backends._keras.layout_features import sublayers
    from devshim_backends._keras.layout_graph import is_graph

    own = tuple(paths.of(_own_variables(layer)))
    if own:
        yield Block(own[0], own)
    for each in sublayers(layer):
        whole = type(each).__name__ in kept
        if is_graph(each) and not whole:
            yield from _chain_blocks(each, paths, kept)
            continue
        leaves = tuple(paths.of(each.variables))
        if leaves:
            inside = tuple(_chain_blocks(each, paths, kept)) if _can_be_cut(each) else ()
            yield Block.of(_common_prefix(leaves), leaves, inside, whole)


def _own_variables(layer: Any) -> list[Any]:
    """Return a layer's variables that are not in its sublayers."""
    return [*getattr(layer, "_trainable_variables", ()), *getattr(layer, "_non_trainable_variables", ())]


def _can_be_cut(layer: Any) -> bool:
    """Return True if a layer calls its sublayers as a user would, so that they can be on other devices."""
    from devshim_backends._keras.layout_features import sublayers
    from devshim_backends._keras.layout_graph import is_graph

    return any(sublayers(layer)) and (is_graph(layer) or not type(layer).__module__.startswith("keras."))


def _common_prefix(paths: tuple[str, ...]) -> str:
    """Return the prefix of the key paths of a layer's weights."""
    split = [path.split(".")[:-1] for path in paths]
    common = [names[0] for names in zip(*split, strict=False) if len(set(names)) == 1]
    return ".".join(common)


# ---------------------------------------------------------------------- layers
def _walk_layers(layer: Any, paths: Paths, orders: FeatureOrders, seen: set[int]) -> Iterator[Layer]:
    """Yield a layer and its sublayers, each once."""
    from devshim_backends._keras import layer_specs
    from devshim_backends._keras.layout_features import sublayers

    if id(layer) in seen:
        return
    seen.add(id(layer))
    path_of = {id(variable): path for variable in layer.weights for path in paths.of([variable])}
    described = layer_specs.describe_layer(layer, path_of, orders)
    if described is not None:
        yield from described
        return
    own = paths.of(_own_variables(layer))
    if own:
        yield Layer("other", _common_prefix(tuple(own)), {path.rpartition(".")[2]: Weight(path) for path in own})
    for each in sublayers(layer):
        yield from _walk_layers(each, paths, orders, seen)
