"""Tensors without elements on simulated GPUs: Paddle leaves the results of operators with them on the host (3.3).

Paddle copies neither these tensors to the host nor the results back, even if a result has elements, such as a sum of
nothing. An operator that works in place leaves such an argument itself on the host. Gradients without elements are on
the host too.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from devshim.devices.device import CPU
from devshim_backends._paddle.devices import core, device_at
from devshim_backends._paddle.simulation.device_rules import tensors_in
from devshim_backends._paddle.simulation.workarounds import copy_tensors, is_on_gpu, move_in_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["HOST_RESULTS", "keep_arguments", "return_gradients", "return_results", "wrap_gradients"]

Tensor = core.eager.Tensor

HOST_RESULTS = frozenset({"shape", "shape64"})
"""Operators of one tensor whose results are on the host, on real GPUs too."""


def return_results(results: Any, args: tuple[Any, ...]) -> Any:
    """Return the results of an operator, on the GPU of its tensors or of its place."""
    if isinstance(results, Tensor):
        if results._is_initialized() and results.place.is_custom_place():
            return results
        return _return_result(results, args)
    if type(results) in (list, tuple):
        return type(results)(return_results(each, args) for each in results)
    return results


def _return_result(result: Any, args: tuple[Any, ...]) -> Any:
    """Return a result that is on the host, or has no elements, on the GPU."""
    is_empty = 0 in result.shape
    if not is_empty and not result._is_initialized():  # it has no memory
        return result
    on_gpu = [x for x in tensors_in(args) if is_on_gpu(x)]
    if is_empty:
        place = on_gpu[0].place if on_gpu else _gpu_place(args)
    else:
        place = next((x.place for x in on_gpu if 0 in x.shape), None)
    in_place = place is None or any(x is result for x in args)
    return result if in_place else copy_tensors(result, place, from_host=True)


def _gpu_place(args: tuple[Any, ...]) -> Any:
    """Return the place of a GPU among the arguments of an operator, such as those that create tensors, or None."""
    return next((each for each in args if isinstance(each, core.Place) and device_at(each) not in (CPU, None)), None)


def keep_arguments(operator: Any) -> Any:
    """Return an in-place operator after which its arguments are still on their GPU."""

    @wraps(operator)
    def call(*args: Any, **kwargs: Any) -> Any:
        places = [(x, x.place) for x in tensors_in(args) if 0 in x.shape and is_on_gpu(x)]
        results = operator(*args, **kwargs)
        for x, place in places:
            if not is_on_gpu(x):
                move_in_place(x, place)
        return results

    return call


def wrap_gradients() -> Iterator[tuple[type, str, Any]]:
    """Yield the class of tensors, the names under which programs read gradients, and the replacements."""
    methods = vars(Tensor)
    read, write = methods["grad"].__get__, methods["grad"].__set__
    yield Tensor, "grad", property(lambda x: _return_gradient(read(x), x), write)
    read_raw = methods["_grad_ivar"]
    yield Tensor, "_grad_ivar", wraps(read_raw)(lambda x: _return_gradient(read_raw(x), x))
    yield Tensor, "_register_grad_hook", _wrap_register(methods["_register_grad_hook"])


def return_gradients(gradients: Any, inputs: Sequence[Any]) -> Any:
    """Return the gradients of tensors, each on the GPU of its tensor."""
    for gradient, x in zip(gradients, inputs, strict=True):
        _return_gradient(gradient, x)
    return gradients


def _return_gradient(gradient: Any, x: Any) -> Any:
    """Return the gradient of a tensor, on its GPU; one without elements reports that it is not initialized."""
    if gradient is None or gradient._is_initialized() or 0 not in gradient.shape:
        return gradient
    if is_on_gpu(x) and not is_on_gpu(gradient):
        move_in_place(gradient, x.place)
    return gradient


def _wrap_register(register: Any) -> Any:
    """Return a replacement for the method that registers a function to call with a tensor's gradient."""

    @wraps(register)
    def register_hook(x: Any, hook: Any) -> Any:
        if 0 not in x.shape or not is_on_gpu(x):
            return register(x, hook)
        place = x.place

        @wraps(hook)
        def call(gradient: Any) -> Any:
            if not is_on_gpu(gradient):
                move_in_place(gradient, place)
            return hook(gradient)

        return register(x, call)

    return register_hook
