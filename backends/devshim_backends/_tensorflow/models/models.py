"""The leaves of Keras models and ``tf.Module`` objects, and the methods that move and clone these.

Requirements of this module:

* Leaves are the weights and statistics of layers, the states of their random generators and metrics, and variables
  that are attributes.
* A compiled model's optimizer and metrics belong to it and move with it: the optimizer's state follows the weights.
* A variable without a value has no leaf. It is created on the device on which its layer was placed (see `dispatch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.contract.models import Leaf
from devshim.errors import messages
from devshim_backends._keras.cloning import clone_objects
from devshim_backends._keras.models import model_leaves
from devshim_backends._keras.optimizers import optimizer_leaves
from devshim_backends._tensorflow.internals.locations import TensorflowLocations
from devshim_backends._tensorflow.models import dispatch
from devshim_backends._tensorflow.models.cloning import clone_model
from devshim_backends._tensorflow.models.storage_swap import StorageSwap, check_swappable, stays_on_host
from devshim_backends._tensorflow.models.traversal import CONTENTS, is_part, native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.devices.device import Device


class TensorflowModels(TensorflowLocations):
    """The mixin for models."""

    def leaves(self, obj: Any) -> list[Leaf]:
        if not tf.executing_eagerly():
            raise messages.tracing(self, "place", "place models and optimizers outside the function")
        return self.leaves_in_trace(obj)

    def leaves_in_trace(self, obj: Any) -> list[Leaf]:
        """Return the leaves of a model or an optimizer, even inside a ``tf.function``, where they cannot move."""
        if not is_part(obj):
            return list(optimizer_leaves(CONTENTS, self._leaves_of, obj))
        return list(model_leaves(CONTENTS, self._leaves_of, obj))

    def install_hooks(self, obj: Any, where: Callable[[str], Device]) -> Callable[[], None]:
        return dispatch.install_hooks(self, obj, where)

    def clone(self, obj: Any) -> Any:
        return self.clones([obj])[0]

    def clones(self, objects: Sequence[Any]) -> list[Any]:
        return clone_objects(self, CONTENTS, objects, clone_model)

    def _leaves_of(self, path: str, kind: Any, variable: Any, follows: Any) -> Iterator[Leaf]:
        owner = native(variable)
        if owner is None or stays_on_host(self, owner):
            return
        check_swappable(path, owner)
        swap = StorageSwap(self, owner)
        yield Leaf(path, kind, swap.read, swap.write, owner, follows)
