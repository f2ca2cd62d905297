"""The blocks of a Paddle model that should stay together on one device, and the layer that each weight belongs to.

Requirements that this module meets:

* A chain is cut between its links: ``Sequential``, ``LayerList``, ``LayerDict``, wrappers and the model itself are
  opened. A layer that the user wrote is one block, with its parts inside; a recurrent layer is never cut.
* A weight is named by its role in a layer that other frameworks also have. Paddle's layouts are those of PyTorch,
  except for the weight of ``Linear``, which is (in, out).
* A layer with weights that its class does not create (``weight_norm``) has the kind "other".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddle import DataParallel, nn
from paddle.nn.layer.conv import _ConvNd
from paddle.nn.layer.norm import _BatchNormBase, _InstanceNormBase
from paddle.nn.layer.rnn import RNNBase

from devshim.contract.backend import Backend
from devshim.contract.blocks import BlockRules, join_path
from devshim.contract.models import Block, Layer, Weight
from devshim_backends._paddle.models.storage_swap import has_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_AFFINE_ROLES = {"weight": "weight", "bias": "bias"}
_BATCH_NORM_ROLES = {**_AFFINE_ROLES, "_mean": "mean", "_variance": "variance"}
_CELL_ROLES = {f"{name}_{suffix}": f"{name}_{suffix}" for name in ("weight", "bias") for suffix in ("ih", "hh")}
_CELLS = {nn.LSTMCell: "lstm", nn.GRUCell: "gru", nn.SimpleRNNCell: "rnn"}
_CHAINS = (nn.Sequential, nn.LayerList, nn.LayerDict, DataParallel)
_KINDS: dict[Any, tuple[str, Mapping[str, str]]] = {
    nn.Linear: ("linear", _AFFINE_ROLES),
    nn.Embedding: ("embedding", _AFFINE_ROLES),
    nn.LayerNorm: ("layer_norm", _AFFINE_ROLES),
    nn.GroupNorm: ("group_norm", _AFFINE_ROLES),
    _InstanceNormBase: ("group_norm", {"scale": "weight", "bias": "bias"}),
    (_BatchNormBase, nn.BatchNorm): ("batch_norm", _BATCH_NORM_ROLES),
    (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose): ("conv_transpose", _AFFINE_ROLES),
    _ConvNd: ("conv", _AFFINE_ROLES),
}
"""The most specific class comes first: a transposed convolution is also a `_ConvNd`."""
_TRANSPOSED = {("linear", "weight"), ("lstm", "weight_ho")}
_SETTINGS = {"epsilon": "_epsilon", "groups": "_groups"}
_UNCLEAR = (
    "a layer of this Paddle model has channels last (data_format), so the order in which features reach this layer is "
    "unknown (with channels first it is known)"
)


class PaddleBlocks(Backend):
    """The mixin for layers."""

    def blocks(self, model: Any) -> list[Block]:
        if not isinstance(model, nn.Layer):  # an optimizer's state is one block
            return []
        return _RULES.blocks(model)

    def layers(self, model: Any) -> list[Layer]:
        parts = list(_RULES.walk("", model))
        channels_last = any(str(getattr(layer, "_data_format", "")).endswith("C") for _, layer in parts)
        seen: set[int] = set()
        found: list[Layer] = []
        for path, layer in parts:
            if id(layer) not in seen and not isinstance(layer, RNNBase):  # its weights also belong to its cells
                seen.add(id(layer))
                found += _describe_layer(path, layer, unclear=_UNCLEAR if channels_last else "")
            if isinstance(layer, (nn.BiRNN, nn.RNN)):
                found += _describe_cells(path, layer, seen)
        return found


# ---------------------------------------------------------------------- blocks
def _is_chain(layer: Any) -> bool:
    return isinstance(layer, _CHAINS) and not isinstance(layer, RNNBase)


def _can_be_cut(layer: Any) -> bool:
    """Return True if a layer calls its parts, so that they can be on other devices than the layer."""
    return bool(layer._sub_layers) and not isinstance(layer, (RNNBase, nn.RNN, nn.BiRNN, nn.MultiHeadAttention))


def _children(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yield the layers in a layer by their names in ``state_dict``; a shared one under each of its names."""
    yield from ((name, child) for name, child in layer._sub_layers.items() if child is not None)


def _iter_tensor_names(layer: Any) -> Iterator[str]:
    """Yield the names of a layer's own parameters and buffers."""
    for tensors in (layer._parameters, layer._buffers):
        yield from (name for name, tensor in tensors.items() if tensor is not None and has_memory(tensor))


_RULES = BlockRules(_iter_tensor_names, _children, _is_chain, _can_be_cut)


# ---------------------------------------------------------------------- layers
def _describe_layer(path: str, layer: Any, unclear: str) -> Iterator[Layer]:
    """Yield the framework-neutral description of the tensors that a layer itself has; nothing if it has none."""
    names = list(_iter_tensor_names(layer))
    if not names:
        return
    kind, roles, settings = _look_up_kind(layer)
    unused = tuple(name for name in names if _is_constant(layer, name)) if kind == "batch_norm" else ()
    if not set(names) <= roles.keys():
        kind, roles, settings, unused = "other", {}, {}, ()
    weights = {}
    for name in names:
        axes = (1, 0) if (kind, name) in _TRANSPOSED else None
        if name not in unused:
            reason = unclear if kind in ("linear", "batch_norm", "layer_norm") else ""
            weights[roles.get(name, name)] = Weight(join_path(path, name), axes, unclear=reason)
    yield Layer(kind, path, weights, settings, tuple(join_path(path, name) for name in unused))


def _look_up_kind(layer: Any) -> tuple[str, Mapping[str, str], dict[str, Any]]:
    """Return the kind, the roles and the facts of a layer of this class."""
    for cls, (kind, roles) in _KINDS.items():
        if isinstance(layer, cls):
            settings = {word: getattr(layer, name) for word, name in _SETTINGS.items() if hasattr(layer, name)}
            if kind == "group_norm":
                settings["groups"] = layer._num_groups if hasattr(layer, "_num_groups") else layer._num_features
            return kind, roles, settings
    kind = _CELLS.get(type(layer), "other")
    settings = {"activation": layer.activation} if kind == "rnn" else {}
    roles = {"other": {}, "lstm": {**_CELL_ROLES, "weight_ho": "weight_hr"}}.get(kind, _CELL_ROLES)
    return kind, roles, settings


def _is_constant(layer: Any, name: str) -> bool:
    """Return True if a scale or shift was switched off, and is one that changes nothing (``SyncBatchNorm``, 3.3)."""
    attribute = {"weight": "_weight_attr", "bias": "_bias_attr"}.get(name, "")
    return getattr(layer, attribute, None) is False


def _describe_cells(path: str, layer: Any, seen: set[int]) -> Iterator[Layer]:
    """Yield the cells of a recurrent layer, each once; a cell that runs from the end is marked as reversed."""
    for name in ("cell", "cell_fw", "cell_bw"):
        cell = layer._sub_layers.get(name)
        if cell is None or id(cell) in seen or type(cell) not in _CELLS:
            continue
        seen.add(id(cell))
        reverse = {"reverse": True} if name == "cell_bw" or getattr(layer, "is_reverse", False) else {}
        for each in _describe_layer(join_path(path, name), cell, ""):
            yield Layer(each.kind, each.path, each.weights, {**each.settings, **reverse})
