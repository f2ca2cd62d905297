"""Keras layers in canonical terms: their kinds, the roles of their weights, and the layouts of these weights.

Keras stores the axis of inputs before that of outputs, and the window of a convolution before both. It stores a GRU's
gates in the order z, r, h where other frameworks have r, z, n, and one bias of an LSTM where others add two.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import keras

from devshim.contract.models import Layer, Weight
from devshim_backends._keras.layout_features import PLAIN, FeatureOrders, Features

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["describe_layer"]

_UNCLEAR = (
    "its features may be those of a map, which Keras stores in another order than other frameworks, and the order "
    "cannot be determined in this model (it can in Sequential and functional models of Keras layers)"
)
_NORMS = {"gamma": "weight", "beta": "bias"}
_STATISTICS = {"moving_mean": "mean", "moving_variance": "variance"}
_CELLS = {keras.layers.LSTMCell: "lstm", keras.layers.GRUCell: "gru", keras.layers.SimpleRNNCell: "rnn"}
_DEFAULTS = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def describe_layer(layer: Any, path_of: Mapping[int, str], orders: FeatureOrders) -> list[Layer] | None:
    """Return a layer as one or more layers in canonical terms; None if its kind is unknown.

    Args:
        layer: The layer.
        path_of: Id of a variable that has a value -> its key path.
        orders: The features of all layers of the model.
    """
    found = list(_describe(layer, _Paths(path_of), orders))
    described = {weight.path for each in found for weight in each.weights.values()}
    return found if found and described == {*path_of.values()} else None


class _Paths:
    """The key paths of a layer's variables."""

    def __init__(self, path_of: Mapping[int, str]) -> None:
        self._path_of = path_of

    def of(self, layer: Any, name: str) -> str | None:
        return self._path_of.get(id(getattr(layer, name, None)))


def _describe(layer: Any, paths: _Paths, orders: FeatureOrders) -> Iterator[Layer]:
    cls = keras.layers
    in_features, out_features = orders.inputs.get(id(layer), PLAIN), orders.outputs.get(id(layer), PLAIN)
    if isinstance(layer, cls.Bidirectional):
        for each in (layer.forward_layer, layer.backward_layer):
            yield from _recurrent(each, paths, in_features)
    elif isinstance(layer, cls.RNN):
        yield from _recurrent(layer, paths, in_features)
    elif type(layer) in _CELLS:
        yield from _cell(layer, paths, in_features, reverse=False)
    elif isinstance(layer, cls.Dense):
        kernel = _kernel(paths, layer, "kernel", in_features, out_features)
        yield _layer("linear", paths, layer, {"weight": kernel}, {}, out_features)
    elif isinstance(layer, cls.Embedding):
        yield _layer(
            "embedding", paths, layer, {"weight": _same_layout(paths.of(layer, "embeddings"), out_features)}, {}
        )
    elif isinstance(layer, (cls.BatchNormalization, cls.LayerNormalization, cls.GroupNormalization)):
        yield from _norm(layer, paths, in_features, out_features)
    else:
        for each in _convolutions(layer, paths):
            why = _UNCLEAR if in_features.kind == "unclear" else ""
            weights = {role: replace(weight, unclear=why) for role, weight in each.weights.items()}
            yield replace(each, weights=weights)


def _layer(
    kind: str,
    paths: _Paths,
    layer: Any,
    weights: dict[str, Weight | None],
    settings: dict[str, Any],
    out_features: Features = PLAIN,
) -> Layer:
    bias = paths.of(layer, "bias")
    if bias is not None:
        weights["bias"] = _bias_or_scale(bias, out_features)
    held = {role: weight for role, weight in weights.items() if weight is not None}
    first = next(iter(held.values()), None)
    return Layer(kind, "" if first is None else first.path.rpartition(".")[0], held, settings)


