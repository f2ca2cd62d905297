"""What Keras models and ``tf.Module`` objects hold, leaf by leaf.

Requirements this module answers:

* Layers' weights and statistics, the states of their random numbers and metrics, and raw variables among attributes.
* A compiled model's optimizer and metrics are its own, and go along: the optimizer's state beside the weights.
* What has no value yet has no leaf; it is made where it was placed (`devshim_backends._tensorflow.wiring`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim import _refusals
from devshim.wholes import Leaf
from devshim_backends._tensorflow import cloning, optimizers, wiring
from devshim_backends._tensorflow.contents import compiled_parts, held, is_layer, metrics_in, native, parts
from devshim_backends._tensorflow.exchanging import Exchange, is_hosts, refuse
from devshim_backends._tensorflow.places import TensorflowPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from devshim.device import Device


class TensorflowModels(TensorflowPlaces):
    """The room of models."""

    def leaves(self, whole: Any) -> list[Leaf]:
        if not tf.executing_eagerly():
            raise _refusals.tracing(self, "place", "place models and optimizers outside the function")
        if not isinstance(whole, tf.Module) and not is_layer(whole):
            return list(optimizers.of_optimizer(self, whole))
        return list(_beside_weights(self._of_model(whole)))

    def rewire(self, whole: Any, where: Callable[[str], Device]) -> Callable[[], None]:
        return wiring.rewire(self, whole, where)

    def clone(self, whole: Any) -> Any:
        return self.clones([whole])[0]

    def clones(self, wholes: Sequence[Any]) -> list[Any]:
        return cloning.clones(self, wholes)

    def _of_model(self, model: Any) -> Iterator[Leaf]:
        for path, part in parts(model):
            for name, variable, kind in held(part):
                yield from self._leaf(f"{path}.{name}" if path else name, variable, kind)
            for name, metric in metrics_in(part):
                yield from self._of_metric(f"{path}.{name}" if path else name, metric)
        for path, part in compiled_parts(model):
            start = f"{path}." if path else ""
            for i, metric in enumerate(compiled_metrics(part)):
                yield from self._of_metric(f"{start}metrics.{i}", metric)
            if part.optimizer is not None:
                yield from optimizers.of_optimizer(self, part.optimizer, f"{start}optimizer.")

    def _of_metric(self, path: str, metric: Any) -> Iterator[Leaf]:
        for name, variable, kind in held(metric):
            yield from self._leaf(f"{path}.{name}", variable, kind)

    def _leaf(self, path: str, variable: Any, kind: Any) -> Iterator[Leaf]:
        owner = native(variable)
        if owner is None or is_hosts(self, owner):
            return
        refuse(path, owner)
        exchange = Exchange(self, owner)
        yield Leaf(path, kind, exchange.read, exchange.write, owner)


def compiled_metrics(model: Any) -> list[Any]:
    """The metrics that ``compile`` gave a model, the tracker of its loss among them."""
    known = {id(metric) for _, part in parts(model) for _, metric in metrics_in(part)}
    known |= {id(metric) for path, part in compiled_parts(model) if path for metric in part.metrics}
    return [metric for metric in model.metrics if id(metric) not in known]


def _beside_weights(leaves: Iterator[Leaf]) -> Iterator[Leaf]:
    """The leaves, of which states that belong to no weight go where the weight before them goes."""
    last = None
    for leaf in leaves:
        if leaf.kind in ("parameter", "buffer"):
            last = leaf.owner
        yield replace(leaf, beside=last) if leaf.kind == "state" and leaf.beside is None else leaf
