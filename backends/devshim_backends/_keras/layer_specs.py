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
from devshim_backends._keras.layout_graph import PLAIN, Features

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from devshim_backends._keras.layout_inference import Orders

__all__ = ["told"]

_UNCLEAR = (
    "its features may be those of a map, which Keras stores in another order than other frameworks, and the order "
    "cannot be determined in this model (it can in Sequential and functional models of Keras layers)"
)
_NORMS = {"gamma": "weight", "beta": "bias"}
_STATISTICS = {"moving_mean": "mean", "moving_variance": "variance"}
_CELLS = {keras.layers.LSTMCell: "lstm", keras.layers.GRUCell: "gru", keras.layers.SimpleRNNCell: "rnn"}
_DEFAULTS = {"activation": "tanh", "recurrent_activation": "sigmoid"}


def told(layer: Any, path_of: Mapping[int, str], orders: Orders) -> list[Layer] | None:
    """Return a layer as the layers that it is in other frameworks; None if its kind is unknown.

    Args:
        layer: The layer.
        path_of: Id of a variable that has a value -> its key path.
        orders: The features that it takes and makes.
    """
    found = list(_of(layer, _Paths(path_of), orders))
    named = {weight.path for each in found for weight in each.weights.values()}
    return found if found and named == {*path_of.values()} else None


class _Paths:
    """The key paths of a layer's variables."""

    def __init__(self, path_of: Mapping[int, str]) -> None:
        self._path_of = path_of

    def of(self, layer: Any, name: str) -> str | None:
        return self._path_of.get(id(getattr(layer, name, None)))


def _of(layer: Any, paths: _Paths, orders: Orders) -> Iterator[Layer]:
    cls = keras.layers
    takes, makes = orders.into.get(id(layer), PLAIN), orders.made.get(id(layer), PLAIN)
    if isinstance(layer, cls.Bidirectional):
        for each in (layer.forward_layer, layer.backward_layer):
            yield from _recurrent(each, paths, takes)
    elif isinstance(layer, cls.RNN):
        yield from _recurrent(layer, paths, takes)
    elif type(layer) in _CELLS:
        yield from _cell(layer, paths, takes, reverse=False)
    elif isinstance(layer, cls.Dense):
        yield _made("linear", paths, layer, {"weight": _matrix(paths, layer, "kernel", takes, makes)}, {}, makes)
    elif isinstance(layer, cls.Embedding):
        yield _made("embedding", paths, layer, {"weight": _plain(paths.of(layer, "embeddings"), makes)}, {})
    elif isinstance(layer, (cls.BatchNormalization, cls.LayerNormalization, cls.GroupNormalization)):
        yield from _norm(layer, paths, takes, makes)
    else:
        for each in _convolutions(layer, paths):
            why = _UNCLEAR if takes.kind == "unclear" else ""
            weights = {role: replace(weight, unclear=why) for role, weight in each.weights.items()}
            yield replace(each, weights=weights)


def _made(
    kind: str,
    paths: _Paths,
    layer: Any,
    weights: dict[str, Weight | None],
    settings: dict[str, Any],
    makes: Features = PLAIN,
) -> Layer:
    bias = paths.of(layer, "bias")
    if bias is not None:
        weights["bias"] = _vector(bias, makes)
    held = {role: weight for role, weight in weights.items() if weight is not None}
    first = next(iter(held.values()), None)
    return Layer(kind, "" if first is None else first.path.rpartition(".")[0], held, settings)