# ---------------------------------------------------------------------- layouts
def _kernel(
    paths: _Paths, layer: Any, name: str, in_features: Features, out_features: Features, gates: int = 1
) -> Weight | None:
    """Return a kernel of (inputs, outputs); either may be a flattened map, in which channels come last."""
    path: str | None = paths.of(layer, name)
    kernel: Any = getattr(layer, name, None)
    if path is None:
        return None
    inputs, outputs = map(int, kernel.shape)
    ins = _map_sizes(in_features) or (inputs,)
    outs = _map_sizes(out_features) or ((gates, outputs // gates) if gates > 1 else (outputs,))
    if "unclear" in (in_features.kind, out_features.kind) or prod(ins) != inputs or prod(outs) != outputs:
        return Weight(path, (1, 0), unclear=_UNCLEAR)
    if len(ins) == len(outs) == 1:
        return Weight(path, (1, 0))
    out_axes = _channels_last(outs, 0) if _map_sizes(out_features) else tuple(range(len(outs)))
    return Weight(path, (*_channels_last(ins, len(outs)), *out_axes), (outs, ins), (1, 0, 2) if gates == 3 else None)


def _bias_or_scale(path: str, features: Features) -> Weight:
    if features.kind == "unclear":
        return Weight(path, unclear=_UNCLEAR)
    sizes = _map_sizes(features)
    return Weight(path, _channels_last(sizes, 0), (sizes,)) if sizes else Weight(path)


def _map_sizes(features: Features) -> tuple[int, ...]:
    """Return the channels, height and width of the map that was flattened; empty for other features."""
    return features.sizes if features.kind == "flattened" else ()


def _same_layout(path: str | None, out_features: Features) -> Weight | None:
    """Return a weight with the same layout in every framework, unless its last axis becomes a map."""
    if path is None:
        return None
    return Weight(path, unclear=_UNCLEAR if out_features.kind in ("unclear", "flattened") else "")


def _channels_last(sizes: tuple[int, ...], first: int) -> tuple[int, ...]:
    """Return axes with the first one moved to the end."""
    axes = range(first, first + len(sizes))
    return (*axes[1:], axes[0])


# ---------------------------------------------------------------------- kinds
def _norm(layer: Any, paths: _Paths, in_features: Features, out_features: Features) -> Iterator[Layer]:
    """Yield a normalization, whose scale and shift have the order of the features."""
    roles, settings = dict(_NORMS), {"epsilon": layer.epsilon}
    axes = list(layer.axis) if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    features = out_features if out_features.kind != "plain" and in_features.kind == "plain" else in_features
    if isinstance(layer, keras.layers.BatchNormalization):
        kind = "batch_norm"
        roles.update(_STATISTICS)
    elif isinstance(layer, keras.layers.LayerNormalization):
        kind = "other" if getattr(layer, "rms_scaling", False) else "layer_norm"
        if len(axes) > 1 and in_features.kind != "plain":
            features = _map_norm_features(layer, axes, in_features)
    else:
        kind, gamma = "group_norm", layer.gamma if layer.scale else layer.beta
        if gamma is None:
            return
        settings["groups"] = int(gamma.shape[0]) if layer.groups == -1 else layer.groups
        features = Features("unclear") if in_features.kind in ("flattened", "unclear") else features
    found = {role: path for name, role in roles.items() if (path := paths.of(layer, name))}
    over_map = kind == "layer_norm" and len(axes) > 1 and features.kind == "map"
    weights = {
        role: Weight(path, _channels_first(len(axes))) if over_map else _bias_or_scale(path, features)
        for role, path in found.items()
    }
    if weights and kind != "other":
        yield Layer(kind, next(iter(found.values())).rpartition(".")[0], weights, settings)


def _map_norm_features(layer: Any, axes: list[int], in_features: Features) -> Features:
    """Return the features of a normalization over several axes: a whole map, or unclear."""
    normalizes_channels = in_features.kind == "map" and layer.gamma is not None and -1 not in axes[:-1]
    return (
        Features("map")
        if normalizes_channels and sorted(axes) == list(range(1, len(axes) + 1))
        else Features("unclear")
    )


def _channels_first(rank: int) -> tuple[int, ...]:
    return (*range(1, rank), 0)


def _convolutions(layer: Any, paths: _Paths) -> Iterator[Layer]:
    cls = keras.layers
    path = paths.of(layer, "kernel")
    if isinstance(layer, (cls.Conv1DTranspose, cls.Conv2DTranspose, cls.Conv3DTranspose)):
        yield _layer("conv_transpose", paths, layer, {"weight": _conv_kernel(path, layer.rank)}, {"groups": 1})
    elif isinstance(layer, (cls.Conv1D, cls.Conv2D, cls.Conv3D)):
        yield _layer("conv", paths, layer, {"weight": _conv_kernel(path, layer.rank)}, {"groups": layer.groups})
    elif isinstance(layer, (cls.DepthwiseConv1D, cls.DepthwiseConv2D)):
        weights, settings = _depthwise_kernel(layer, paths, "kernel")
        yield _layer("conv", paths, layer, weights, settings)
    elif isinstance(layer, (cls.SeparableConv1D, cls.SeparableConv2D)):
        weights, settings = _depthwise_kernel(layer, paths, "depthwise_kernel")
        if weights["weight"] is not None:
            yield Layer("conv", weights["weight"].path.rpartition(".")[0], {"weight": weights["weight"]}, settings)
        pointwise = _conv_kernel(paths.of(layer, "pointwise_kernel"), layer.rank)
        yield _layer("conv", paths, layer, {"weight": pointwise}, {"groups": 1})


def _conv_kernel(path: str | None, rank: int) -> Weight | None:
    """Return a kernel of (height, width, inputs, outputs)."""
    return None if path is None else Weight(path, (*range(2, rank + 2), 1, 0))


def _depthwise_kernel(layer: Any, paths: _Paths, name: str) -> tuple[dict[str, Weight | None], dict[str, Any]]:
    """Return a kernel of (height, width, inputs, outputs of each)."""
    path = paths.of(layer, name)
    if path is None:
        return {"weight": None}, {}
    *window, inputs, times = map(int, getattr(layer, name).shape)
    folded = ((inputs, times), (1,), *((size,) for size in window))
    return {"weight": Weight(path, (*range(3, 3 + len(window)), 0, 1, 2), folded)}, {"groups": inputs}


def _recurrent(layer: Any, paths: _Paths, in_features: Features) -> Iterator[Layer]:
    cells = getattr(layer.cell, "cells", [layer.cell])
    for cell in cells:
        yield from _cell(cell, paths, in_features if cell is cells[0] else PLAIN, reverse=layer.go_backwards)


def _cell(cell: Any, paths: _Paths, in_features: Features, *, reverse: bool) -> Iterator[Layer]:
    kind = _CELLS.get(type(cell))
    if kind is None or paths.of(cell, "kernel") is None:
        return
    settings: dict[str, Any] = {"reverse": True} if reverse else {}
    for name, default in _DEFAULTS.items():
        used = getattr(getattr(cell, name, None), "__name__", default)
        if used != default or (kind == "rnn" and name == "activation"):
            settings[name] = used
    gates = 3 if kind == "gru" else 1
    weights = {
        "weight_ih": _kernel(paths, cell, "kernel", in_features, PLAIN, gates),
        "weight_hh": _kernel(paths, cell, "recurrent_kernel", PLAIN, PLAIN, gates),
    }
    bias = paths.of(cell, "bias")
    if kind == "gru":
        if not cell.reset_after:
            settings["reset_after"] = False
        if bias is not None:
            weights.update(_gru_biases(bias, cell))
    elif bias is not None:
        weights["bias_ih+bias_hh"] = Weight(bias)
    held = {role: weight for role, weight in weights.items() if weight is not None}
    yield Layer(kind, held["weight_ih"].path.rpartition(".")[0], held, settings)


def _gru_biases(path: str, cell: Any) -> dict[str, Weight]:
    folded, order = ((3, cell.units),), (1, 0, 2)
    if not cell.reset_after:
        return {"bias_ih+bias_hh": Weight(path, None, folded, order)}
    size = 3 * cell.units
    return {
        "bias_ih": Weight(path, None, folded, order, (0, size)),
        "bias_hh": Weight(path, None, folded, order, (size, 2 * size)),
    }
