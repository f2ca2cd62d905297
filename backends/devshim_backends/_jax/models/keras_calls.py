"""Patches of Keras methods, which devshim installs when it first places a Keras model with JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
from jax.core import Tracer

from devshim.tensors import activations
from devshim_backends._jax.models.models import CONTENTS, HOME, keep
from devshim_backends._jax.tensors import is_compiling
from devshim_backends._keras.building import add_on_device, move_new_variables, move_states_to_weights, planned_device
from devshim_backends._keras.patching import wrap_method

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend

    Call = Callable[..., Any]

__all__ = ["serve"]

_BACKEND: list[Backend] = []
"""The adapter, once the patches are installed."""


def serve(backend: Backend) -> None:
    """Install the wrappers of Keras methods, once in a process."""
    if _BACKEND:
        return
    _BACKEND[:] = [backend]
    import keras

    wrap_method(keras.Layer, "__call__", _called, is_compiling)
    wrap_method(keras.Layer, "_lock_state", _built, is_compiling)
    wrap_method(keras.Layer, "add_weight", _added, is_compiling)
    wrap_method(keras.Metric, "add_variable", _added, is_compiling)
    wrap_method(keras.Sequential, "add", _added, is_compiling)
    wrap_method(keras.Model, "compile", _compiled, is_compiling)
    for name in ("train", "test", "predict"):
        wrap_method(keras.Model, f"make_{name}_function", _made, is_compiling)
    wrap_method(keras.optimizers.Optimizer, "build", _optimizer_built, is_compiling)
    wrap_method(keras.optimizers.Optimizer, "apply", _applied, is_compiling)
    wrap_method(keras.Variable, "_direct_assign", _assigned, _never)


def _never() -> bool:
    return False


def _called(theirs: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    """Call a layer. One that was placed before it was built is built on that device, as JAX's default device."""
    home = planned_device(layer)
    if home is None:
        return theirs(layer, *args, **kwargs)
    with jax.default_device(_BACKEND[0].to_native(home)):
        result = theirs(layer, *args, **kwargs)
    move_new_variables(_BACKEND[0], CONTENTS, layer)
    return result


def _built(theirs: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    """Move weights that were just built to the device on which their layer was placed."""
    result = theirs(layer, *args, **kwargs)
    if planned_device(layer) is not None:
        move_new_variables(_BACKEND[0], CONTENTS, layer)
    return result


def _added(theirs: Call, obj: Any, args: Any, kwargs: Any) -> Any:
    """Create a weight or layer on the device of the existing ones."""
    return add_on_device(_BACKEND[0], CONTENTS, obj, lambda: theirs(obj, *args, **kwargs))


def _compiled(theirs: Call, model: Any, args: Any, kwargs: Any) -> Any:
    """Move the variables that ``compile`` added to a model to the device of its weights."""
    result = theirs(model, *args, **kwargs)
    move_states_to_weights(_BACKEND[0], model)
    _keep_states(model)
    return result


def _made(theirs: Call, model: Any, args: Any, kwargs: Any) -> Any:
    """Move the variables that Keras made for training to the model's device, before Keras reads them."""
    move_new_variables(_BACKEND[0], CONTENTS, model)
    _keep_states(model)
    return theirs(model, *args, **kwargs)


def _optimizer_built(theirs: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Move an optimizer's state to the devices of its variables."""
    result = theirs(optimizer, *args, **kwargs)
    if optimizer.built:
        move_states_to_weights(_BACKEND[0], optimizer)
        _keep_states(optimizer)
    return result


def _keep_states(obj: Any) -> None:
    """Pin optimizer states to their device if the weights that they belong to were placed."""
    keep(leaf for leaf in _BACKEND[0].leaves(obj) if leaf.follows is not None and hasattr(leaf.follows, HOME))


def _applied(theirs: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Apply gradients on the device of the variables; the gradients may predate the variables' last move."""
    gradients = args[0] if args else kwargs["grads"]
    variables = args[1] if len(args) > 1 else kwargs.get("trainable_variables")
    variables = optimizer._trainable_variables if variables is None else list(variables)
    follows = [_beside(*pair) for pair in zip(gradients, variables, strict=False)]
    return theirs(optimizer, follows, variables)


def _beside(gradient: Any, variable: Any) -> Any:
    if variable._value is None or not _has_values(gradient) or not _has_values(variable._value):
        return gradient
    return activations.carry(gradient, _BACKEND[0].device_of(variable._value))


def _has_values(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, Tracer)


def _assigned(theirs: Call, variable: Any, args: Any, kwargs: Any) -> Any:
    """Assign a value. If Keras made it from NumPy or numbers, move it to the device where the variable was placed."""
    result = theirs(variable, *args, **kwargs)
    home, value = vars(variable).get(HOME), variable._value
    if home is not None and _has_values(value) and value.sharding != home and not value.committed:
        variable._value = jax.device_put(value, home)
    return result
