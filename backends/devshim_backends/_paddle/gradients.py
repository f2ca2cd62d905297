"""Gradients by ``paddle.grad``, which does not write to ``x.grad``.

Each gradient is that of a variable: a new tensor over the memory of an argument. Inside another `differentiate` the
variable is a recorded copy, so that the outer gradient includes what is computed with it.

``paddle.grad`` works in only one thread of a process at a time (3.3: see `thread_safety`), so threads take turns in it.
"""

from __future__ import annotations

from contextlib import nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import paddle

from devshim_backends._paddle.internals.thread_safety import GRAD_LOCK
from devshim_backends._paddle.tensors import PaddleTensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor
    from devshim.contract.gradients import Call
    from devshim.contract.models import Leaf

_RECORDING: ContextVar[bool] = ContextVar("devshim_paddle_recording", default=False)
"""True inside the function of a `differentiate`, and in the threads that it starts with `devshim.parallel`."""
_NO_CHANGE: AbstractContextManager[object] = nullcontext()


class PaddleGradients(PaddleTensors):
    """The mixin for gradients."""

    def differentiate(
        self, call: Call, xs: Sequence[Tensor], parameters: Sequence[Leaf], models: Sequence[Any]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        nested = _RECORDING.get() and paddle.is_grad_enabled()
        token, records = _RECORDING.set(True), paddle.is_grad_enabled()
        try:
            with _NO_CHANGE if records else paddle.set_grad_enabled(True):
                inputs = [_variable(x, nested) for x in xs]
                value, tensors = call(list(inputs), list(models))
                inputs += [leaf.owner for leaf in parameters]
                grads = _gradients(value, inputs, nested)
        finally:
            _RECORDING.reset(token)
            if paddle.is_grad_enabled() is not records:  # the function has changed it
                paddle.set_grad_enabled(records)
        if nested:
            return value, tensors, grads
        return value.detach(), [self.detach(x) for x in tensors], [self.detach(x) for x in grads]

    def wants_gradient(self, x: Tensor) -> bool:
        return not x.stop_gradient

    def request_gradient(self, x: Tensor) -> None:
        x.stop_gradient = False

    def trainable(self, model: Any) -> list[Leaf]:
        return [leaf for leaf in self.leaves(model) if leaf.kind == "parameter" and not leaf.owner.stop_gradient]

    def link_parameters(self, model: Any, replica: Any, move: Callable[[Tensor], Tensor]) -> None:
        if not paddle.is_grad_enabled():
            return
        moved: dict[int, Tensor] = {}
        layers = zip(model.sublayers(include_self=True), replica.sublayers(include_self=True), strict=True)
        for layer, target in layers:
            for name, parameter in layer._parameters.items():
                if parameter is not None:
                    if id(parameter) not in moved:
                        moved[id(parameter)] = move(parameter)
                    target._parameters[name] = moved[id(parameter)]
            if hasattr(layer, "_all_weights"):  # a recurrent layer computes with this list of its parameters
                target._all_weights = [moved[id(each)] for each in layer._all_weights]


def _variable(x: Tensor, nested: bool) -> Tensor:
    if nested and not x.stop_gradient:
        return x.clone()
    variable = x.detach()
    variable.stop_gradient = False
    return variable


def _gradients(value: Tensor, inputs: list[Tensor], nested: bool) -> list[Tensor]:
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if not value.stop_gradient:
        with GRAD_LOCK:
            found = paddle.grad(value, inputs, create_graph=nested, allow_unused=True)
    return [paddle.zeros_like(x) if grad is None else grad for x, grad in zip(inputs, found, strict=True)]
