"""Workarounds, installed while GPUs are simulated, for Paddle's faults on plug-in devices.

Requirements that this module meets:

* A layer, a loss or an optimizer computes where its tensors are.  Paddle creates what it needs besides (an LSTM's first
  state, a mask, Adam's moments) on the default device; with a real card that is the card, where everything is.  Here,
  if no default was chosen, it is the device of the arguments.
* The results of a host kernel are copied back to the GPU.  Paddle does that itself, except for its old operators, for
  the gradient of an embedding, and for operators whose host kernels do not accept arguments copied from elsewhere.
* ``Layer.to`` accepts an LSTM that has not been called yet: a tensor without memory is copied as zeros (2.6, 3.3).
"""

from __future__ import annotations

from functools import update_wrapper
from importlib import import_module
from typing import TYPE_CHECKING, Any

import paddle

from devshim.devices.device import CPU, Device
from devshim.errors import TracingError
from devshim_backends._paddle import scopes
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.models import optimizer_step
from devshim_backends._paddle.models.optimizers import parameters_of
from devshim_backends._paddle.simulation.device_rules import place_of, tensors_in
from devshim_backends._paddle.tensors import Copy

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OPERATORS", "copying", "following", "legacy", "methods"]

Tensor = core.eager.Tensor
Function = Any
"""A Paddle function, of any signature."""


# ---------------------------------------------------------------- the default device
def methods() -> Iterator[tuple[type, str, Function]]:
    """Yield Paddle classes, the names of their methods, and the replacements."""
    layer = paddle.nn.Layer
    yield Tensor, "set_value", following(vars(Tensor)["set_value"])  # 2.6 puts the values on the default device
    yield layer, "__call__", following(vars(layer)["__call__"])
    static_function = import_module("paddle.jit.dy2static.program_translator").ASTStaticFunction
    if "_perform_call" in vars(static_function):  # it moves its arguments to the default device
        yield static_function, "_perform_call", following(vars(static_function)["_perform_call"])
    yield from optimizer_step.methods()
    yield paddle.amp.AmpScaler, "_unscale", unscaling(vars(paddle.amp.AmpScaler)["_unscale"])


def following(own: Function) -> Function:
    """Return a function inside which the default device is that of its arguments."""

    def follow(*args: Any, **kwargs: Any) -> Any:
        if scopes.is_chosen():
            return own(*args, **kwargs)
        device = _card_of((*args, *kwargs.values()))
        if device is None:
            return own(*args, **kwargs)
        with scopes.open_scope(device):
            return own(*args, **kwargs)

    return update_wrapper(follow, own)


def _card_of(values: Any) -> Device | None:
    """Return the simulated GPU of the first tensor that is on one, or None."""
    for x in tensors_in(value for value in values if not isinstance(value, dict)):
        device = place_of(x)
        if device is not None and device is not CPU:
            return device
    return None


# ---------------------------------------------------------------- results that stay on the host
def legacy(name: str, call: Function) -> Function:
    """Return an operator of the legacy kind that copies to the GPU the results that kernels leave on the host."""

    def mended(*args: Any, **kwargs: Any) -> Any:
        on_card = {id(x): (x, x.place) for x in tensors_in(args) if place_of(x) not in (CPU, None)}
        if not on_card:
            return call(*args, **kwargs)
        if name in OPERATORS:
            return OPERATORS[name](call)(*args, **kwargs)
        if name == "coalesce_tensor":  # it moves an LSTM's weights into cuDNN's order, and here to the host
            return args[1:3]
        results = call(*args, **kwargs)
        for x, place in on_card.values():
            if place_of(x) is CPU:
                there = x._copy_to(place, True)  # kept in a variable: get_tensor() does not keep it alive
                x.get_tensor()._share_data_with(there.get_tensor())
        (_, place), *_ = on_card.values()
        return _carried(results, place)

    return update_wrapper(mended, call)


