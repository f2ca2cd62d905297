"""Gradients of functions: `value_and_grad` and `stop_gradient`, with the signatures of JAX on every framework.

Requirements of this module:

* The function gets stand-ins for the tensors of the differentiated arguments, in the same trees; the caller's tensors,
  the gradients that they store, and the autograd modes of the thread stay as they were.
* Every leaf has its own gradient, even if one tensor occurs in two places. A gradient is on its leaf's device.
* Nothing is left out silently: a leaf that cannot be differentiated is an error that names its key path.
* Like `devshim.run`, the function computes on the device of the differentiated tensors, if they share one.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from devshim.errors import ArgumentError, NotATensorError, messages
from devshim.errors.formatting import describe, type_name, with_article
from devshim.registry import argument_hints, numpy_scalars, registry, tracing
from devshim.tensors import arguments, gradient_errors, plain_gradients, traced_gradients
from devshim.tensors.gradient_inputs import OUTSIDE, Inputs, find_positions
from devshim.trees.flatten import flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.contract.backend import Backend


P = ParamSpec("P")
T = TypeVar("T")

__all__ = ["stop_gradient", "value_and_grad"]


def value_and_grad(
    fn: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[P, tuple[Any, Any]]:
    """Return a function that computes the value of another function and its gradients.

    Args:
        fn: A function that returns a scalar tensor of a floating dtype: of shape (), or (1,) in ``mx.nd``, which has
            no other scalars. With ``has_aux``, it returns a pair of that tensor and anything else.
        argnums: The position of the argument to differentiate, or several positions. The argument is a tensor, a tree
            of tensors, or a model; numbers in it are refused, and ``fn`` gets other objects unchanged.
        has_aux: True if ``fn`` returns ``(value, aux)``.

    Returns:
        A function with the arguments of ``fn`` that returns ``(value, grads)``, or ``((value, aux), grads)``.
        ``grads`` has the structure of the argument; for several ``argnums``, it is a tuple of them. Each gradient has
        the shape, dtype and device of its tensor, and is zero if the value does not depend on that tensor. A function
        becomes None, so that optax and other libraries of trees take the gradients. For a model, it is a dict: the key
        path of each trainable parameter (as in `placement_of`) -> its gradient; a parameter with several names occurs
        under the first one.

    The function runs on the device of the differentiated tensors, if all are on one. It gets tensors over the same
    memory as the arguments, and the models themselves. All results are free of graphs, except inside another
    `value_and_grad`, where they can be differentiated again. Stored gradients (``x.grad``) are not read or
    written, and the caller's ``no_grad`` does not matter.

    Raises:
        ArgumentError: ``argnums`` is not valid for the arguments, a leaf is a number or has an integer, bool or complex
            dtype (the error gives its key path), or ``fn`` does not return what it must.
        NotATensorError: A differentiated argument contains no tensor and no trainable parameter.
        UnsupportedError: The framework has no automatic differentiation, or does not support it here.
        TracingError: The call is inside a compiled function, and the framework does not support that.

    Examples:
        >>> import devshim as ds
        >>> ds.use("torch")
        >>> step = ds.value_and_grad(lambda params, x: ((params["w"] * x) ** 2).sum())
        >>> value, grads = step({"w": ds.ones(3)}, ds.full(3, 2.0))
        >>> grads["w"]
        tensor([8., 8., 8.])
    """
    if not callable(fn):
        raise argument_hints.no_callable("value_and_grad", fn, (argnums,))
    single, positions = _positions(argnums)

    @wraps(fn, updated=())
    def differentiated(*args: P.args, **kwargs: P.kwargs) -> tuple[Any, Any]:
        reading = tracing.reading
        reader = None if reading is None or not reading() else tracing.compiler()
        if reader is not None:
            value, aux, grads = _in_trace(reader, fn, args, kwargs, positions, has_aux)
        else:
            value, aux, grads = _in_eager_code(fn, args, kwargs, positions, has_aux)
        return (value, aux) if has_aux else value, grads[0] if single else tuple(grads)

    return differentiated


def _in_eager_code(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[int], has_aux: bool
) -> tuple[Any, Any, list[Any]]:
    """Return the value, the other results and the gradients."""
    positions = find_positions(given, len(args))
    found = plain_gradients.collect(args, positions)
    if found is not None and not has_aux:
        simple = plain_gradients.differentiate(fn, args, kwargs, positions, found)
        if simple is not None:
            return simple[0], None, simple[1]
    return Inputs(args, positions, found).differentiate(fn, args, kwargs, _results if has_aux else None)


def _in_trace(
    reader: Backend, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], positions: list[int], has_aux: bool
) -> tuple[Any, Any, list[Any]]:
    """Return the value, the other results and the gradients, in a function that a compiler traces."""
    if "trace_gradient" in reader.gaps:
        reader.raise_error(messages.tracing, (reader, "value_and_grad", OUTSIDE))

    def call(inputs: list[Any]) -> tuple[Any, Any]:
        found = fn(*inputs, **kwargs)
        if has_aux and not (type(found) in (tuple, list) and len(found) == 2):
            reader.raise_error(gradient_errors.no_pair_error, (with_article(type(found).__name__),))
        return (found[0], found[1]) if has_aux else (found, None)

    return traced_gradients.differentiate(reader, call, args, positions)


def _positions(argnums: Any) -> tuple[bool, list[int]]:
    """Return True for one position, and the list of positions."""
    if isinstance(argnums, (list, tuple, range)) and argnums:
        positions = [arguments.integer("argnums", each) for each in argnums]
        if len(set(positions)) == len(positions):
            return False, positions
    elif not isinstance(argnums, (list, tuple, range, bool)):
        return True, [arguments.integer("argnums", argnums)]
    raise messages.bad_argument("argnums", argnums, "an int or a tuple of different ints", "write argnums=(0, 1)")


def _results(found: Any) -> tuple[Any, Any]:
    """Return the value and the other results of the user's function, which returns both."""
    if type(found) in (tuple, list) and len(found) == 2:
        return found[0], found[1]
    raise gradient_errors.no_pair_error(describe(found))


def stop_gradient(x: T) -> T:
    """Return a tensor, or a tree of tensors, through which no gradient flows.

    Args:
        x: A tensor, or a tree of tensors; other leaves are returned unchanged.

    Returns:
        A tensor of the same values, dtype, device and framework, over the same memory where the framework can share
        it (TensorFlow and JAX do inside compiled functions); or a tree of them.

    Raises:
        NotATensorError: ``x`` contains no tensor.
        ArgumentError: ``x`` contains a model.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.stop_gradient(ds.ones(2))
        array([1., 1.])
    """
    backend = registry.backend_for(x)
    if backend is not None:
        return backend.stop_gradient(x)  # type: ignore[no-any-return]  # as it was given
    flat = flatten(x)
    if flat.models:
        msg = f"ds.stop_gradient takes tensors, and found {with_article(type_name(flat.models[0][2]))}"
        raise ArgumentError(msg, "stop the gradient of its results")
    if numpy_scalars.is_scalar(x):
        return x
    if not flat.containers:
        msg = f"ds.stop_gradient takes a tensor or a tree of tensors, and was given {describe(x)}"
        raise NotATensorError(msg, "ds.asarray(...) makes a tensor")
    new = {number: owner.stop_gradient(each) for number, _, each, owner in flat.leaves}
    stopped: T = flat.rebuild(new)
    return stopped
