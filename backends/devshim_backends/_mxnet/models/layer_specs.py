"""Gluon's recurrent layers in canonical terms: each layer and direction separately, as in other frameworks.

The gates are in PyTorch's order. 1.9 has a parameter for each weight.  2.0 has one array, with all weights before all
biases; it does not state the size of the inputs, which follows from the array's length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devshim.contract.blocks import join_path
from devshim.contract.models import Layer, Weight

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["cell_layer", "recurrent_layers"]

_KINDS = {"rnn_tanh": "rnn", "rnn_relu": "rnn", "lstm": "lstm", "gru": "gru"}
_ROLES = {"i2h_weight": "weight_ih", "h2h_weight": "weight_hh", "i2h_bias": "bias_ih", "h2h_bias": "bias_hh"}
_ROLES["h2r_weight"] = "weight_hr"


def cell_layer(path: str, cell: Any) -> Layer:
    """Return the canonical layer of a cell."""
    kind = type(cell).__name__.removesuffix("Cell").lower()
    weights = {role: Weight(join_path(path, name)) for name, role in _ROLES.items() if hasattr(cell, name)}
    settings = {"activation": cell._activation} if kind == "rnn" else {}
    for setting, name, default in (
        ("activation", "_activation", "tanh"),
        ("gates", "_recurrent_activation", "sigmoid"),
    ):
        if kind != "rnn" and getattr(cell, name, default) != default:
            settings[setting] = str(getattr(cell, name))
    return Layer(kind if kind in _KINDS.values() else "other", path, weights, settings)


def recurrent_layers(path: str, layer: Any) -> Iterator[Layer]:
    """Yield the canonical layers of a stack of recurrent layers, in one direction or two."""
    units = [f"{direction}{number}" for number in range(layer._num_layers) for direction in "lr"[: layer._dir]]
    fused = getattr(layer, "rnn_param", None)
    parts = _split_fused(layer, units, join_path(path, "rnn_param")) if fused is not None else {}
    for unit in units:
        settings: dict[str, Any] = {"reverse": True} if unit.startswith("r") else {}
        if layer._mode.startswith("rnn_"):
            settings["activation"] = layer._mode[4:]
        if layer._lstm_state_clip_min is not None:
            settings["clip"] = [layer._lstm_state_clip_min, layer._lstm_state_clip_max]
        weights = parts.get(unit) or {
            role: Weight(join_path(path, f"{unit}_{name}"))
            for name, role in _ROLES.items()
            if hasattr(layer, f"{unit}_{name}")
        }
        yield Layer(_KINDS[layer._mode], join_path(path, unit) if len(units) > 1 else path, weights, settings)


def _split_fused(layer: Any, units: list[str], path: str) -> dict[str, dict[str, Weight]]:
    """Return the position of each weight in 2.0's one array: all weights, then all biases."""
    gates, hidden = layer._gates * layer._hidden_size, layer._hidden_size
    out = layer._projection_size or hidden
    above = out * layer._dir
    each = gates * (above + out + 2) + (out * hidden if layer._projection_size else 0)
    first = layer.rnn_param.shape[0] - each * (len(units) - layer._dir)  # the first layer's share of the array
    inputs = above + (first // layer._dir - each) // gates
    weights: dict[str, dict[str, Weight]] = {unit: {} for unit in units}
    start = 0
    for kind in ("weight", "bias"):
        for unit in units:
            sizes: dict[str, tuple[int, ...]] = {
                "weight_ih": (gates, inputs if unit[1:] == "0" else above),
                "weight_hh": (gates, out),
            }
            if layer._projection_size:
                sizes["weight_hr"] = (out, hidden)
            if kind == "bias":
                sizes = {"bias_ih": (gates,), "bias_hh": (gates,)}
            for role, shape in sizes.items():
                stop = start + shape[0] * (shape[1] if len(shape) > 1 else 1)
                weights[unit][role] = Weight(path, folded=tuple((size,) for size in shape), part=(start, stop))
                start = stop
    return weights
