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
from devshim.contract.models import Block, Layer, Weight
from devshim_backends._mxnet.models.recurrent import told_of_cells, told_of_layers
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
    "a layer of this Gluon model has channels last (layout), so that it cannot be told in which order features "
    "reach it (in models with channels first it can)"
)


class MxnetBlocks(Backend):
    """The mixin for layers."""

    def blocks(self, model: Any) -> list[Block]:
        if not isinstance(model, GluonBlock):  # an optimizer's state is one block
            return []
        return list(_opened("", model)) if _can_be_cut(model) else [_block("", model)]

    def layers(self, model: Any) -> list[Layer]:
        if not isinstance(model, GluonBlock):  # nor are parameters layers
            return []
        parts = list(_parts("", model))
        channels_last = any(_layout(block).endswith("C") for _, block in parts)
        told: set[int] = set()
        found: list[Layer] = []
        for path, block in parts:
            if id(block) not in told:
                told.add(id(block))
                found += _told(path, block, _UNCLEAR if channels_last else "")
        return found


# ---------------------------------------------------------------------- blocks
def _opened(path: str, block: Any) -> Iterator[Block]:
    """Yield the blocks that a block consists of: its own tensors first, then its parts; nested chains are opened."""
    own = tuple(_joined(path, name) for name in _own(block))
    if own:
        yield Block(own[0], own)
    for name, child in children_of(block):
        below = _joined(path, name)
        if type(child) in _CONTAINERS:
            yield from _opened(below, child)
        elif (found := _block(below, child)).leaves:
            yield found


def _block(path: str, block: Any) -> Block:
    leaves = tuple(_joined(prefix, name) for prefix, each in _parts(path, block) for name in _own(each))
    inside = tuple(_opened(path, block)) if _can_be_cut(block) else ()
    return Block.of(path, leaves, inside)


def _can_be_cut(block: Any) -> bool:
    """Return True if a block calls its parts as a user would, so that they can be on other devices than the block."""
    is_gluons = type(block).__module__.startswith("mxnet.gluon") and not isinstance(block, _CONTAINERS)
    in_a_zoo = ".model_zoo." in type(block).__module__
    return bool(block._children) and (in_a_zoo or not is_gluons)


def _parts(path: str, block: Any) -> Iterator[tuple[str, Any]]:
    """Yield a block and all blocks in it, with their structural names; a shared one under each of its names."""
    yield path, block
    for name, child in children_of(block):
        yield from _parts(_joined(path, name), child)


def _own(block: Any) -> Iterator[str]:
    """Return the names of a block's own parameters that have values."""
    return (name for name, parameter in own_parameters(block) if parameter._data is not None)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


# ---------------------------------------------------------------------- layers
def _told(path: str, block: Any, unclear: str) -> Iterator[Layer]:
    """Yield the layers of a block's own tensors, in canonical terms."""
    names = list(_own(block))
    if not names:
        return
    if isinstance(block, rnn.rnn_layer._RNNLayer):
        yield from told_of_layers(path, block)
        return
    if isinstance(block, (rnn.LSTMCell, rnn.GRUCell, rnn.RNNCell)):
        yield told_of_cells(path, block)
        return
    kind, roles, settings = _known(block)
    unused = {name for name in names if _is_constant(block, kind, name)}
    if kind == "other" or not set(names) <= roles.keys():
        yield Layer("other", path, {name: Weight(_joined(path, name)) for name in names})
        return
    last = kind in ("conv", "conv_transpose") and _layout(block).endswith("C")
    weights = {}
    for name in names:
        axes = (0, *range(2, len(block._kwargs["kernel"]) + 2), 1) if last and name == "weight" else None
        why = unclear if kind in ("linear", "batch_norm", "layer_norm") else ""
        if name not in unused:
            weights[roles[name]] = Weight(_joined(path, name), axes, unclear=why)
    yield Layer(kind, path, weights, settings, tuple(_joined(path, name) for name in sorted(unused)))


def _known(block: Any) -> tuple[str, Mapping[str, str], dict[str, Any]]:
    """Return the kind, the roles and the facts of a block of this class."""
    for cls, (kind, roles) in _KINDS.items():
        if isinstance(block, cls):
            kwargs = getattr(block, "_kwargs", {})
            settings = {}
            if kind.startswith("conv"):
                settings["groups"] = kwargs["num_group"]
            elif kind.endswith("norm"):
                settings["epsilon"] = kwargs["eps"]
            if kind == "group_norm":
                settings["groups"] = kwargs.get("num_groups", block.gamma.shape[0])
            elif kind == "layer_norm" and kwargs["axis"] != -1:
                break
            return kind, roles, settings
    return "other", {}, {}


def _is_constant(block: Any, kind: str, name: str) -> bool:
    """Return True if a scale or shift was switched off: Gluon still keeps one, which changes nothing."""
    if kind == "batch_norm":
        return block._kwargs["fix_gamma"] if name == "gamma" else name == "beta" and not block.beta._differentiable
    return (
        not block._kwargs[{"gamma": "scale", "beta": "center"}[name]] if name in _SCALED and kind in _NORMS else False
    )


_NORMS = ("layer_norm", "group_norm")


def _layout(block: Any) -> str:
    return str(getattr(block, "_kwargs", {}).get("layout", ""))
