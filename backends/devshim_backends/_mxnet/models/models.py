"""The leaves of Gluon blocks: parameters, buffers and gradients.

Requirements that this module meets:

* Every object stays the same: parameters, the arrays in them, and the buffers of their gradients.
* A leaf's name is its name in ``save_parameters``, which follows the structure and not the numbers that 1.9 gives to
  layers.
* Values that Gluon itself does not train (running statistics, constants) are buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.contract.backend import Backend
from devshim.contract.blocks import join_path
from devshim.contract.models import Leaf
from devshim.errors import ArgumentError
from devshim_backends._mxnet.models import cloning, dispatch, optimizers
from devshim_backends._mxnet.models.storage_swap import ParameterArrays
from devshim_backends._mxnet.models.traversal import (
    MODELS,
    parameters_of,
    refuse_replicas,
    wait_for_compiled,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.devices.device import Device


class MxnetModels(Backend):
    """The mixin for models."""

    def leaves(self, obj: Any) -> list[Leaf]:
        if isinstance(obj, MODELS):
            return list(_block_leaves(obj))
        return list(optimizers.optimizer_leaves(obj))

    def install_hooks(self, obj: Any, where: Callable[[str], Device]) -> Callable[[], None]:
        if isinstance(obj, MODELS):
            return dispatch.install_hooks(self, obj, where)
        try:
            target = [self.to_native(where("state"))]
        except ArgumentError:  # a placement that names only parameters
            target = []
        return optimizers.follow_parameters([obj], target)

    def clone(self, obj: Any) -> Any:
        return self.clones([obj])[0]

    def clones(self, objects: Sequence[Any]) -> list[Any]:
        return cloning.clones(self, objects)


def _block_leaves(block: Any) -> Iterator[Leaf]:
    """Yield parameters and buffers as leaves, each followed by its gradient."""
    wait_for_compiled(block)
    for path, parameter in parameters_of(block):
        if parameter._data is None:
            continue
        refuse_replicas(path, parameter)
        arrays, data = ParameterArrays(parameter), parameter._data[0]
        is_trained = parameter._differentiable and not isinstance(parameter, mx.gluon.Constant)
        yield Leaf(path, "parameter" if is_trained else "buffer", data.detach, arrays.swap_data, parameter)
        if parameter._grad is not None:
            gradient = parameter._grad[0]
            grad_path = join_path(path, "grad")
            yield Leaf(grad_path, "gradient", gradient.detach, arrays.swap_gradient, gradient, parameter)
