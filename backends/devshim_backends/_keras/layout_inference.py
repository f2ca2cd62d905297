"""The order in which a Keras model's features reach each layer, compared with the order in other frameworks.

Keras stores maps as (height, width, channels), and PyTorch, Gluon and Paddle as (channels, height, width). Flattened,
the same features are in a different order: the weights of the next Dense layer have equal shapes but other meanings.

Requirements this module answers:

* The graph of Sequential and functional models is followed (`layout_graph`), which finds every map.
* If the output of a Dense layer is reshaped into a map, its weights are in that order too.
* For a layer with a ``call`` of its own, features are trusted if nothing in the model is a map, or if their number is
  what the previous layer makes. If that leaves something open, the layer is traced for its graph (`layout_symbolic`); a
  layer without a graph is unclear.
"""

from __future__ import annotations

from typing import Any

import keras

from devshim_backends._keras import layout_symbolic
from devshim_backends._keras.layout_graph import (
    ALIGNED,
    PLAIN,
    UNCLEAR,
    Features,
    every,
    is_graph,
    is_spatial,
    parts,
    walk,
)

__all__ = ["Orders", "orders_of"]


def orders_of(model: Any) -> Orders:
    """Return the features of every layer of a model; the user's code is called only if they are unclear otherwise."""
    found = Orders(model, deep=False)
    return Orders(model, deep=True) if found.is_unclear() else found


class Orders:
    """The features of every layer of a model.

    Args:
        model: The model.
        deep: True to trace layers with a ``call`` of the user's own for their graphs.

    Attributes:
        into: Layer's id -> its input features, which describe only the last axis.
        made: Layer's id -> what its output becomes, if that is a map or is unclear.
    """

    def __init__(self, model: Any, *, deep: bool) -> None:
        self._deep = deep
        self.into: dict[int, Features] = {}
        self.made: dict[int, Features] = {}
        self._waiting: list[Features] = []
        self._sizes_seen: set[int | None] = set()
        self._calls: dict[int, int] = {}
        self._has_maps = any(is_spatial(each) or _reshapes(each) for each in every(model))
        graph = model if is_graph(model) else layout_symbolic.graph_of(model, every) if deep else None
        if graph is not None:
            self._graph(graph, None, outermost=True)
        else:
            self._made_alone([model], None)
        convolves = any(map(is_spatial, every(model)))
        for each in self._waiting:  # no later layer decided what they are
            if each.sizes or convolves:
                self._mark(each, UNCLEAR)

    def is_unclear(self) -> bool:
        """Return True if any layer's features are unclear."""
        return any(each.kind == "unclear" for found in (self.into, self.made) for each in found.values())

    # ------------------------------------------------------------------ called by layout_graph.walk
    def inside(self, layer: Any, tensor: Any | None) -> Any | None:
        """Return the graph of a layer that is called with a tensor; None if it has none or must not be traced."""
        return layout_symbolic.graph_of(layer, every, tensor) if self._deep and any(parts(layer)) else None

    def take(self, layer: Any) -> None:
        """Record that another layer takes a layer's output."""
        self._calls[id(layer)] = self._calls.get(id(layer), 0) + 1

    def note(self, layer: Any, taken: Features, shape: tuple[int | None, ...]) -> None:
        """Record that a layer is called with features."""
        known = self.into.setdefault(id(layer), taken)
        if (known.kind, known.sizes) != (taken.kind, taken.sizes):  # called twice
            self.into[id(layer)] = PLAIN if {known.kind, taken.kind} <= ALIGNED else UNCLEAR
        if not _is_unit(layer):
            self._made_alone(list(parts(layer)), shape[-1] if shape and taken.kind in ALIGNED else None)

    def may_become_map(self, sizes: tuple[int, ...], makers: tuple[Any, ...]) -> Features:
        """Return the features of a reshaped vector that may be a map, with the map's ``sizes`` if they are known."""
        features = Features("input", sizes, makers)
        if any(self._calls.get(id(layer), 0) > 1 for layer in makers):  # another layer takes the output too
            self._mark(features, UNCLEAR)
        else:
            self._waiting.append(features)
        return features

    def settle(self, features: Features) -> None:
        """Record that a reshaped tensor is not used as a map."""
        if features in self._waiting:
            self._waiting.remove(features)

    def become_map(self, features: Features, layer: Any) -> None:
        """Record that a convolution takes a tensor, which is therefore a map."""
        if features.sizes and not features.makers:  # no layer before it has weights that could be reordered
            self.into[id(layer)] = UNCLEAR
        if features in self._waiting:
            self._waiting.remove(features)
            self._mark(features, Features("row", features.sizes) if features.sizes else UNCLEAR)

    def _mark(self, features: Features, made: Features) -> None:
        for layer in features.makers:
            self.made[id(layer)] = made if id(layer) not in self.made else UNCLEAR

    # ------------------------------------------------------------------ layers outside of graphs
    def _graph(self, model: Any, size: int | None, *, outermost: bool = False) -> None:
        given = []
        for tensor in keras.tree.flatten(model.inputs):
            trusted = outermost or not self._has_maps or tensor.shape[-1] == size
            given.append(Features("input") if len(tensor.shape) > 2 else PLAIN if trusted else UNCLEAR)
        walk(self, model, given)

    def _made_alone(self, layers: list[Any], size: int | None) -> int | None:
        """Process layers in their order of creation; take and return the number of features, None if unknown."""
        vectors: list[Any] = []
        for layer in layers:
            if is_graph(layer):
                self._graph(layer, size)
                size = layer.outputs[0].shape[-1]
                continue
            takes, makes = _sizes(layer)
            if not _is_unit(layer) and any(parts(layer)):
                size = self._made_alone(list(parts(layer)), size)
                continue
            if is_spatial(layer):
                if takes not in (None, size):  # the earlier output may have been reshaped
                    self.made.update({id(each): UNCLEAR for each in vectors})
                vectors = []
            elif vectors or takes != makes:
                vectors.append(layer)
            if self._has_maps and not is_spatial(layer) and not self._is_trusted(takes, makes, size):
                self.into[id(layer)] = UNCLEAR
                makes = None if takes == makes else makes  # a scale or shift does not change the order
            self._sizes_seen.add(makes)
            size = makes if layer.variables else size
        return size

    def _is_trusted(self, takes: int | None, makes: int | None, size: int | None) -> bool:
        """Return True if a layer's inputs are the previous layer's output; a scale or shift may follow any layer."""
        return takes in (None, size) or (takes == makes and takes in self._sizes_seen)


