"""Gradients by `jax.value_and_grad`, even inside `jax.jit`.

Requirements of this module:

* JAX differentiates functions of arrays. The arrays of a model are replaced by JAX's tracers while the function runs:
  in the variables of a Keras model, and in a copy of an NNX module, because a module cannot be changed inside a trace.
* Everything else that a model changes (statistics, counters of random numbers) leaves the trace as a result, and
  is written to the model afterwards. If the function fails, the model is as before.
"""

from __future__ import annotations

from _thread import _local
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import jax
from jax._src.core import trace_state_clean

from devshim.errors import messages
from devshim_backends._jax.internals.widths import full_width, wide
from devshim_backends._jax.models.internals.nnx import JaxNnx, clone_in_trace
from devshim_backends._keras.traversal import is_layer, is_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.contract.backend import Tensor
    from devshim.contract.gradients import Call
    from devshim.contract.models import Leaf


class _Differentiated(_local):
    """The models of the open calls of `differentiate` of this thread, which collect the changes of inner calls."""

    def __init__(self) -> None:
        self.models: list[Any] = []


_DIFFERENTIATED = _Differentiated()
_STATELESS = "differentiate it outside, or call the model with training=False"
"""A change, such as a new mean of a batch, would be a tracer, which would stay in the model."""


class JaxGradients(JaxNnx):
    """The mixin for gradients."""

    def differentiate(
        self, call: Call, xs: Sequence[Tensor], parameters: Sequence[Leaf], models: Sequence[Any]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        values = [leaf.read() for leaf in parameters]
        stand_ins = [_StandIn(self, model) for model in models]

        def function(variables: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, Any]:
            by_owner = {_owner(leaf): weight for leaf, weight in zip(parameters, weights, strict=True)}
            try:
                value, tensors = call(list(variables), [each.begin(by_owner) for each in stand_ins])
                return value, (value, tensors, [each.changes() for each in stand_ins])
            finally:
                for each in stand_ins:
                    each.end()

        _DIFFERENTIATED.models.extend(models)
        try:
            with full_width([*xs, *values]) or nullcontext():
                computed, grads = jax.value_and_grad(function, (0, 1), has_aux=True)(list(xs), values)
        finally:
            del _DIFFERENTIATED.models[len(_DIFFERENTIATED.models) - len(models) :]
        value, tensors, changes = computed[1]
        for model, changed in zip(models, changes, strict=True):
            if any(map(self.is_tracer, changed.values())) and not any(model is each for each in _DIFFERENTIATED.models):
                raise messages.tracing(self, "value_and_grad of a model that changes its own state", _STATELESS)
        for each, changed in zip(stand_ins, changes, strict=True):
            each.write(changed)
        return value, tensors, [*grads[0], *grads[1]]

    def model_in_trace(self, model: Any) -> Any:
        """Return the object that replaces a model while JAX traces a function."""
        return clone_in_trace(model) if self._is_nnx_object(model) else model

    def stop_gradient(self, x: Tensor) -> Tensor:
        return jax.lax.stop_gradient(x)

    def autograd_crosses_threads(self) -> bool:
        return bool(trace_state_clean())

    def weighted_sum(self, xs: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
        with wide(xs[0].dtype):
            return super().weighted_sum(xs, weights)

    def link_parameters(self, model: Any, replica: Any, move: Callable[[Tensor], Tensor]) -> None:
        replicas = {leaf.path: leaf for leaf in self.leaves(replica)}
        for leaf in self.leaves(model):  # while JAX differentiates, a model contains tracers, which its clone lacks
            if leaf.kind == "parameter":
                _set(replicas[leaf.path], move(leaf.read()))

    def trainable(self, model: Any) -> list[Leaf]:
        leaves = [leaf for leaf in self.leaves(model) if leaf.kind == "parameter"]
        if not is_layer(model):
            return leaves
        known = {id(each) for each in model.trainable_variables}  # of Keras: parts of a model may be frozen
        return [leaf for leaf in leaves if id(leaf.owner) in known]


class _StandIn:
    """A model in which tracers replace the parameters while a function is differentiated."""

    def __init__(self, backend: JaxGradients, model: Any) -> None:
        self._backend, self._model = backend, model
        self._leaves = {leaf.path: leaf for leaf in backend.leaves(model)}
        self._before = {path: leaf.read() for path, leaf in self._leaves.items()}
        self._used: dict[str, Leaf] = {}

    def begin(self, by_owner: dict[Any, Tensor]) -> Any:
        """Return the model to call, with tracers in it."""
        model = self._backend.model_in_trace(self._model)
        self._used = {leaf.path: leaf for leaf in self._backend.leaves(model)}
        for path, leaf in self._leaves.items():
            if _owner(leaf) in by_owner:
                _set(self._used[path], by_owner[_owner(leaf)])
        self._given = {path: leaf.read() for path, leaf in self._used.items()}
        return model

    def changes(self) -> dict[str, Tensor]:
        """Return the arrays that the function has changed, by path."""
        now = {path: leaf.read() for path, leaf in self._used.items()}
        return {path: x for path, x in now.items() if x is not self._given[path]}

    def end(self) -> None:
        """Restore the model's arrays."""
        for path, leaf in self._leaves.items():
            if leaf.read() is not self._before[path]:
                _set(leaf, self._before[path])

    def write(self, changed: dict[str, Tensor]) -> None:
        """Write the changes to the model."""
        for path, x in changed.items():
            _set(self._leaves[path], x)


def _owner(leaf: Leaf) -> Any:
    """Return a key for the object that owns a leaf's array; an array in an NNX variable's tree is owned by a pair."""
    return (id(leaf.owner[0]), leaf.owner[1]) if isinstance(leaf.owner, tuple) else id(leaf.owner)


def _set(leaf: Leaf, x: Tensor) -> None:
    """Replace an array; the device on which a Keras variable stays does not change."""
    if is_variable(leaf.owner):
        leaf.owner._value = x
    else:
        leaf.write(x)
