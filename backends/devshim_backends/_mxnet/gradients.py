"""Gradients by ``mx.autograd``, apart from the gradients that arrays store.

A variable is a new array over the memory of its array. MXNet gives it a buffer for its gradient, and ``autograd.grad``
computes into new arrays (1.9.1, 2.0.0b1): until the gradients are computed, they need their memory twice.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet.base import MXNetError

from devshim.contract import capabilities
from devshim_backends._mxnet.creation import MxnetCreation
from devshim_backends._mxnet.internals.native import numpy_shapes
from devshim_backends._mxnet.models.traversal import parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from devshim.contract.backend import Tensor
    from devshim.contract.gradients import Call
    from devshim.contract.models import Leaf

_RECORDING: ContextVar[bool] = ContextVar("devshim_mxnet_recording", default=False)
"""True inside the function of a `differentiate`, and in the threads that it starts with `devshim.parallel`."""

_UNREACHABLE = re.compile(r"the (\d+)-th variable because it is unreachable")
"""The error for an array that the value does not depend on (``nnvm/gradient.cc``); it counts from 1."""


class MxnetGradients(MxnetCreation):
    """The mixin for gradients."""

    def differentiate(
        self, call: Call, xs: Sequence[Tensor], parameters: Sequence[Leaf], models: Sequence[Any]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        if _RECORDING.get():
            raise capabilities.unsupported_error(self, "higher_order")
        recorded_by_caller = mx.autograd.is_recording()
        token = _RECORDING.set(True)
        try:
            with mx.autograd.record(), _shapes_for(xs):
                inputs = [_variable(x) for x in xs]
                value, tensors = call(list(inputs), list(models))
        finally:
            _RECORDING.reset(token)
        inputs += [leaf.owner.data() for leaf in parameters]
        with numpy_shapes():
            grads = _gradients(value, inputs, recorded_by_caller)
            return value.detach(), [x.detach() for x in tensors], grads

    def wants_gradient(self, x: Tensor) -> bool:
        return getattr(x, "grad", None) is not None

    def request_gradient(self, x: Tensor) -> None:
        x.attach_grad()

    def stop_gradient(self, x: Tensor) -> Tensor:
        if not self.is_tracer(x):
            return x.detach()
        if isinstance(x, mx.sym.np._Symbol):
            return mx.sym.BlockGrad(x.as_nd_ndarray()).as_np_ndarray()
        if isinstance(x, mx.sym.Symbol):
            return mx.sym.BlockGrad(x)
        return mx.npx.stop_gradient(x) if isinstance(x, mx.np.ndarray) else mx.nd.BlockGrad(x)

    def trainable(self, model: Any) -> list[Leaf]:
        leaves = [leaf for leaf in self.leaves(model) if leaf.kind == "parameter"]
        return [leaf for leaf in leaves if getattr(leaf.owner, "grad_req", "null") != "null"]

    def link_parameters(self, model: Any, replica: Any, move: Callable[[Tensor], Tensor]) -> None:
        if not mx.autograd.is_recording():
            return
        moved: dict[int, Tensor] = {}
        for (_, parameter), (_, target) in zip(parameters_of(model), parameters_of(replica), strict=True):
            if parameter._data is not None and parameter.grad_req != "null":
                if id(parameter) not in moved:
                    moved[id(parameter)] = move(parameter.data())
                target._data = [moved[id(parameter)]]

    def is_scalar(self, x: Tensor) -> bool:
        shape = self.shape(x)
        return shape == () or (shape == (1,) and not isinstance(x, mx.np.ndarray))


def _shapes_for(xs: Sequence[Tensor]) -> AbstractContextManager[object]:
    """Return the scope of a function of arrays of ``mx.np``, or of other arrays.

    While NumPy's shapes are off, which is the default of 1.9, and of 2.0 in new threads, ``x[0]`` of a vector has the
    shape (1,), and would not be a scalar.
    """
    return numpy_shapes() if xs and all(isinstance(x, mx.np.ndarray) for x in xs) else nullcontext()


def _variable(x: Tensor) -> Tensor:
    variable = x.detach()
    with numpy_shapes():
        variable.attach_grad()
    return variable


def _gradients(value: Tensor, inputs: list[Tensor], retain: bool) -> list[Tensor]:
    """Return the gradients; MXNet names one array after the other that the value does not depend on."""
    found: dict[int, Tensor] = {}
    used = list(range(len(inputs)))
    while used:
        try:
            grads = mx.autograd.grad([value], [inputs[i] for i in used], retain_graph=retain)
            found.update((i, _with_interface_of(grad, inputs[i])) for i, grad in zip(used, grads, strict=True))
            break
        except MXNetError as error:
            unused = _UNREACHABLE.search(str(error))
            if unused is not None:
                del used[int(unused[1]) - 1]
            elif "not in a computational graph" in str(error):
                break
            else:
                raise
    return [found[i] if i in found else _zeros(x) for i, x in enumerate(inputs)]


def _with_interface_of(grad: Tensor, x: Tensor) -> Tensor:
    """Return a gradient with the interface of its array; 1.9 gives all gradients the one that it currently expects."""
    return grad.as_np_ndarray() if isinstance(x, mx.np.ndarray) else grad.as_nd_ndarray()


def _zeros(x: Tensor) -> Tensor:
    return mx.np.zeros_like(x) if isinstance(x, mx.np.ndarray) else mx.nd.zeros_like(x)
