"""The graph of a layer whose ``call`` is the user's own, found by calling it with Keras's symbolic tensors.

Keras does the same when it builds such a layer. Here nothing may stay of it: variables are kept as they are by Keras's
own scope for that, and the calls are not remembered. Code that takes no symbolic tensors (``tf.reshape``) has no graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["graph_of"]


def graph_of(layer: Any, every: Callable[[Any], Any], tensor: Any | None = None) -> Any | None:
    """What a layer does with a tensor like one, as a `keras.Function`; None where that cannot be told.

    Args:
        layer: Which; of the user's, or a model of the user's.
        every: Tells a layer and all it is made of.
        tensor: What it is called with, or None: one of the shape it was built for.
    """
    shape = _built_for(layer) if tensor is None else tuple(tensor.shape)
    if shape is None or type(layer).call.__module__.startswith("keras."):
        return None
    before = [(each, len(each._inbound_nodes), len(each._outbound_nodes)) for each in every(layer)]
    try:
        given = keras.KerasTensor(shape, getattr(tensor, "dtype", "float32"))
        with keras.StatelessScope():
            made = layer.call(given)
        return keras.Function(given, made)
    except Exception:  # it is the user's code, which may refuse what is no number with anything
        return None
    finally:
        for each, taken, given_on in before:
            del each._inbound_nodes[taken:], each._outbound_nodes[given_on:]


def _built_for(layer: Any) -> tuple[int | None, ...] | None:
    """The shape of the only tensor that a layer was called with when it was built."""
    shapes = list((getattr(layer, "_build_shapes_dict", None) or {}).values())
    if len(shapes) != 1 or not isinstance(shapes[0], (tuple, list)):
        return None
    return tuple(shapes[0]) if all(size is None or type(size) is int for size in shapes[0]) else None
