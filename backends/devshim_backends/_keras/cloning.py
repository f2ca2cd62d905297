"""Independent copies of Keras models and optimizers.

Keras makes a new layer from the original's configuration, as it does from a file, and devshim copies the values. An
optimizer's copy trains the copies of the variables that the original trains.
"""

from __future__ import annotations

import inspect
import random
import sys
from typing import TYPE_CHECKING, Any

from devshim.errors import DevshimError, UnsupportedError, messages
from devshim_backends._keras.optimizers import trained_variables
from devshim_backends._keras.traversal import is_optimizer, is_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devshim.contract.backend import Backend
    from devshim_backends._keras.traversal import Contents

__all__ = ["clone_objects", "rebuild_layer"]


def clone_objects(
    backend: Backend, contents: Contents, objects: Sequence[Any], copy: Callable[[Any], Any]
) -> list[Any]:
    """Return copies of models and optimizers; each optimizer's copy belongs to its model's copy.

    Args:
        backend: The adapter.
        contents: The contents of Keras objects.
        objects: The objects to copy.
        copy: Makes a new model without the original's values, as `rebuild_layer` does.

    Raises:
        UnsupportedError: Keras or Python cannot copy one of them, or an optimizer is copied without its model.
    """
    clones: dict[int, Any] = {}
    new_variables: dict[int, Any] = {}
    before = random.getstate()  # Keras uses this generator for the seeds of initializers that are not used
    try:
        for obj in objects:
            if is_variable(obj):
                clones[id(obj)] = _clone_variable(backend, obj)
            elif not is_optimizer(obj):
                clones[id(obj)] = _clone_model(backend, contents, obj, new_variables, copy)
        for obj in objects:
            if id(obj) not in clones:
                compiled = _optimizer_of_clone(objects, clones, obj)
                clones[id(obj)] = compiled or _clone_optimizer(backend, contents, obj, new_variables)
    except Exception as error:
        if isinstance(error, DevshimError) or not backend.is_out_of_memory(error):
            raise
        raise messages.out_of_memory_for_clones(backend, objects) from error
    finally:
        random.setstate(before)
    return [clones[id(obj)] for obj in objects]


def _clone_model(
    backend: Backend, contents: Contents, model: Any, new_variables: dict[int, Any], copy: Callable[[Any], Any]
) -> Any:
    try:
        new = copy(model)
        pairs = _match_variables(contents, model, new)
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        msg = f"this {type(model).__name__} cannot be cloned: {error}"
        raise UnsupportedError(
            msg,
            "define get_config in its class (Keras guide: 'Making new layers and models via subclassing'), or create "
            "another one and set its weights",
        ) from error
    new_variables.update(pairs)
    compiled = dict(contents.compiled_parts(new))
    for path, old in contents.compiled_parts(model):
        if path in compiled and old.optimizer is not None and old.optimizer.built:
            _build_optimizer(contents, compiled[path].optimizer, old.optimizer, new_variables)
    _copy_values(backend, model, new)
    return new


def _clone_variable(backend: Backend, variable: Any) -> Any:
    """Return a variable of the same class and options, with its own value on the same device."""
    new = type(variable)(
        "zeros",
        shape=tuple(variable.shape),
        dtype=variable._dtype,  # not the dtype of an autocast scope
        trainable=variable.trainable,
        autocast=variable._autocast,
        aggregation=variable.aggregation,
        synchronization=variable.synchronization,
        name=variable.name,
    )
    new.regularizer, new.constraint = variable.regularizer, variable.constraint
    _copy_values(backend, variable, new)
    return new


def rebuild_layer(contents: Contents, layer: Any) -> Any:
    """Return a layer with the same configuration, built for the same shapes, and compiled if the original is."""
    known = inspect.signature(type(layer)).parameters
    if "name" in known or any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return _rebuild_from_config(contents, layer)
    # The constructor does not accept a layer's standard options, which Keras would pass and fail.
    new = type(layer)(**{name: value for name, value in layer.get_config().items() if name in known})
    if getattr(layer, "built", False) and layer.get_build_config():  # a metric is never built
        new.build_from_config(layer.get_build_config())
    return new


def _rebuild_from_config(contents: Contents, layer: Any) -> Any:
    from keras.src.saving.object_registration import CustomObjectScope
    from keras.src.saving.serialization_lib import (
        ObjectSharingScope,
        deserialize_keras_object,
        serialize_keras_object,
    )

    classes = {type(part).__name__: type(part) for _, part in contents.parts(layer) if _is_custom(type(part))}
    with CustomObjectScope(classes):
        with ObjectSharingScope():  # a layer that is used twice stays one layer
            written = serialize_keras_object(layer)
        with ObjectSharingScope():
            return deserialize_keras_object(written, safe_mode=False)  # safe: it is the caller's own object


def _is_custom(cls: type) -> bool:
    return getattr(sys.modules.get("keras"), "__name__", "keras") != cls.__module__.partition(".")[0]


def _match_variables(contents: Contents, old: Any, new: Any) -> dict[int, Any]:
    """Return the copy's variable for each variable of the original, keyed by the id of the object with its data.

    Raises:
        ValueError: The copy has a different structure.
    """
    pairs: dict[int, Any] = {}
    left, right = list(contents.parts(old)), list(contents.parts(new))
    if [part.path for part in left] != [part.path for part in right]:
        msg = "the clone has different layers"
        raise ValueError(msg)
    for (path, a), (_, b) in zip(left, right, strict=True):
        variables, copies = contents.named_variables(a), contents.named_variables(b)
        if [each.name for each in variables] != [each.name for each in copies]:
            msg = f"the clone has different weights in {path!r}"
            raise ValueError(msg)
        for x, y in zip(variables, copies, strict=True):
            owner = contents.owner(x.variable)
            if owner is None:  # it has no value yet
                continue
            if contents.owner(pairs.setdefault(id(owner), y.variable)) is not contents.owner(y.variable):
                msg = f"the clone has two weights where {path!r} shares one"
                raise ValueError(msg)
    return pairs


def _copy_values(backend: Backend, old: Any, new: Any) -> None:
    """Copy the original's values to a copy, on their devices; leaves that Keras has not made there yet are skipped."""
    targets = {leaf.path: leaf for leaf in backend.leaves(new)}
    for leaf in backend.leaves(old):
        if leaf.path in targets:
            value = leaf.read()
            targets[leaf.path].write(backend.copy_to(value, backend.device_of(value)))


# ---------------------------------------------------------------------- optimizers
def _optimizer_of_clone(objects: Sequence[Any], clones: dict[int, Any], optimizer: Any) -> Any:
    """Return the optimizer of the copied model that was compiled with this one, or None."""
    owners = (obj for obj in objects if id(obj) in clones and getattr(obj, "optimizer", None) is optimizer)
    return next((clones[id(obj)].optimizer for obj in owners), None)


def _clone_optimizer(backend: Backend, contents: Contents, optimizer: Any, new_variables: dict[int, Any]) -> Any:
    new = type(optimizer).from_config(optimizer.get_config())
    if optimizer.built:
        _build_optimizer(contents, new, optimizer, new_variables)
    _copy_values(backend, optimizer, new)
    return new


def _build_optimizer(contents: Contents, new: Any, old: Any, new_variables: dict[int, Any]) -> None:
    variables = [new_variables.get(id(contents.owner(each))) for each in trained_variables(old)]
    if any(each is None for each in variables):
        msg = f"this {type(old).__name__} cannot be copied without the model whose variables it trains"
        raise UnsupportedError(msg, "copy both together: ds.copy([model, optimizer], device)")
    if not new.built:
        new.build(variables)
