"""Workarounds for Paddle's bugs on plug-in devices, which ``hooks.py`` installs while GPUs are simulated.

The plug-in has no kernels, so Paddle copies the arguments of an operator to the host, computes there, and copies the
results back. Each section below is about one kind of bug in that:

* *New tensors.*  A layer, a loss or an optimizer creates tensors besides its arguments (an LSTM's first state, a mask,
  Adam's moments) on the default device. With a real GPU that is the GPU. Here, if no default device was chosen, it
  is the device of the arguments.
* *Results that stay on the host.*  Paddle does not copy back the results of its legacy operators, the gradient of an
  embedding, and what a gradient scaler has unscaled (3.3). Nor those of tensors without elements, see
  ``internals/no_elements.py``.
* *Operators that need host tensors.*  Some host kernels do not accept arguments that were copied from elsewhere.
* *Tensors without memory.*  ``Layer.to`` fails for an LSTM that has not been called yet: a tensor without memory is
  copied as zeros (3.0, 3.3).
"""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle
from paddle.autograd import PyLayer

from devshim.devices.device import CPU, Device
from devshim.errors import TracingError
from devshim_backends._paddle import scopes
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.models import optimizer_step
from devshim_backends._paddle.models.optimizers import parameters_of
from devshim_backends._paddle.simulation.device_rules import device_or_none, tensors_in
from devshim_backends._paddle.simulation.internals import composed_operators, programs, strided
from devshim_backends._paddle.simulation.tensors import cast_weight, normalize_one_batch, view_dtype, view_shape
from devshim_backends._paddle.tensors import Copy

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OPERATORS", "copy_without_memory", "read_shape", "return_to_gpu", "use_argument_device", "wrap_methods"]

Tensor = core.eager.Tensor
Function = Any
"""A Paddle function, of any signature."""


def is_on_gpu(x: Any) -> bool:
    return device_or_none(x) not in (CPU, None)


# ---------------------------------------------------------------- new tensors
def wrap_methods() -> Iterator[tuple[type, str, Function]]:
    """Yield Paddle classes, the names of their methods, and the replacements."""
    layer = paddle.nn.Layer
    # 3.0 puts the values on the default device.
    yield Tensor, "set_value", use_argument_device(vars(Tensor)["set_value"])
    yield Tensor, "unflatten", read_shape(vars(Tensor)["unflatten"])
    yield layer, "__call__", use_argument_device(vars(layer)["__call__"])
    static_function = import_module("paddle.jit.dy2static.program_translator").ASTStaticFunction
    if "_perform_call" in vars(static_function):  # it moves its arguments to the default device
        yield static_function, "_perform_call", use_argument_device(vars(static_function)["_perform_call"])
    yield from optimizer_step.wrap_methods()
    yield from programs.wrap_methods()
    yield paddle.amp.AmpScaler, "_unscale", return_gradients(vars(paddle.amp.AmpScaler)["_unscale"])


