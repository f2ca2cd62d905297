"""Gradients by PyTorch's autograd, apart from the gradients that tensors store.

Requirements of this module:

* ``torch.autograd.grad`` computes the gradients: it does not write to ``x.grad`` or run other parts of a graph.
* A variable is a new leaf over the memory of its tensor. Inside another `differentiate` it is a view, so that the outer
  one sees what is computed with it, and the gradients get their own graph.
* The caller's ``no_grad`` and ``inference_mode`` do not matter. Autograd cannot save tensors that were made in
  inference mode, so those are copied.
* A gradient can be written: the gradient of a sum is one number, which PyTorch expands to the tensor's shape, and it
  refuses to write such a tensor.
* In a function that ``torch.compile`` reads, `torch.func.grad_and_value` computes the gradients: dynamo traces it, and
  ``torch.autograd.grad`` only with ``torch._dynamo.config.trace_autograd_ops`` (2.13).
"""

from __future__ import annotations

from _thread import _local
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.overlaps import overlaps
from devshim.errors import UnsupportedError
from devshim_backends._keras.traversal import is_model_or_optimizer
from devshim_backends._torch.tensors import TorchTensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor
    from devshim.contract.gradients import Call
    from devshim.contract.models import Leaf


class _Recording(_local):
    """The open calls of `differentiate` of this thread, and of the one that started it with `devshim.parallel`."""

    def __init__(self) -> None:
        self.open: list[None] = []


RECORDING = _Recording()
"""Not a context variable, because torch.compile must read it, too: it compiles a function again where this differs."""


_FLOATING = frozenset(each for each in vars(torch).values() if isinstance(each, torch.dtype) and each.is_floating_point)
_NO_MODE: AbstractContextManager[object] = nullcontext()


class TorchGradients(TorchTensors):
    """Mixin for gradients."""

    def are_floating(self, xs: Sequence[Tensor]) -> bool:
        return _FLOATING.issuperset([x.dtype for x in xs])  # `torch.is_floating_point` takes twice as long for each

    def is_scalar(self, x: Tensor) -> bool:
        return bool(x.dim() == 0)

    def differentiate(
        self, call: Call, xs: Sequence[Tensor], parameters: Sequence[Leaf], models: Sequence[Any]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        recorded = torch.is_grad_enabled()
        nested = recorded and bool(RECORDING.open)
        RECORDING.open.append(None)
        try:
            with torch.inference_mode(False) if torch.is_inference_mode_enabled() else _NO_MODE:
                if not recorded:  # setting it takes as long as a small operator
                    torch.set_grad_enabled(True)
                inputs = _variables(xs, nested)
                value, tensors = call(list(inputs), list(models))
                inputs += [leaf.owner for leaf in parameters]
                grads = _gradients(value, inputs, nested)
        finally:
            if torch.is_grad_enabled() is not recorded:
                torch.set_grad_enabled(recorded)
            RECORDING.open.pop()
        if nested:
            return value, tensors, grads
        return value.detach(), [x.detach() if x.requires_grad else x for x in tensors], grads

    def differentiate_in_trace(
        self, call: Callable[[list[Tensor]], tuple[Tensor, list[Tensor]]], xs: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        nested = bool(RECORDING.open)
        RECORDING.open.append(None)
        try:
            grads, (value, tensors) = torch.func.grad_and_value(call, has_aux=True)(list(xs))
        finally:
            RECORDING.open.pop()
        if nested:
            return value, tensors, grads
        return value.detach(), [x.detach() for x in tensors], [_writable(x.detach()) for x in grads]

    def wants_gradient(self, x: Tensor) -> bool:
        return bool(x.requires_grad)

    def request_gradient(self, x: Tensor) -> None:
        x.requires_grad_()

    def trainable(self, model: Any) -> list[Leaf]:
        return [leaf for leaf in self.leaves(model) if leaf.kind == "parameter" and leaf.owner.requires_grad]

    def link_parameters(self, model: Any, replica: Any, move: Callable[[Tensor], Tensor]) -> None:
        if not torch.is_grad_enabled():
            return
        is_keras = is_model_or_optimizer(type(model))
        if is_keras or any(isinstance(each, torch.jit.ScriptModule) for each in model.modules()):
            msg = "PyTorch's adapter cannot link replicas of models of Keras, or of compiled TorchScript, to the model"
            raise UnsupportedError(
                msg,
                "let the function compute gradients: ds.data_parallel(ds.value_and_grad(f), devices); "
                "for results alone, call it in torch.no_grad()",
            )
        moved: dict[int, Tensor] = {}
        replicas = dict(replica.named_modules(remove_duplicate=False))
        for path, module in model.named_modules(remove_duplicate=False):
            own = replicas[path]._parameters
            for name, parameter in module._parameters.items():
                if own.get(name) is not None:  # a shared module is seen under each of its names
                    if id(parameter) not in moved:
                        moved[id(parameter)] = move(parameter)
                    del own[name]
                    setattr(replicas[path], name, moved[id(parameter)])  # recurrent layers notice this


def _variables(xs: Sequence[Tensor], nested: bool) -> list[Tensor]:
    if not nested and not any(map(torch.Tensor.is_inference, xs)):
        return [x.detach().requires_grad_() for x in xs]
    return [
        x.view_as(x) if nested and x.requires_grad else (x.clone() if x.is_inference() else x.detach()).requires_grad_()
        for x in xs
    ]


def _gradients(value: Tensor, inputs: list[Tensor], nested: bool) -> list[Tensor]:
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if value.requires_grad:
        found = torch.autograd.grad(value, inputs, create_graph=nested, allow_unused=True)
        if _are_contiguous(found):
            return list(found)
    return [torch.zeros_like(x) if grad is None else _writable(grad) for x, grad in zip(inputs, found, strict=True)]


def _are_contiguous(found: Sequence[Tensor | None]) -> bool:
    """Return True if a fast check shows that no gradient is missing, and that each can be written."""
    try:
        return all(map(torch.Tensor.is_contiguous, found))
    except (RuntimeError, TypeError):  # a sparse gradient has no order in memory, and a missing one is None
        return False


def _writable(grad: Tensor) -> Tensor:
    """Return a gradient, or a copy of it if its elements share memory."""
    return grad.contiguous() if elements_overlap(grad) else grad


def elements_overlap(x: Tensor) -> bool:
    """Return True if elements of a tensor share memory, as those of an expanded one."""
    if x.layout is not torch.strided or x.is_nested or x.is_contiguous():
        return False
    return overlaps(x.shape, x.stride())
