"""The graph of a layer whose ``call`` is the user's own, found by calling it with Keras's symbolic tensors.

Keras does the same when it builds the layer. Here it must have no lasting effect: a Keras scope keeps variables
unchanged, and the recorded calls are deleted. Code that does not accept symbolic tensors (``tf.reshape``) has no graph.
"""

from __future__ import annotations

from typing import Any

import keras

from devshim_backends._keras.layout_features import all_layers

__all__ = ["graph_of"]


def graph_of(layer: Any, tensor: Any | None = None) -> Any | None:
    """Return the `keras.Function` that a layer applies to one tensor; None if it cannot be found.

    Args:
        layer: A layer or model with a ``call`` of the user's own.
        tensor: The tensor that the layer is called with, or None for one of the shape that it was built for.
    """
    shape = _built_shape(layer) if tensor is None else tuple(tensor.shape)
    if shape is None or type(layer).call.__module__.startswith("keras."):
        return None
    before = [(each, len(each._inbound_nodes), len(each._outbound_nodes)) for each in all_layers(layer)]
    try:
        symbolic = keras.KerasTensor(shape, getattr(tensor, "dtype", "float32"))
        with keras.StatelessScope():
            result = layer.call(symbolic)
        return keras.Function(symbolic, result)
    except Exception:  # the user's code may raise any error for a tensor without values
        return None
    finally:
        for each, inbound, outbound in before:
            del each._inbound_nodes[inbound:], each._outbound_nodes[outbound:]


def _built_shape(layer: Any) -> tuple[int | None, ...] | None:
    """Return the shape of the only tensor that a layer was called with when it was built."""
    shapes = list((getattr(layer, "_build_shapes_dict", None) or {}).values())
    if len(shapes) != 1 or not isinstance(shapes[0], (tuple, list)):
        return None
    return tuple(shapes[0]) if all(size is None or type(size) is int for size in shapes[0]) else None