def use_argument_device(function: Function) -> Function:
    """Return a function inside which the default device is that of its arguments."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        device = None if scopes.is_default_chosen() else _first_gpu((*args, *kwargs.values()))
        if device is None:
            return function(*args, **kwargs)
        with scopes.open_scope(device):
            return function(*args, **kwargs)

    return call


def _first_gpu(values: Any) -> Device | None:
    """Return the simulated GPU of the first tensor that is on one, or None."""
    for x in tensors_in(value for value in values if not isinstance(value, dict)):
        device = device_or_none(x)
        if device is not None and device is not CPU:
            return device
    return None


def read_shape(function: Function) -> Function:
    """Return ``unflatten`` for a shape on a GPU: Paddle joins it to the sizes of the tensor, which are on the host."""

    @wraps(function)
    def call(x: Any, axis: int, shape: Any, *args: Any, **kwargs: Any) -> Any:
        is_tensor = isinstance(shape, Tensor) and is_on_gpu(shape)
        return function(x, axis, shape.tolist() if is_tensor else shape, *args, **kwargs)

    return call


# ---------------------------------------------------------------- results that stay on the host
def return_to_gpu(name: str, operator: Function) -> Function:
    """Return a legacy operator that copies to the GPU the results, and arguments, that it leaves on the host."""

    @wraps(operator)
    def call(*args: Any, **kwargs: Any) -> Any:
        on_gpu = {id(x): (x, x.place) for x in tensors_in(args) if is_on_gpu(x)}
        if not on_gpu:
            return operator(*args, **kwargs)
        if name in OPERATORS:
            return OPERATORS[name](operator)(*args, **kwargs)
        if name == "coalesce_tensor":  # it would move an LSTM's weights to the host; they stay as they are
            return args[1:3]
        results = operator(*args, **kwargs)
        for x, place in on_gpu.values():
            if device_or_none(x) is CPU:
                move_in_place(x, place)
        (_, place), *_ = on_gpu.values()
        return copy_tensors(results, place, from_host=True)

    return call


def return_gradients(method: Function) -> Function:
    """Return a gradient scaler's unscaling that moves gradients back: Paddle leaves the unscaled copies on the host."""

    @wraps(method)
    def unscale(scaler: Any, optimizer: Any) -> Any:
        result = method(scaler, optimizer)
        for parameter in parameters_of(optimizer):
            gradient = parameter.grad
            if gradient is not None and device_or_none(gradient) is not device_or_none(parameter):
                move_in_place(gradient, parameter.place)
        return result

    return unscale


def move_in_place(tensor: Any, place: Any) -> None:
    copied = tensor._copy_to(place, True)  # kept in a variable: get_tensor() does not keep it alive
    tensor.get_tensor()._share_data_with(copied.get_tensor())


def copy_tensors(values: Any, place: Any, *, from_host: bool) -> Any:
    """Return values with the tensors of the host, or of elsewhere, copied to a place; gradients flow through."""
    if isinstance(values, Tensor):
        return Copy.apply(values, place, True) if (device_or_none(values) is CPU) is from_host else values
    if type(values) in (list, tuple):
        return type(values)(copy_tensors(value, place, from_host=from_host) for value in values)
    return values


# ---------------------------------------------------------------- operators that need host tensors
def run_on_host(operator: Function) -> Function:
    """Return an operator that runs on host copies, and copies its results, with their gradients, back to the GPU.

    Without this, the gradient of an embedding stays on the host (3.0, 3.3).
    """

    @wraps(operator)
    def call(*args: Any, **kwargs: Any) -> Any:
        place = next((x.place for x in tensors_in(args) if is_on_gpu(x)), None)
        if place is None:
            return operator(*args, **kwargs)
        results = operator(*copy_tensors(args, core.CPUPlace(), from_host=False), **kwargs)
        return copy_tensors(results, place, from_host=True)

    return call


def run_embedding(operator: Function) -> Function:
    """Return `run_on_host` with a dense gradient even if a sparse one is requested: copying a sparse one crashes."""
    compute = run_on_host(operator)

    @wraps(operator)
    def call(x: Any, weight: Any, padding: int = -1, sparse: bool = False) -> Any:
        return compute(x, weight, padding, sparse and device_or_none(weight) is CPU)

    return call


def run_in_place_on_host(operator: Function) -> Function:
    """Return an in-place operator that runs on host copies, which are then written to its arguments.

    The host kernel of RMSProp checks that its output is its input (3.0, 3.3). That of SGD rounds once in place, with
    MKL's axpy, and twice otherwise, if the processor has fused multiply-add (3.3).
    """

    @wraps(operator)
    def call(*args: Any, **kwargs: Any) -> Any:
        on_gpu = {i: x for i, x in enumerate(args) if isinstance(x, Tensor) and is_on_gpu(x)}
        copies = {i: x.detach()._copy_to(core.CPUPlace(), True) for i, x in on_gpu.items()}
        results = operator(*(copies.get(i, x) for i, x in enumerate(args)), **kwargs)
        for i, x in on_gpu.items():
            x.detach().copy_(copies[i], True)
        return copy_tensors(results, on_gpu[0].place, from_host=True) if on_gpu else results

    return call