# ---------------------------------------------------------------------- layouts
def _matrix(paths: _Paths, layer: Any, name: str, takes: Features, makes: Features, gates: int = 1) -> Weight | None:
    """Return a kernel of (inputs, outputs); either may be a row of a map, in which channels come last."""
    path: str | None = paths.of(layer, name)
    kernel: Any = getattr(layer, name, None)
    if path is None:
        return None
    inputs, outputs = map(int, kernel.shape)
    ins, outs = _row(takes) or (inputs,), _row(makes) or ((gates, outputs // gates) if gates > 1 else (outputs,))
    if "unclear" in (takes.kind, makes.kind) or prod(ins) != inputs or prod(outs) != outputs:
        return Weight(path, (1, 0), unclear=_UNCLEAR)
    if len(ins) == len(outs) == 1:
        return Weight(path, (1, 0))
    out_axes = _turned(outs, 0) if _row(makes) else tuple(range(len(outs)))
    return Weight(path, (*_turned(ins, len(outs)), *out_axes), (outs, ins), (1, 0, 2) if gates == 3 else None)


def _vector(path: str, features: Features) -> Weight:
    if features.kind == "unclear":
        return Weight(path, unclear=_UNCLEAR)
    sizes = _row(features)
    return Weight(path, _turned(sizes, 0), (sizes,)) if sizes else Weight(path)


def _row(features: Features) -> tuple[int, ...]:
    """Return the channels, height and width of a map whose row the features are; empty for other features."""
    return features.sizes if features.kind == "row" else ()


def _plain(path: str | None, makes: Features) -> Weight | None:
    """Return a weight with the same layout in every framework, unless its last axis becomes a map."""
    if path is None:
        return None
    return Weight(path, unclear=_UNCLEAR if makes.kind in ("unclear", "row") else "")


def _turned(sizes: tuple[int, ...], first: int) -> tuple[int, ...]:
    """Return axes with the first one moved to the end."""
    axes = range(first, first + len(sizes))
    return (*axes[1:], axes[0])


# ---------------------------------------------------------------------- kinds
def _norm(layer: Any, paths: _Paths, takes: Features, makes: Features) -> Iterator[Layer]:
    settings: dict[str, Any] = {"epsilon": layer.epsilon}
    roles = dict(_NORMS)
    axes = list(layer.axis) if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    features = makes if makes.kind != "plain" and takes.kind == "plain" else takes
    if isinstance(layer, keras.layers.BatchNormalization):
        kind = "batch_norm"
        roles.update(_STATISTICS)
    elif isinstance(layer, keras.layers.LayerNormalization):
        kind = "other" if getattr(layer, "rms_scaling", False) else "layer_norm"
        if len(axes) > 1 and takes.kind != "plain":
            features = _of_a_map(layer, axes, takes)
    else:
        kind, gamma = "group_norm", layer.gamma if layer.scale else layer.beta
        if gamma is None:
            return
        settings["groups"] = int(gamma.shape[0]) if layer.groups == -1 else layer.groups
        features = Features("unclear") if takes.kind in ("row", "unclear") else features
    found = {role: paths.of(layer, name) for name, role in roles.items()}
    if kind == "layer_norm" and len(axes) > 1 and features.kind == "map":
        weights = {role: Weight(path, _back(len(axes))) for role, path in found.items() if path}
    else:
        weights = {role: _vector(path, features) for role, path in found.items() if path}
    if weights and kind != "other":
        path = next(iter(weights.values())).path
        yield Layer(kind, path.rpartition(".")[0], weights, settings)


def _of_a_map(layer: Any, axes: list[int], takes: Features) -> Features:
    """Return the features of a normalization over several axes: a whole map, or unclear."""
    normalizes_channels = takes.kind == "map" and layer.gamma is not None and -1 not in axes[:-1]
    return (
        Features("map")
        if normalizes_channels and sorted(axes) == list(range(1, len(axes) + 1))
        else Features("unclear")
    )


def _back(rank: int) -> tuple[int, ...]:
    return (*range(1, rank), 0)


def _convolutions(layer: Any, paths: _Paths) -> Iterator[Layer]:
    cls = keras.layers
    path = paths.of(layer, "kernel")
    if isinstance(layer, (cls.Conv1DTranspose, cls.Conv2DTranspose, cls.Conv3DTranspose)):
        yield _made("conv_transpose", paths, layer, {"weight": _window(path, layer.rank)}, {"groups": 1})
    elif isinstance(layer, (cls.Conv1D, cls.Conv2D, cls.Conv3D)):
        yield _made("conv", paths, layer, {"weight": _window(path, layer.rank)}, {"groups": layer.groups})
    elif isinstance(layer, (cls.DepthwiseConv1D, cls.DepthwiseConv2D)):
        weights, settings = _depthwise(layer, paths, "kernel")
        yield _made("conv", paths, layer, weights, settings)
    elif isinstance(layer, (cls.SeparableConv1D, cls.SeparableConv2D)):
        weights, settings = _depthwise(layer, paths, "depthwise_kernel")
        if weights["weight"] is not None:
            yield Layer("conv", weights["weight"].path.rpartition(".")[0], {"weight": weights["weight"]}, settings)
        pointwise = _window(paths.of(layer, "pointwise_kernel"), layer.rank)
        yield _made("conv", paths, layer, {"weight": pointwise}, {"groups": 1})


def _window(path: str | None, rank: int) -> Weight | None:
    """Return a kernel of (height, width, inputs, outputs)."""
    return None if path is None else Weight(path, (*range(2, rank + 2), 1, 0))


def _depthwise(layer: Any, paths: _Paths, name: str) -> tuple[dict[str, Weight | None], dict[str, Any]]:
    """Return a kernel of (height, width, inputs, outputs of each)."""
    path = paths.of(layer, name)
    if path is None:
        return {"weight": None}, {}
    *window, inputs, times = map(int, getattr(layer, name).shape)
    folded = ((inputs, times), (1,), *((size,) for size in window))
    return {"weight": Weight(path, (*range(3, 3 + len(window)), 0, 1, 2), folded)}, {"groups": inputs}


def _recurrent(layer: Any, paths: _Paths, takes: Features) -> Iterator[Layer]:
    cells = getattr(layer.cell, "cells", [layer.cell])
    for cell in cells:
        yield from _cell(cell, paths, takes if cell is cells[0] else PLAIN, reverse=layer.go_backwards)


def _cell(cell: Any, paths: _Paths, takes: Features, *, reverse: bool) -> Iterator[Layer]:
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
        "weight_ih": _matrix(paths, cell, "kernel", takes, PLAIN, gates),
        "weight_hh": _matrix(paths, cell, "recurrent_kernel", PLAIN, PLAIN, gates),
    }
    bias = paths.of(cell, "bias")
    if kind == "gru":
        if not cell.reset_after:
            settings["reset_after"] = False
        if bias is not None:
            weights.update(_biases_of_gates(bias, cell))
    elif bias is not None:
        weights["bias_ih+bias_hh"] = Weight(bias)
    held = {role: weight for role, weight in weights.items() if weight is not None}
    yield Layer(kind, held["weight_ih"].path.rpartition(".")[0], held, settings)


def _biases_of_gates(path: str, cell: Any) -> dict[str, Weight]:
    folded, order = ((3, cell.units),), (1, 0, 2)
    if not cell.reset_after:
        return {"bias_ih+bias_hh": Weight(path, None, folded, order)}
    size = 3 * cell.units
    return {
        "bias_ih": Weight(path, None, folded, order, (0, size)),
        "bias_hh": Weight(path, None, folded, order, (size, 2 * size)),
    }