def _is_unit(layer: Any) -> bool:
    """Return True for a layer that calls its sublayers in a known way."""
    return isinstance(layer, (keras.layers.RNN, keras.layers.Bidirectional))


def _reshapes(layer: Any) -> bool:
    return isinstance(layer, (keras.layers.Flatten, keras.layers.Reshape, keras.layers.Permute))


def _sizes(layer: Any) -> tuple[int | None, int | None]:
    """Return the number of features that a layer with weights takes and makes; None where it is unknown."""
    kernel: Any = getattr(getattr(layer, "cell", layer), "kernel", None)
    if isinstance(layer, keras.layers.Bidirectional):
        takes, makes = _sizes(layer.forward_layer)
        return takes, None if makes is None else makes * (2 if layer.merge_mode == "concat" else 1)
    if isinstance(layer, (keras.layers.Dense, keras.layers.RNN)) and kernel is not None:
        return int(kernel.shape[0]), getattr(layer, "units", None)
    if isinstance(layer, keras.layers.Embedding):
        return None, layer.output_dim
    if is_spatial(layer) and layer.weights:
        if hasattr(layer, "depth_multiplier"):
            takes, times = map(int, getattr(layer, "depthwise_kernel", kernel).shape[-2:])
            return takes, getattr(layer, "filters", None) or takes * times
        turned = "Transpose" in type(layer).__name__
        return int(kernel.shape[-1] if turned else kernel.shape[-2] * layer.groups), layer.filters
    shapes = {tuple(each.shape) for each in getattr(layer, "weights", ())}
    if len(shapes) == 1 and len(shape := next(iter(shapes))) == 1:  # scales and shifts
        return int(shape[0]), int(shape[0])
    return None, None