class _HostProgram(PyLayer):  # type: ignore[misc]  # PaddlePaddle is Any to the type checker
    """A whole compiled program that runs on host copies of its tensors, which are leaves of a separate graph.

    On plug-in tensors the program crashes, and in backward it needs leaves. Tensors without a gradient are
    written back, because a program changes its buffers in place (the running mean of a batch normalization).
    """

    @staticmethod
    def forward(ctx: Any, run: Function, place: Any, *tensors: Any) -> Any:
        leaves = [_leaf_on_host(x) for x in tensors]
        with paddle.enable_grad(), scopes.host_program_scope(always=True):
            results = run(leaves)
        for x, leaf in zip(tensors, leaves, strict=True):
            if x.stop_gradient and x.persistable and not np.array_equal(x.numpy(), leaf.numpy()):
                x.copy_(leaf, True)
        ctx.tensors, ctx.leaves, ctx.results = tensors, leaves, list(tensors_in((results,)))
        return copy_tensors(results, place, from_host=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        pairs = [(y, g) for y, g in zip(ctx.results, gradients, strict=True) if not y.stop_gradient]
        host = core.CPUPlace()
        with scopes.host_program_scope(always=True):
            paddle.autograd.backward([y for y, _ in pairs], [g._copy_to(host, True) for _, g in pairs])
        found = [(x.place, leaf.grad) for x, leaf in zip(ctx.tensors, ctx.leaves, strict=True)]
        return tuple(None if gradient is None else gradient._copy_to(place, True) for place, gradient in found)


def _leaf_on_host(x: Any) -> Any:
    leaf = x.detach()._copy_to(core.CPUPlace(), True)
    leaf.stop_gradient = x.stop_gradient
    if not x.stop_gradient:
        leaf._set_grad_type(core.VarDesc.VarType.DENSE_TENSOR)  # the program writes only gradients that have a type
    return leaf


def run_program_on_host(operator: Function) -> Function:
    """Return a whole compiled program that computes for a simulated GPU on the host."""

    @wraps(operator)
    def call(inputs: Any, parameters: Any, *rest: Any) -> Any:
        place = next((x.place for x in tensors_in((inputs, parameters)) if is_on_gpu(x)), None)
        if place is None:
            with scopes.host_program_scope():
                return operator(inputs, parameters, *rest)
        count = len(inputs or ())  # Paddle passes None for an empty list

        def run(leaves: list[Any]) -> Any:
            return operator(leaves[:count] or None, leaves[count:] or None, *rest)

        return _HostProgram.apply(run, place, *(inputs or ()), *(parameters or ()))

    return call


def refuse_gpus(operator: Function) -> Function:
    """Return a whole compiled program of Paddle 3.0 that refuses GPUs, whose results it would leave on the host."""

    @wraps(operator)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _first_gpu(args) is not None:
            msg = "PaddlePaddle 3.0 cannot run a program that it compiled as one (full_graph=True) on a simulated GPU"
            raise TracingError(msg, "compile it with to_static(full_graph=False), or install PaddlePaddle 3.3")
        return operator(*args, **kwargs)

    return call


# ---------------------------------------------------------------- tensors without memory
def copy_without_memory(method: Function) -> Function:
    """Return a ``_copy_to`` that copies a tensor without memory as zeros: an LSTM's dropout state before its use."""

    @wraps(method)
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        if x._is_initialized() or 0 in x.shape:  # an empty tensor reports that it is not initialized
            return method(x, *args, **kwargs)
        return method(paddle.zeros(x.shape, x.dtype), *args, **kwargs)

    return call


OPERATORS = {
    **composed_operators.OPERATORS,
    "as_strided": strided.as_strided,
    "embedding": run_embedding,
    "lerp": cast_weight,
    "lerp_": cast_weight,
    "pir_run_program": refuse_gpus,
    "rmsprop_": run_in_place_on_host,
    "run_program": run_program_on_host,
    "set_": strided.set_elements,
    "sgd_": run_in_place_on_host,
    "sync_batch_norm_": normalize_one_batch,
    "tensor_unfold": strided.tensor_unfold,
    "view_dtype": view_dtype,
    "view_shape": view_shape,
}
"""Operator -> its workaround."""
