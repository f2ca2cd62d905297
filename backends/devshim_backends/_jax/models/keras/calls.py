"""Patches of Keras methods, which devshim installs when it first places a Keras model with JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
from jax.core import Tracer

from devshim.tensors import activations
from devshim_backends._jax.models.models import CONTENTS, HOME, pin
from devshim_backends._jax.tensors import is_compiling
from devshim_backends._keras.building import add_on_device, move_new_variables, move_states_to_weights, planned_device
from devshim_backends._keras.patching import wrap_method

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend

    Call = Callable[..., Any]

__all__ = ["install"]

_BACKEND: list[Backend] = []
"""The adapter, once the patches are installed."""


def install(backend: Backend) -> None:
    """Install the wrappers of Keras methods, once in a process."""
    if _BACKEND:
        return
    _BACKEND[:] = [backend]
    import keras

    wrap_method(keras.Layer, "__call__", _call_layer, is_compiling)
    wrap_method(keras.Layer, "_lock_state", _lock_state, is_compiling)
    wrap_method(keras.Layer, "add_weight", _add, is_compiling)
    wrap_method(keras.Metric, "add_variable", _add, is_compiling)
    wrap_method(keras.Sequential, "add", _add, is_compiling)
    wrap_method(keras.Model, "compile", _compile, is_compiling)
    for name in ("train", "test", "predict"):
        wrap_method(keras.Model, f"make_{name}_function", _make_function, is_compiling)
    wrap_method(keras.optimizers.Optimizer, "build", _build_optimizer, is_compiling)
    wrap_method(keras.optimizers.Optimizer, "apply", _apply, is_compiling)
    wrap_method(keras.Variable, "_direct_assign", _assign, _never)


def _never() -> bool:
    return False


def _call_layer(original: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    """Call a layer. One that was placed before it was built is built on that device, as JAX's default device."""
    home = planned_device(layer)
    if home is None:
        return original(layer, *args, **kwargs)
    with jax.default_device(_BACKEND[0].to_native(home)):
        result = original(layer, *args, **kwargs)
    move_new_variables(_BACKEND[0], CONTENTS, layer)
    return result


def _lock_state(original: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    """Move weights that were just built to the device on which their layer was placed."""
    result = original(layer, *args, **kwargs)
    if planned_device(layer) is not None:
        move_new_variables(_BACKEND[0], CONTENTS, layer)
    return result


def _add(original: Call, obj: Any, args: Any, kwargs: Any) -> Any:
    """Create a weight or layer on the device of the existing ones."""
    return add_on_device(_BACKEND[0], CONTENTS, obj, lambda: original(obj, *args, **kwargs))


def _compile(original: Call, model: Any, args: Any, kwargs: Any) -> Any:
    """Move the variables that ``compile`` added to a model to the device of its weights."""
    result = original(model, *args, **kwargs)
    move_states_to_weights(_BACKEND[0], model)
    _pin_states(model)
    return result


def _make_function(original: Call, model: Any, args: Any, kwargs: Any) -> Any:
    """Move the variables that Keras made for training to the model's device, before Keras reads them."""
    move_new_variables(_BACKEND[0], CONTENTS, model)
    _pin_states(model)
    return original(model, *args, **kwargs)


def _build_optimizer(original: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Move an optimizer's state to the devices of its variables."""
    result = original(optimizer, *args, **kwargs)
    if optimizer.built:
        move_states_to_weights(_BACKEND[0], optimizer)
        _pin_states(optimizer)
    return result


def _pin_states(obj: Any) -> None:
    """Pin optimizer states to their device if the weights that they belong to were placed."""
    pin(leaf for leaf in _BACKEND[0].leaves(obj) if leaf.follows is not None and hasattr(leaf.follows, HOME))


def _apply(original: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Apply gradients on the device of the variables; the gradients may predate the variables' last move."""
    gradients = args[0] if args else kwargs["grads"]
    variables = args[1] if len(args) > 1 else kwargs.get("trainable_variables")
    variables = optimizer._trainable_variables if variables is None else list(variables)
    moved = [_move_to_variable(*pair) for pair in zip(gradients, variables, strict=False)]
    return original(optimizer, moved, variables)


def _move_to_variable(gradient: Any, variable: Any) -> Any:
    if variable._value is None or not _has_values(gradient) or not _has_values(variable._value):
        return gradient
    return activations.move_activation(gradient, _BACKEND[0].device_of(variable._value))


def _has_values(x: Any) -> bool:
    return isinstance(x, jax.Array) and not isinstance(x, Tracer)


def _assign(original: Call, variable: Any, args: Any, kwargs: Any) -> Any:
    """Assign a value. If Keras made it from NumPy or numbers, move it to the device where the variable was placed."""
    result = original(variable, *args, **kwargs)
    home, value = vars(variable).get(HOME), variable._value
    if home is not None and _has_values(value) and value.sharding != home and not value.committed:
        variable._value = jax.device_put(value, home)
    return result
