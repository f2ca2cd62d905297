"""The graph of a Keras model, along which the order of features is followed from layer to layer.

Keras stores the calls of a Sequential or functional model as nodes. `follow_graph` visits them in the order of the
calls: from the features of a layer's inputs (`layout_features`), the rules of this module give those of its output.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import keras

from devshim_backends._keras.layout_features import (
    ALIGNED,
    PLAIN,
    UNCLEAR,
    Features,
    all_layers,
    is_from,
    is_spatial,
    sublayers,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim_backends._keras.layout_inference import Inference

    Shape = tuple[Any, ...]

__all__ = ["follow_graph", "is_graph"]

_SHAPELESS = ("activations", "regularization", "normalization", "merging", "core.identity", "core.masking", "rescaling")
_ELEMENTWISE = {
    *("Add", "Subtract", "Multiply", "Divide", "TrueDivide", "Maximum", "Minimum", "Negative", "Relu", "Relu6", "Gelu"),
    *("Silu", "Sigmoid", "Tanh", "Elu", "Selu", "LeakyRelu", "HardSigmoid", "HardSwish", "HardSilu", "Softplus", "Exp"),
}
"""Class names of Keras operators in a graph that leave every feature at its position."""


def is_graph(layer: Any) -> bool:
    """Return True for a model whose graph is known."""
    if isinstance(layer, keras.Sequential):
        known = getattr(layer, "_functional", None) is not None
    else:
        known = isinstance(layer, keras.Model) and hasattr(layer, "_nodes_by_depth")
    caller = next(cls for cls in type(layer).__mro__ if "call" in vars(cls))
    return known and caller.__module__.startswith("keras.")


def follow_graph(orders: Inference, graph: Any, inputs: Sequence[Features]) -> list[Features]:
    """Return the features of a graph's outputs for these inputs, and record every layer in it."""
    function = graph._functional if isinstance(graph, keras.Sequential) else graph
    levels = function._nodes_by_depth
    nodes = [node for depth in sorted(levels, reverse=True) for node in levels[depth]]
    for tensor in (tensor for node in nodes for tensor in node.input_tensors):
        orders.add_consumer(tensor._keras_history.operation)
    found = {id(tensor): each for tensor, each in zip(keras.tree.flatten(function.inputs), inputs, strict=False)}
    for node in nodes:
        if not node.is_input:
            taken = [found.get(id(tensor), UNCLEAR) for tensor in node.input_tensors]
            found.update(zip(map(id, node.outputs), _follow_node(orders, node, taken), strict=False))
    return [found.get(id(tensor), UNCLEAR) for tensor in keras.tree.flatten(function.outputs)]


def _follow_node(orders: Inference, node: Any, inputs: list[Features]) -> list[Features]:
    """Return the features after one call."""
    layer = node.operation
    if is_graph(layer):
        return follow_graph(orders, layer, inputs)
    graph = orders.traced_graph(layer, node.input_tensors[0]) if len(inputs) == 1 else None
    if graph is not None:
        return follow_graph(orders, graph, inputs)
    in_shape = tuple(node.input_tensors[0].shape[1:]) if inputs else ()
    out_shape = tuple(node.outputs[0].shape[1:])
    orders.add_call(layer, inputs[0] if inputs else PLAIN, in_shape)
    return [_output(orders, layer, inputs, in_shape, out_shape)] * len(node.outputs)


# ---------------------------------------------------------------------- rules
def _output(orders: Inference, layer: Any, inputs: list[Features], in_shape: Shape, out_shape: Shape) -> Features:
    """Return the features that a layer makes of its inputs."""
    features = inputs[0] if inputs else PLAIN
    if is_spatial(layer):
        return _after_spatial(orders, layer, features, out_shape)
    if isinstance(layer, keras.layers.Flatten):
        orders.reject_map(features)
        return _after_flatten(features, in_shape, channels_first=layer.data_format == "channels_first")
    if type(layer).__name__ == "Reshape":
        return _after_reshape(orders, features, in_shape, out_shape)
    if isinstance(layer, keras.layers.Concatenate):
        are_maps = {each.kind for each in inputs} == {"map"} and layer.axis in (-1, len(out_shape))
        return Features("map") if are_maps else _after_unknown(orders, layer, inputs, in_shape, out_shape)
    if isinstance(layer, (keras.layers.BatchNormalization, keras.layers.GroupNormalization)) and len(out_shape) > 1:
        return _after_normalization(orders, layer, features, out_shape)
    if (is_from(layer, _SHAPELESS) and not any(sublayers(layer))) or type(layer).__name__ in _ELEMENTWISE:
        return _after_elementwise(inputs, layer, out_shape)
    if isinstance(layer, (keras.layers.RNN, keras.layers.Bidirectional, keras.layers.Embedding)):
        orders.reject_map(features)
        return Features("plain", makers=(layer,))
    if isinstance(layer, keras.layers.Dense):
        on_map = features.kind in ("map", "mixed") or (features.kind == "candidate" and len(out_shape) > 2)
        return Features("mixed") if on_map and len(out_shape) > 1 else Features("plain", makers=(layer,))
    return _after_unknown(orders, layer, inputs, in_shape, out_shape)


