"""The blocks of a Gluon model that should stay together on one device, and the layer that each weight belongs to.

Requirements that this module meets:

* A chain is cut between its links: ``Sequential`` and ``HybridSequential`` are opened, hybridized or not, and so is the
  model itself. A block that the user wrote is one block, with its parts inside; Gluon's own blocks are never cut.
* A weight is named by its role in a layer that other frameworks also have. Gluon's layouts are those of PyTorch, except
  those requested with ``layout``, and except 2.0's recurrent layers, which keep all weights in one array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mxnet.gluon import Block as GluonBlock
from mxnet.gluon import nn, rnn

from devshim.contract.backend import Backend
from devshim.contract.blocks import BlockRules, join_path
from devshim.contract.models import Block, Layer, Weight
from devshim_backends._mxnet.models.layer_specs import cell_layer, recurrent_layers
from devshim_backends._mxnet.models.traversal import children_of, own_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PLAIN = {"weight": "weight", "bias": "bias"}
_SCALED = {"gamma": "weight", "beta": "bias"}
_RUNNING = {**_SCALED, "running_mean": "mean", "running_var": "variance"}
_CONTAINERS = (nn.Sequential, nn.HybridSequential)
_KINDS: dict[Any, tuple[str, Mapping[str, str]]] = {
    nn.Dense: ("linear", _PLAIN),
    nn.Embedding: ("embedding", _PLAIN),
    nn.LayerNorm: ("layer_norm", _SCALED),
    (nn.GroupNorm, nn.InstanceNorm): ("group_norm", _SCALED),
    nn.BatchNorm.__mro__[1]: ("batch_norm", _RUNNING),  # with `BatchNormReLU` and `SyncBatchNorm`
    (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose): ("conv_transpose", _PLAIN),
    (nn.Conv1D, nn.Conv2D, nn.Conv3D): ("conv", _PLAIN),
}
_UNCLEAR = (
    "a layer of this Gluon model has channels last (layout), so the order in which features reach this layer is "
    "unknown; it is known in models with channels first"
)


class MxnetBlocks(Backend):
    """The mixin for layers."""

    def blocks(self, model: Any) -> list[Block]:
        if not isinstance(model, GluonBlock):  # an optimizer's state is one block
            return []
        return _RULES.blocks(model)

    def layers(self, model: Any) -> list[Layer]:
        if not isinstance(model, GluonBlock):  # a parameter is not a layer
            return []
        parts = list(_RULES.walk("", model))
        channels_last = any(_layout(block).endswith("C") for _, block in parts)
        seen: set[int] = set()
        layers: list[Layer] = []
        for path, block in parts:
            if id(block) not in seen:
                seen.add(id(block))
                layers += _own_layers(path, block, _UNCLEAR if channels_last else "")
        return layers


# ---------------------------------------------------------------------- blocks
def _is_chain(block: Any) -> bool:
    return type(block) in _CONTAINERS


def _can_be_cut(block: Any) -> bool:
    """Return True if a block calls its parts as a user would, so that they can be on other devices than the block."""
    is_gluon_layer = type(block).__module__.startswith("mxnet.gluon") and not isinstance(block, _CONTAINERS)
    is_zoo_model = ".model_zoo." in type(block).__module__
    return bool(block._children) and (is_zoo_model or not is_gluon_layer)


def _own_names(block: Any) -> Iterator[str]:
    """Return the names of a block's own parameters that have values."""
    return (name for name, parameter in own_parameters(block) if parameter._data is not None)


_RULES = BlockRules(_own_names, children_of, _is_chain, _can_be_cut)


# ---------------------------------------------------------------------- layers
def _own_layers(path: str, block: Any, unclear: str) -> Iterator[Layer]:
    """Yield the layers of a block's own tensors, in canonical terms."""
    names = list(_own_names(block))
    if not names:
        return
    if isinstance(block, rnn.rnn_layer._RNNLayer):
        yield from recurrent_layers(path, block)
        return
    if isinstance(block, (rnn.LSTMCell, rnn.GRUCell, rnn.RNNCell)):
        yield cell_layer(path, block)
        return
    kind, roles, settings = _classify(block)
    if kind == "other" or not set(names) <= roles.keys():
        yield Layer("other", path, {name: Weight(join_path(path, name)) for name in names})
        return
    unused = sorted(name for name in names if _is_constant(block, kind, name))
    unclear = unclear if kind in ("linear", "batch_norm", "layer_norm") else ""
    weights = {
        roles[name]: Weight(join_path(path, name), _axes(block, kind, name), unclear=unclear)
        for name in names
        if name not in unused
    }
    yield Layer(kind, path, weights, settings, tuple(join_path(path, name) for name in unused))


def _axes(block: Any, kind: str, name: str) -> tuple[int, ...] | None:
    """Return the canonical order of a weight's axes, if they are in another one: a kernel's with channels last."""
    if kind in ("conv", "conv_transpose") and name == "weight" and _layout(block).endswith("C"):
        return (0, *range(2, len(block._kwargs["kernel"]) + 2), 1)
    return None


def _classify(block: Any) -> tuple[str, Mapping[str, str], dict[str, Any]]:
    """Return the kind, the roles and the settings of a block; the kind is "other" if no other framework has it."""
    kind, roles = next(((k, r) for cls, (k, r) in _KINDS.items() if isinstance(block, cls)), ("other", {}))
    kwargs = getattr(block, "_kwargs", {})
    if kind == "layer_norm" and kwargs["axis"] != -1:
        return "other", {}, {}
    settings = {}
    if kind.startswith("conv"):
        settings["groups"] = kwargs["num_group"]
    elif kind.endswith("norm"):
        settings["epsilon"] = kwargs["eps"]
    if kind == "group_norm":
        settings["groups"] = kwargs.get("num_groups", block.gamma.shape[0])
    return kind, roles, settings


def _is_constant(block: Any, kind: str, name: str) -> bool:
    """Return True if a scale or shift was switched off: Gluon still keeps one, which changes nothing."""
    if kind == "batch_norm":
        return block._kwargs["fix_gamma"] if name == "gamma" else name == "beta" and not block.beta._differentiable
    switches = {"gamma": "scale", "beta": "center"} if kind in ("layer_norm", "group_norm") else {}
    return name in switches and not block._kwargs[switches[name]]


def _layout(block: Any) -> str:
    return str(getattr(block, "_kwargs", {}).get("layout", ""))
