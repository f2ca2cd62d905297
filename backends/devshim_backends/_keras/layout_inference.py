"""The order in which a Keras model's features reach each layer, compared with the order in other frameworks.

Keras stores maps as (height, width, channels), and PyTorch, Gluon and Paddle as (channels, height, width). Flattened,
the same features are in a different order: the weights of the next Dense layer have equal shapes but other meanings.

Requirements of this module:

* The graph of Sequential and functional models is followed (`layout_graph`), which finds every map.
* If the output of a Dense layer is reshaped into a map, its weights are in that order too.
* For a layer with a custom ``call``, features are trusted if nothing in the model is a map, or if their number is
  what the previous layer makes. If that leaves something open, the layer is traced for its graph (`layout_symbolic`); a
  layer without a graph is unclear.
"""

from __future__ import annotations

from typing import Any

import keras

from devshim_backends._keras import layout_symbolic
from devshim_backends._keras.layout_features import (
    ALIGNED,
    PLAIN,
    UNCLEAR,
    FeatureOrders,
    Features,
    all_layers,
    is_spatial,
    sublayers,
)
from devshim_backends._keras.layout_graph import follow_graph, is_graph

__all__ = ["infer_orders"]


def infer_orders(model: Any) -> FeatureOrders:
    """Return the features of every layer of a model; the user's code is called only if they are unclear otherwise."""
    found = Inference(model, trace=False)
    return Inference(model, trace=True) if found.is_unclear() else found


class Inference(FeatureOrders):
    """The features of every layer of a model, inferred from its graph, or from the sizes of its layers.

    Args:
        model: The model.
        trace: True to trace layers with a ``call`` of the user's own for their graphs.
    """

    def __init__(self, model: Any, *, trace: bool) -> None:
        super().__init__()
        self._trace = trace
        self._sizes_seen: set[int | None] = set()
        self._has_maps = any(is_spatial(each) or _reshapes(each) for each in all_layers(model))
        graph = model if is_graph(model) else layout_symbolic.graph_of(model) if trace else None
        if graph is not None:
            self._infer_graph(graph, None, outermost=True)
        else:
            self._infer_by_sizes([model], None)
        self.close(has_convolutions=any(map(is_spatial, all_layers(model))))

    # ------------------------------------------------------------------ called by follow_graph
    def traced_graph(self, layer: Any, tensor: Any) -> Any | None:
        """Return the graph of a layer that is called with a tensor; None if it has none or must not be traced."""
        return layout_symbolic.graph_of(layer, tensor) if self._trace and any(sublayers(layer)) else None

    def add_call(self, layer: Any, features: Features, shape: tuple[int | None, ...]) -> None:
        """Record a call of a layer in a graph, and infer the features of its sublayers."""
        self.add_input(layer, features)
        if not _is_unit(layer):
            size = shape[-1] if shape and features.kind in ALIGNED else None
            self._infer_by_sizes(list(sublayers(layer)), size)

    # ------------------------------------------------------------------ graphs, and layers outside of graphs
    def _infer_graph(self, model: Any, size: int | None, *, outermost: bool = False) -> None:
        """Follow a model's graph; ``size`` is the number of features before a model inside another."""
        inputs = []
        for tensor in keras.tree.flatten(model.inputs):
            trusted = outermost or not self._has_maps or tensor.shape[-1] == size
            inputs.append(Features("candidate") if len(tensor.shape) > 2 else PLAIN if trusted else UNCLEAR)
        follow_graph(self, model, inputs)

    def _infer_by_sizes(self, layers: list[Any], size: int | None) -> int | None:
        """Process layers in the order of their creation, and trust features whose number fits.

        Args:
            layers: The layers.
            size: The number of features before them, or None if it is unknown.

        Returns:
            The number of features after them, or None.
        """
        vectors: list[Any] = []  # the layers since the last convolution whose outputs are vectors
        for layer in layers:
            if is_graph(layer):
                self._infer_graph(layer, size)
                size = layer.outputs[0].shape[-1]
            elif not _is_unit(layer) and any(sublayers(layer)):
                size = self._infer_by_sizes(list(sublayers(layer)), size)
            else:
                size = self._infer_layer(layer, size, vectors)
        return size

    def _infer_layer(self, layer: Any, size: int | None, vectors: list[Any]) -> int | None:
        """Process one layer without a graph, and return the number of features after it."""
        takes, makes = _sizes(layer)
        if is_spatial(layer):
            if takes not in (None, size):  # the earlier output may have been reshaped
                self.outputs.update({id(each): UNCLEAR for each in vectors})
            vectors.clear()
        elif vectors or takes != makes:
            vectors.append(layer)
        if self._has_maps and not is_spatial(layer) and not self._is_trusted(takes, makes, size):
            self.inputs[id(layer)] = UNCLEAR
            makes = None if takes == makes else makes  # a scale or shift does not change the order
        self._sizes_seen.add(makes)
        return makes if layer.variables else size

    def _is_trusted(self, takes: int | None, makes: int | None, size: int | None) -> bool:
        """Return True if a layer's inputs are the previous layer's output; a scale or shift may follow any layer."""
        return takes in (None, size) or (takes == makes and takes in self._sizes_seen)


def _is_unit(layer: Any) -> bool:
    """Return True for a layer that calls its sublayers in a known way."""
    return isinstance(layer, (keras.layers.RNN, keras.layers.Bidirectional))


def _reshapes(layer: Any) -> bool:
    return isinstance(layer, (keras.layers.Flatten, keras.layers.Reshape, keras.layers.Permute))


# ---------------------------------------------------------------------- sizes
def _sizes(layer: Any) -> tuple[int | None, int | None]:
    """Return the number of features that a layer with weights takes and makes; None if it is unknown."""
    if isinstance(layer, keras.layers.Bidirectional):
        takes, makes = _sizes(layer.forward_layer)
        return takes, None if makes is None else makes * (2 if layer.merge_mode == "concat" else 1)
    kernel: Any = getattr(getattr(layer, "cell", layer), "kernel", None)
    if isinstance(layer, (keras.layers.Dense, keras.layers.RNN)) and kernel is not None:
        return int(kernel.shape[0]), getattr(layer, "units", None)
    if isinstance(layer, keras.layers.Embedding):
        return None, layer.output_dim
    if is_spatial(layer) and layer.weights:
        return _convolution_sizes(layer, kernel)
    shapes = {tuple(each.shape) for each in getattr(layer, "weights", ())}
    if len(shapes) == 1 and len(shape := next(iter(shapes))) == 1:  # scales and shifts
        return int(shape[0]), int(shape[0])
    return None, None


def _convolution_sizes(layer: Any, kernel: Any) -> tuple[int | None, int | None]:
    if hasattr(layer, "depth_multiplier"):
        takes, times = map(int, getattr(layer, "depthwise_kernel", kernel).shape[-2:])
        return takes, getattr(layer, "filters", None) or takes * times
    is_transposed = "Transpose" in type(layer).__name__
    return int(kernel.shape[-1] if is_transposed else kernel.shape[-2] * layer.groups), layer.filters
