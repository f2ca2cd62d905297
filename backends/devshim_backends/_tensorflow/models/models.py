"""What Keras models and ``tf.Module`` objects hold, leaf by leaf.

Requirements this module answers:

* Layers' weights and statistics, the states of their random numbers and metrics, and raw variables among attributes.
* A compiled model's optimizer and metrics are its own, and go along: the optimizer's state beside the weights.
* What has no value yet has no leaf; it is made where it was placed (`devshim_backends._tensorflow.models.dispatch`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim.contract.models import Leaf
from devshim.errors import messages
from devshim_backends._keras.cloning import clones
from devshim_backends._keras.models import of_model
from devshim_backends._keras.optimizers import of_optimizer
from devshim_backends._tensorflow.locations import TensorflowPlaces
from devshim_backends._tensorflow.models import dispatch
from devshim_backends._tensorflow.models.cloning import made_again
from devshim_backends._tensorflow.models.storage_swap import Exchange, is_hosts, refuse
from devshim_backends._tensorflow.models.traversal import CONTENTS, is_layer, native

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.devices.device import Device


class TensorflowModels(TensorflowPlaces):
    """The room of models."""

    def leaves(self, whole: Any) -> list[Leaf]:
        if not tf.executing_eagerly():
            raise messages.tracing(self, "place", "place models and optimizers outside the function")
        if not isinstance(whole, tf.Module) and not is_layer(whole):
            return list(of_optimizer(CONTENTS, self._leaves_of, whole))
        return list(of_model(CONTENTS, self._leaves_of, whole))

    def rewire(self, whole: Any, where: Callable[[str], Device]) -> Callable[[], None]:
        return dispatch.rewire(self, whole, where)

    def clone(self, whole: Any) -> Any:
        return self.clones([whole])[0]

    def clones(self, wholes: Sequence[Any]) -> list[Any]:
        return clones(self, CONTENTS, wholes, made_again)

    def _leaves_of(self, path: str, kind: Any, variable: Any, beside: Any) -> Iterator[Leaf]:
        owner = native(variable)
        if owner is None or is_hosts(self, owner):
            return
        refuse(path, owner)
        exchange = Exchange(self, owner)
        yield Leaf(path, kind, exchange.read, exchange.write, owner, beside)
