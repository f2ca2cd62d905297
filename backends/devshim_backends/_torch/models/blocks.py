"""The structure of a PyTorch model: the blocks that should stay on one device, and the layer that each weight is in.

Requirements of this module:

* A chain is cut between its elements: ``Sequential``, ``ModuleList``, ``ModuleDict``, wrappers and the model itself are
  opened. A module with a ``forward`` of the user's own is one block, which contains the blocks inside it.
* A weight is identified by its role in a layer that other frameworks have too; the canonical layouts are PyTorch's.
* A layer that differs from those that its class makes (for example, its weight is computed from others) gets no kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.module import _forward_unimplemented
from torch.nn.parameter import is_lazy

from devshim.contract.backend import Backend
from devshim.contract.blocks import BlockRules, join_path
from devshim.contract.models import Block, Layer, Weight
from devshim_backends._keras.blocks import blocks_of, layers_of
from devshim_backends._keras.traversal import is_model_or_optimizer
from devshim_backends._torch.models.keras.traversal import CONTENTS
from devshim_backends._torch.models.traversal import own_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel, torch.optim.swa_utils.AveragedModel)
_WEIGHT_AND_BIAS = {"weight": "weight", "bias": "bias"}
_WITH_STATISTICS = {**_WEIGHT_AND_BIAS, "running_mean": "mean", "running_var": "variance"}
_RECURRENT = {"RNN_TANH": "rnn", "RNN_RELU": "rnn", "LSTM": "lstm", "GRU": "gru"}
_CELLS = {nn.RNNCell: "rnn", nn.LSTMCell: "lstm", nn.GRUCell: "gru"}
_CELL_WEIGHTS = {name: name for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
_KINDS = {
    nn.Linear: "linear",
    _ConvTransposeNd: "conv_transpose",
    _ConvNd: "conv",
    _BatchNorm: "batch_norm",
    nn.LayerNorm: "layer_norm",
    nn.GroupNorm: "group_norm",
    nn.Embedding: "embedding",
    nn.EmbeddingBag: "embedding",
}
"""Ordered from the most specific class: a transposed convolution is also a `_ConvNd`."""
_NORMS = frozenset({"batch_norm", "layer_norm", "group_norm"})
_EPSILON = {"epsilon": "eps"}
_SETTINGS = {
    "conv": {"groups": "groups"},
    "conv_transpose": {"groups": "groups"},
    "batch_norm": _EPSILON,
    "layer_norm": _EPSILON,
    "group_norm": {**_EPSILON, "groups": "num_groups"},
}
_COUNTER = "num_batches_tracked"
"""A count of batches in batch normalization, and not a weight: it has an effect only if momentum is None."""


class TorchBlocks(Backend):
    """Mixin for blocks and layers."""

    def blocks(self, model: Any) -> list[Block]:
        if is_model_or_optimizer(type(model)):
            return blocks_of(self, CONTENTS, model)
        if not isinstance(model, nn.Module):  # an optimizer's state is one block
            return []
        return _RULES.blocks(model)

    def layers(self, model: Any) -> list[Layer]:
        if is_model_or_optimizer(type(model)):
            return layers_of(self, CONTENTS, model)
        found: list[Layer] = []
        for path, module in model.named_modules():  # lists a module with two paths once
            names = [name for name in _own_names(module) if name != _COUNTER or not isinstance(module, _BatchNorm)]
            if isinstance(module, nn.RNNBase) and "parametrizations" not in module._modules:
                found += _recurrent_layers(module, path)
            elif names:
                kind, roles, settings = _kind_of_module(module, names)
                weights = {roles.get(name, name): Weight(join_path(path, name)) for name in names}
                found.append(Layer(kind, path, weights, settings))
        return found


# ---------------------------------------------------------------------- blocks
def _own_names(module: Any) -> Iterator[str]:
    """Yield the names of a module's own parameters and buffers, except those without a shape."""
    yield from (name for name, tensor in own_tensors(module) if not is_lazy(tensor))


def _is_chain(module: Any) -> bool:
    """Return True if a module only calls its children and computes nothing itself."""
    if isinstance(module, torch.jit.ScriptModule):
        return False
    if isinstance(module, _WRAPPERS) or "_orig_mod" in module._modules:  # the attribute is torch.compile's
        return True
    return type(module).forward in (_forward_unimplemented, nn.Sequential.forward)


def _can_be_cut(module: Any) -> bool:
    """Return True if a module calls its children, so that they can be on other devices than it."""
    computes_with_parts = isinstance(module, (nn.MultiheadAttention, torch.jit.ScriptModule))
    return bool(module._modules) and not computes_with_parts and "parametrizations" not in module._modules


def _children(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield a module's children; unlike `named_children`, a shared one under each of its names."""
    yield from ((name, child) for name, child in module._modules.items() if child is not None)


_RULES = BlockRules(_own_names, _children, _is_chain, _can_be_cut)


# ---------------------------------------------------------------------- layers
def _kind_of_module(module: Any, names: list[str]) -> tuple[str, Mapping[str, str], dict[str, Any]]:
    """Return a layer's kind, its tensors' roles by name, and the settings that must agree besides the shapes."""
    kind, roles, settings = _kind_of_class(module)
    if kind not in _NORMS and "weight" in roles and "weight" not in names:
        kind = "other"
    if kind == "other" or "parametrizations" in module._modules or not set(names) <= roles.keys():
        return "other", {}, {}
    return kind, roles, settings


def _kind_of_class(module: Any) -> tuple[str, Mapping[str, str], dict[str, Any]]:
    """Return the kind, roles and settings of a layer of this class."""
    if isinstance(module, nn.RNNCellBase):
        kind = next((kind for cls, kind in _CELLS.items() if isinstance(module, cls)), "other")
        return kind, _CELL_WEIGHTS, {"activation": module.nonlinearity} if isinstance(module, nn.RNNCell) else {}
    if isinstance(module, _InstanceNorm):  # equals one group for each channel, unless it tracks statistics
        settings = {"epsilon": module.eps, "groups": module.num_features}
        return ("other" if module.track_running_stats else "group_norm"), _WEIGHT_AND_BIAS, settings
    for cls, kind in _KINDS.items():
        if isinstance(module, cls):
            settings = {word: getattr(module, name) for word, name in _SETTINGS.get(kind, {}).items()}
            return kind, (_WITH_STATISTICS if kind == "batch_norm" else _WEIGHT_AND_BIAS), settings
    return "other", {}, {}


def _recurrent_layers(module: Any, path: str) -> Iterator[Layer]:
    """Yield each layer and direction of a recurrent module as one layer, as in Keras."""
    suffixes = ("", "_reverse") if module.bidirectional else ("",)
    units = [f"l{number}{suffix}" for number in range(module.num_layers) for suffix in suffixes]
    for unit in units:
        roles = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        weights = {
            role: Weight(join_path(path, f"{role}_{unit}")) for role in roles if hasattr(module, f"{role}_{unit}")
        }
        settings = {"activation": module.nonlinearity} if isinstance(module, nn.RNN) else {}
        if unit.endswith("_reverse"):
            settings["reverse"] = True
        yield Layer(_RECURRENT[module.mode], join_path(path, unit) if len(units) > 1 else path, weights, settings)
