"""The order of features in the graph of a Keras model, followed from layer to layer.

A Keras model stores an image-like tensor (here called a map) with its channels last, and other frameworks store the
channels first. So, to convert a weight, devshim must know for each layer whether its features are a map, a flattened
map, or neither. `Features.kind` is one of

* ``plain``: the features have the same order on every framework;
* ``map``: (..., height, width, channels), where other frameworks have (channels, height, width);
* ``row``: a map of (channels, height, width), flattened in Keras's order;
* ``input``: a model's input, or the result of a reshape: it becomes a map if a convolution takes it;
* ``mixed``: the last axis is plain, and nothing is known of the others;
* ``unclear``: the order cannot be determined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from devshim_backends._keras.layout_inference import Orders

__all__ = ["ALIGNED", "PLAIN", "UNCLEAR", "Features", "every", "is_graph", "is_spatial", "parts", "walk"]


@dataclass(frozen=True, eq=False)
class Features:
    """The order of a tensor's features.

    Attributes:
        kind: See the module's docstring.
        sizes: For a row, the channels, height and width of its map.
        makers: The layers whose weights produce the last axis, if it may still become a map.
    """

    kind: str
    sizes: tuple[int, ...] = ()
    makers: tuple[Any, ...] = ()


PLAIN, UNCLEAR = Features("plain"), Features("unclear")
ALIGNED = frozenset({"plain", "map", "input", "mixed"})
"""The kinds whose last axis has the same order in other frameworks."""
_SPATIAL = ("convolutional", "pooling", "up_sampling", "zero_padding", "cropping")
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


def is_spatial(layer: Any) -> bool:
    """Return True for a layer that takes a map."""
    return _is_among(layer, _SPATIAL)


def _is_among(layer: Any, rooms: Sequence[str]) -> bool:
    """Return True for a layer of these modules of ``keras.src.layers``, or one derived from such a layer."""
    names = [cls.__module__.partition("keras.src.layers.")[2] for cls in type(layer).__mro__]
    return any(name and any(room in name for room in rooms) for name in names)


def walk(orders: Orders, graph: Any, given: Sequence[Features]) -> list[Features]:
    """Return the features of a graph's outputs for these inputs, and record every layer in it."""
    function = graph._functional if isinstance(graph, keras.Sequential) else graph
    levels = function._nodes_by_depth
    nodes = [node for depth in sorted(levels, reverse=True) for node in levels[depth]]
    for tensor in (tensor for node in nodes for tensor in node.input_tensors):
        orders.take(tensor._keras_history.operation)
    found = {id(tensor): each for tensor, each in zip(keras.tree.flatten(function.inputs), given, strict=False)}
    for node in nodes:
        if not node.is_input:
            takes = [found.get(id(tensor), UNCLEAR) for tensor in node.input_tensors]
            found.update(zip(map(id, node.outputs), _after(orders, node, takes), strict=False))
    return [found.get(id(tensor), UNCLEAR) for tensor in keras.tree.flatten(function.outputs)]


def _after(orders: Orders, node: Any, takes: list[Features]) -> list[Features]:
    """Return the features after one call."""
    layer = node.operation
    if is_graph(layer):
        return walk(orders, layer, takes)
    graph = orders.inside(layer, node.input_tensors[0]) if len(takes) == 1 else None
    if graph is not None:
        return walk(orders, graph, takes)
    taken = takes[0] if takes else PLAIN
    before = tuple(node.input_tensors[0].shape[1:]) if takes else ()
    after = tuple(node.outputs[0].shape[1:])
    orders.note(layer, taken, before)
    return [_made(orders, layer, takes, before, after)] * len(node.outputs)


def _made(orders: Orders, layer: Any, takes: list[Features], before: Any, after: Any) -> Features:
    taken = takes[0] if takes else PLAIN
    if is_spatial(layer):
        return _of_a_map(orders, layer, taken, after)
    if isinstance(layer, keras.layers.Flatten):
        orders.settle(taken)
        return _flattened(taken, before, turned=layer.data_format == "channels_first")
    if type(layer).__name__ == "Reshape":
        return _reshaped(orders, taken, before, after)
    if isinstance(layer, keras.layers.Concatenate):
        alike = {each.kind for each in takes} == {"map"} and layer.axis in (-1, len(after))
        return Features("map") if alike else _unknown(orders, layer, takes, before, after)
    if isinstance(layer, (keras.layers.BatchNormalization, keras.layers.GroupNormalization)) and len(after) > 1:
        return _normalized(orders, layer, taken, after)
    if (_is_among(layer, _SHAPELESS) and not any(parts(layer))) or type(layer).__name__ in _ELEMENTWISE:
        return _merged(takes, layer, after)
    if isinstance(layer, (keras.layers.RNN, keras.layers.Bidirectional, keras.layers.Embedding)):
        orders.settle(taken)
        return Features("plain", makers=(layer,))
    if isinstance(layer, keras.layers.Dense):
        is_map = taken.kind in ("map", "mixed") or (taken.kind == "input" and len(after) > 2)
        return Features("mixed") if is_map and len(after) > 1 else Features("plain", makers=(layer,))
    return _unknown(orders, layer, takes, before, after)