def unscaling(own: Function) -> Function:
    """Return a gradient scaler's unscaling that moves gradients back: Paddle leaves the unscaled copies on the host."""

    def unscale(scaler: Any, optimizer: Any) -> Any:
        result = own(scaler, optimizer)
        for parameter in parameters_of(optimizer):
            gradient = parameter.grad
            if gradient is not None and place_of(gradient) is not place_of(parameter):
                there = gradient._copy_to(parameter.place, True)
                gradient.get_tensor()._share_data_with(there.get_tensor())
        return result

    return update_wrapper(unscale, own)


def _carried(results: Any, place: Any) -> Any:
    """Return results with those on the host copied to a GPU, including their gradients."""
    if isinstance(results, Tensor):
        return Copy.apply(results, place, True) if place_of(results) is CPU else results
    if type(results) in (list, tuple):
        return type(results)(_carried(each, place) for each in results)
    return results


# ---------------------------------------------------------------- operators that work only on the host
def on_host(call: Function) -> Function:
    """Return an operator that runs on host copies, and copies its results, with their gradients, back to the GPU.

    The gradient of an embedding stays on the host (2.6, 3.3); einsum also returns tensors without memory, which
    Paddle cannot copy back (2.6).
    """

    def mended(*args: Any, **kwargs: Any) -> Any:
        place = next((x.place for x in tensors_in(args) if place_of(x) not in (CPU, None)), None)
        if place is None:
            return call(*args, **kwargs)
        return _carried(call(*_brought(args, core.CPUPlace()), **kwargs), place)

    return update_wrapper(mended, call)


def _brought(values: Any, place: Any) -> Any:
    if isinstance(values, Tensor):
        return Copy.apply(values, place, True)
    if type(values) in (list, tuple):
        return type(values)(_brought(each, place) for each in values)
    return values


def embedding(call: Function) -> Function:
    """Return `on_host` with a dense gradient even if a sparse one is requested: copying that ends the process."""
    there = on_host(call)

    def mended(x: Any, weight: Any, padding: int = -1, sparse: bool = False) -> Any:
        return there(x, weight, padding, sparse and place_of(weight) is CPU)

    return update_wrapper(mended, call)


def in_place_on_host(call: Function) -> Function:
    """Return an in-place operator that runs on host copies, which are then written to its arguments.

    The host kernel of RMSProp checks that its output is its input (2.6, 3.3).  That of SGD rounds once in place, with
    MKL's axpy, and twice otherwise, if the processor has fused multiply-add (3.3).
    """

    def mended(*args: Any, **kwargs: Any) -> Any:
        on_card = {i: x for i, x in enumerate(args) if isinstance(x, Tensor) and place_of(x) not in (CPU, None)}
        there = {i: x.detach()._copy_to(core.CPUPlace(), True) for i, x in on_card.items()}
        results = call(*(there.get(i, x) for i, x in enumerate(args)), **kwargs)
        for i, x in on_card.items():
            x.detach().copy_(there[i], True)
        return _carried(results, on_card[0].place) if on_card else results

    return update_wrapper(mended, call)


# ---------------------------------------------------------------- tensors without memory
def copying(call: Function) -> Function:
    """Return a ``_copy_to`` that copies a tensor without memory as zeros: an LSTM's dropout state before its use."""

    def mended(x: Any, *args: Any, **kwargs: Any) -> Any:
        if x._is_initialized() or 0 in x.shape:  # an empty tensor reports that it is not initialized
            return call(x, *args, **kwargs)
        return call(paddle.zeros(x.shape, x.dtype), *args, **kwargs)

    return update_wrapper(mended, call)


def refused(call: Function) -> Function:
    """Return a whole compiled program that refuses plug-in tensors: it computes on the host, or ends the process."""

    def never(*args: Any, **kwargs: Any) -> Any:
        if _card_of(args) is not None:
            raise TracingError(
                "a function that PaddlePaddle has compiled as a whole cannot run on a simulated GPU",
                "compile it with to_static(full_graph=False), or call it without to_static",
            )
        return call(*args, **kwargs)

    return update_wrapper(never, call)


OPERATORS = {
    "einsum": on_host,
    "embedding": embedding,
    "rmsprop_": in_place_on_host,
    "run_program": refused,
    "sgd_": in_place_on_host,
}
"""Operator -> its workaround."""
