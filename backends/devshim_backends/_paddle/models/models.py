"""The leaves of Paddle layers: parameters, buffers and gradients; and copies of layers.

Requirements that this module meets:

* Every object stays the same, as with PaddlePaddle's own ``Layer.to``: parameters, their gradients, buffers.
* A leaf's name is its name in ``state_dict``. Buffers that are not saved also have a name, including weights that
  ``weight_norm`` computes. A recurrent layer names its weights twice: these are ties.
* A tensor without memory (under ``LazyGuard``, or a dropout state before its first use) is not a leaf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import paddle

from devshim.contract.backend import Backend
from devshim.contract.models import Leaf
from devshim_backends._paddle.models import cloning, dispatch, optimizer_step, optimizers
from devshim_backends._paddle.models.storage_swap import accessors, gradient_accessors, has_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.devices.device import Device


_DROPOUT = "_dropout_state"
"""The generator of a recurrent layer on a card, made by the layer's first call there."""


class PaddleModels(Backend):
    """The mixin for models."""

    def leaves(self, obj: Any) -> list[Leaf]:
        if isinstance(obj, paddle.nn.Layer):
            return list(_iter_layer("", obj))
        return list(optimizers.leaves_of(obj))

    def install_hooks(self, obj: Any, where: Callable[[str], Device]) -> Callable[[], None]:
        if isinstance(obj, paddle.nn.Layer):
            return dispatch.install_hooks(self, obj, where)
        if isinstance(obj, paddle.optimizer.Optimizer):
            return optimizer_step.install_hooks(self, obj)
        return _do_nothing

    def clone(self, obj: Any) -> Any:
        return self.clones([obj])[0]

    def clones(self, objects: Sequence[Any]) -> list[Any]:
        return cloning.clones(self, objects)


def _iter_layer(prefix: str, layer: Any) -> Iterator[Leaf]:
    """Yield parameters, each followed by its gradient, then buffers, then the leaves of the layers inside."""
    for name, tensor in layer._parameters.items():
        yield from _iter_tensor(prefix + name, tensor, "parameter")
    for name, tensor in layer._buffers.items():
        yield from _iter_tensor(prefix + name, tensor, "random" if name == _DROPOUT else "buffer")
    for name, child in layer._sub_layers.items():
        if child is not None:
            yield from _iter_layer(f"{prefix}{name}.", child)


def _iter_tensor(path: str, tensor: Any, kind: Any) -> Iterator[Leaf]:
    if tensor is None or not has_memory(tensor):
        return
    yield Leaf(path, kind, *accessors(tensor), tensor)
    # Reading the gradient of a weight that is computed from others raises a warning.
    if tensor.is_leaf and tensor.grad is not None:
        yield Leaf(f"{path}.grad", "gradient", *gradient_accessors(tensor), tensor, tensor)


def _do_nothing() -> None:
    """Undo nothing."""