def _after_spatial(orders: Inference, layer: Any, features: Features, out_shape: Shape) -> Features:
    """Return the features after a convolution or pooling."""
    channels_last = getattr(layer, "data_format", "channels_last") == "channels_last"
    if features.kind == "candidate" and channels_last:
        orders.confirm_map(features, layer)
    elif features.kind == "candidate":
        orders.reject_map(features)
    elif features.kind not in ALIGNED:
        return UNCLEAR
    if len(out_shape) < 2:  # pooled to one vector of channels
        return PLAIN
    return Features("map") if channels_last else PLAIN


def _after_flatten(features: Features, in_shape: Shape, *, channels_first: bool) -> Features:
    """Return the features after all axes except the batch's are flattened into one."""
    if len(in_shape) < 2:
        return features
    channels, *spatial = in_shape if channels_first else (in_shape[-1], *in_shape[:-1])
    if channels == 1 or all(size == 1 for size in spatial):
        return PLAIN if features.kind in ALIGNED else features
    if None in in_shape or features.kind in ("mixed", "unclear", "flattened"):
        return UNCLEAR
    flattened = Features("flattened", (channels, *spatial))
    if channels_first:
        return flattened if features.kind != "map" else UNCLEAR
    if features.kind == "map":
        return flattened
    has_known_order = features.kind == "plain" or features.makers or len(in_shape) < 3
    return features if has_known_order else UNCLEAR  # pixels in an unknown order


def _after_reshape(orders: Inference, features: Features, in_shape: Shape, out_shape: Shape) -> Features:
    if in_shape == out_shape:
        return features
    if len(out_shape) == 1:
        orders.reject_map(features)
        return _after_flatten(features, in_shape, channels_first=False)
    if features.kind == "flattened":
        return Features("map") if out_shape == (*features.sizes[1:], features.sizes[0]) else UNCLEAR
    if features.kind not in ALIGNED:
        return UNCLEAR
    if len(in_shape) > 1 and in_shape[-1] == out_shape[-1]:
        return features if features.kind == "plain" else Features("mixed")
    if features.kind != "plain" and len(in_shape) > 1:
        return UNCLEAR
    if out_shape[-1] == 1 or all(size == 1 for size in out_shape[:-1]):
        return Features("candidate")
    return orders.propose_map((out_shape[-1], *out_shape[:-1]), features.makers)


def _after_normalization(orders: Inference, layer: Any, features: Features, out_shape: Shape) -> Features:
    """Return the features after a normalization of channels: its input is a map, or becomes one, unless it is plain."""
    if layer.axis not in (-1, len(out_shape)) or features.kind not in ("candidate", "plain"):
        return features
    if features.kind == "plain" or len(out_shape) < 3:  # a sequence, whose axes others swap, and perhaps swap back
        return Features("mixed")
    orders.confirm_map(features, layer)
    return Features("map")


def _after_elementwise(inputs: list[Features], layer: Any, out_shape: Shape) -> Features:
    """Return the features after a layer that leaves every feature in place, with one input or several of one shape."""
    kinds = {each.kind for each in inputs}
    if len(inputs) == 1 and inputs[0].kind != "plain":
        return inputs[0]
    makers = tuple(maker for each in inputs for maker in each.makers)
    if len(kinds) > 1 and not kinds <= {"map", "candidate"}:
        if not kinds <= ALIGNED:
            return UNCLEAR
        return Features("mixed") if len(out_shape) > 1 else Features("plain", makers=makers)
    if len({each.sizes for each in inputs}) > 1 and kinds != {"map", "candidate"}:
        return UNCLEAR
    first = next((each for each in inputs if each.kind == "map"), inputs[0])
    return replace(first, makers=(*makers, layer) if first.kind == "plain" else makers)


def _after_unknown(
    orders: Inference, layer: Any, inputs: list[Features], in_shape: Shape, out_shape: Shape
) -> Features:
    """Return the features after an unknown layer: from plain features it makes plain ones on every framework."""
    if all(each.kind == "plain" for each in inputs):
        makers = tuple(maker for each in inputs for maker in each.makers)
        is_reshaped = len(out_shape) > len(in_shape) and in_shape[-1:] != out_shape[-1:]
        return orders.propose_map((), makers) if is_reshaped else Features("plain", makers=makers)
    keeps_axes = len(in_shape) == len(out_shape) > 1
    keeps_channels = in_shape[-1:] == out_shape[-1:] or any(map(is_spatial, all_layers(layer)))  # it has convolutions
    is_aligned = all(each.kind in ALIGNED for each in inputs)
    return Features("mixed") if keeps_axes and keeps_channels and is_aligned else UNCLEAR