def _of_a_map(orders: Orders, layer: Any, taken: Features, after: Any) -> Features:
    """Return the features after a convolution or pooling."""
    last = getattr(layer, "data_format", "channels_last") == "channels_last"
    if taken.kind == "input" and last:
        orders.become_map(taken, layer)
    elif taken.kind == "input":
        orders.settle(taken)
    elif taken.kind not in ALIGNED:
        return UNCLEAR
    if len(after) < 2:  # pooled to one vector of channels
        return PLAIN
    return Features("map") if last else PLAIN


def _flattened(taken: Features, before: Any, *, turned: bool) -> Features:
    """Return the features after all axes except the batch's are flattened into one."""
    if len(before) < 2:
        return taken
    channels, *spatial = before if turned else (before[-1], *before[:-1])  # Keras's default is channels last
    if channels == 1 or all(size == 1 for size in spatial):
        return PLAIN if taken.kind in ALIGNED else taken
    if None in before or taken.kind in ("mixed", "unclear", "row"):
        return UNCLEAR
    if turned:
        return Features("row", (channels, *spatial)) if taken.kind != "map" else UNCLEAR
    if taken.kind == "map":
        return Features("row", (channels, *spatial))
    return taken if taken.kind == "plain" or taken.makers or len(before) < 3 else UNCLEAR  # pixels in an unknown order


def _reshaped(orders: Orders, taken: Features, before: Any, after: Any) -> Features:
    if before == after:
        return taken
    if len(after) == 1:
        orders.settle(taken)
        return _flattened(taken, before, turned=False)
    if taken.kind == "row":
        return Features("map") if after == (*taken.sizes[1:], taken.sizes[0]) else UNCLEAR
    if taken.kind not in ALIGNED:
        return UNCLEAR
    if len(before) > 1 and before[-1] == after[-1]:
        return taken if taken.kind == "plain" else Features("mixed")
    if taken.kind != "plain" and len(before) > 1:
        return UNCLEAR
    if after[-1] == 1 or all(size == 1 for size in after[:-1]):
        return Features("input")
    return orders.may_become_map((after[-1], *after[:-1]), taken.makers)


def _normalized(orders: Orders, layer: Any, taken: Features, after: Any) -> Features:
    """Return the features after a normalization of channels: its input is a map, or becomes one, unless it is plain."""
    if layer.axis not in (-1, len(after)) or taken.kind not in ("input", "plain"):
        return taken
    if taken.kind == "plain" or len(after) < 3:  # a sequence, whose axes others swap, and perhaps swap back
        return Features("mixed")
    orders.become_map(taken, layer)
    return Features("map")


def _merged(takes: list[Features], layer: Any, after: Any) -> Features:
    """Return the features after a layer that leaves every feature in place, with one input or several of one shape."""
    kinds = {each.kind for each in takes}
    if len(takes) == 1 and takes[0].kind != "plain":
        return takes[0]
    first = next((each for each in takes if each.kind == "map"), takes[0])
    makers = tuple(maker for each in takes for maker in each.makers)
    if len(kinds) > 1 and not kinds <= {"map", "input"}:
        if not kinds <= ALIGNED:
            return UNCLEAR
        return Features("mixed") if len(after) > 1 else Features("plain", makers=makers)
    if len({each.sizes for each in takes}) > 1 and kinds != {"map", "input"}:
        return UNCLEAR
    return replace(first, makers=(*makers, layer) if first.kind == "plain" else makers)


def _unknown(orders: Orders, layer: Any, takes: list[Features], before: Any, after: Any) -> Features:
    """Return the features after an unknown layer: from plain features it makes plain ones on every framework."""
    if all(each.kind == "plain" for each in takes):
        makers = tuple(maker for each in takes for maker in each.makers)
        is_reshaped = len(after) > len(before) and before[-1:] != after[-1:]
        return orders.may_become_map((), makers) if is_reshaped else Features("plain", makers=makers)
    keeps_axes = len(before) == len(after) > 1
    keeps_channels = before[-1:] == after[-1:] or any(map(is_spatial, every(layer)))  # a block of convolutions
    return Features("mixed") if keeps_axes and keeps_channels and all(t.kind in ALIGNED for t in takes) else UNCLEAR


def parts(layer: Any) -> Iterator[Any]:
    """Return the direct sublayers of a layer, in their order."""
    found = layer.layers if isinstance(layer, keras.Model) else getattr(layer, "_layers", ())
    return (each for each in found if not isinstance(each, keras.layers.InputLayer))


def every(layer: Any) -> Iterator[Any]:
    """Yield a layer and all its sublayers."""
    yield layer
    for each in parts(layer):
        yield from every(each)
