"""Independent copies of models and optimizers.

Keras makes a layer anew from its configuration, as it does from a file, and the values of the first are copied; a
``tf.Module`` is copied by Python.  An optimizer's copy trains the copies of the variables that the first trains.
"""

from __future__ import annotations

import copy
import inspect
import random
import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from devshim import _refusals
from devshim.errors import DevshimError, UnsupportedError
from devshim_backends._tensorflow.contents import compiled_parts, configured_in, held, inside, is_layer, native, parts
from devshim_backends._tensorflow.optimizers import trained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from devshim_backends._tensorflow.models import TensorflowModels


def clones(backend: TensorflowModels, wholes: Sequence[Any]) -> list[Any]:
    """Copies of models and optimizers, of which each optimizer's is that of its model's copy.

    Raises:
        UnsupportedError: Keras or Python cannot copy one of them, or an optimizer is to be copied without its model.
    """
    made: dict[int, Any] = {}
    twins: dict[int, Any] = {}
    before = random.getstate()  # from which Keras draws the seeds of initializers that are not used
    try:
        for whole in wholes:
            if isinstance(whole, tf.Module) or is_layer(whole):
                made[id(whole)] = _model(backend, whole, twins)
        for whole in wholes:
            if id(whole) not in made:
                made[id(whole)] = _its_models(wholes, made, whole) or _optimizer(backend, whole, twins)
    except Exception as error:
        if isinstance(error, DevshimError) or not backend.is_out_of_memory(error):
            raise
        raise _refusals.no_room_for_clones(backend, wholes) from error
    finally:
        random.setstate(before)
    return [made[id(whole)] for whole in wholes]


def _model(backend: TensorflowModels, model: Any, twins: dict[int, Any]) -> Any:
    try:
        new = _made_anew(model) if is_layer(model) else copy.deepcopy(model, _anew_within(model))
        pairs = _pairs(model, new)
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise UnsupportedError(
            f"this {type(model).__name__} cannot be made a second time: {error}",
            "give its class get_config (Keras: 'Making new layers and models via subclassing'), or make another one "
            "and set its weights",
        ) from error
    twins.update(pairs)
    compiled = dict(compiled_parts(new))
    for path, old in compiled_parts(model):
        if path in compiled and old.optimizer is not None and old.optimizer.built:
            _build(compiled[path].optimizer, old.optimizer, twins)
    _copy_values(backend, model, new)
    return new


def _anew_within(module: Any) -> dict[int, Any]:
    """What of Keras is in a module, which Python cannot copy, by its `id`, and copies made in Keras' way."""
    made: dict[int, Any] = {}
    for _, part in parts(module):
        if not is_layer(part):
            made.update((id(x), _made_anew(x)) for _, x in inside(part) if is_layer(x) and id(x) not in made)
            made.update((id(x), type(x).from_config(x.get_config())) for x in configured_in(part))
    return made


def _made_anew(layer: Any) -> Any:
    """A layer of the same configuration, built for the same shapes, and compiled if the first is."""
    known = inspect.signature(type(layer)).parameters
    if "name" in known or any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return _deserialized(layer)
    # A class of which the constructor takes none of a layer's own options: Keras passes them, and fails.
    new = type(layer)(**{name: value for name, value in layer.get_config().items() if name in known})
    if layer.built and layer.get_build_config():
        new.build_from_config(layer.get_build_config())
    return new


def _deserialized(layer: Any) -> Any:
    from keras.src.saving.object_registration import CustomObjectScope
    from keras.src.saving.serialization_lib import (
        ObjectSharingScope,
        deserialize_keras_object,
        serialize_keras_object,
    )

    classes = {type(part).__name__: type(part) for _, part in parts(layer) if _is_custom(type(part))}
    with CustomObjectScope(classes):
        with ObjectSharingScope():  # a layer that stands in two places stays one
            written = serialize_keras_object(layer)
        with ObjectSharingScope():
            return deserialize_keras_object(written, safe_mode=False)  # it is the caller's own object


def _is_custom(cls: type) -> bool:
    return getattr(sys.modules.get("keras"), "__name__", "keras") != cls.__module__.partition(".")[0]


def _pairs(old: Any, new: Any) -> dict[int, Any]:
    """The variable of a copy for each variable of the original, by the `id` of that one's ``tf.Variable``.

    Raises:
        ValueError: The copy is another model.
    """
    pairs: dict[int, Any] = {}
    left, right = list(parts(old)), list(parts(new))
    if [part.path for part in left] != [part.path for part in right]:
        raise ValueError("its copy has other layers")
    for (path, a), (_, b) in zip(left, right, strict=True):
        mine, other = held(a), held(b)
        if [each.name for each in mine] != [each.name for each in other]:
            raise ValueError(f"its copy has other weights in {path!r}")
        for x, y in zip(mine, other, strict=True):
            if native(x.variable) is not None and native(pairs.setdefault(id(native(x.variable)), y.variable)) is not (
                native(y.variable)
            ):
                raise ValueError(f"its copy has two weights where {path!r} shares one")
    return pairs


def _copy_values(backend: TensorflowModels, old: Any, new: Any) -> None:
    """Give a copy the values of the original, on their devices; what Keras has not made there yet is left out."""
    there = {leaf.path: leaf for leaf in backend.leaves(new)}
    for leaf in backend.leaves(old):
        if leaf.path in there:
            value = leaf.read()
            there[leaf.path].write(backend.copy_to(value, backend.device_of(value)))


# ---------------------------------------------------------------------- optimizers
def _its_models(wholes: Sequence[Any], made: dict[int, Any], optimizer: Any) -> Any:
    """The optimizer of the copy of the model that was compiled with this one; None where there is none."""
    owners = (whole for whole in wholes if id(whole) in made and getattr(whole, "optimizer", None) is optimizer)
    return next((made[id(whole)].optimizer for whole in owners), None)


def _optimizer(backend: TensorflowModels, optimizer: Any, twins: dict[int, Any]) -> Any:
    new = type(optimizer).from_config(optimizer.get_config())
    if optimizer.built:
        _build(new, optimizer, twins)
    _copy_values(backend, optimizer, new)
    return new


def _build(new: Any, old: Any, twins: dict[int, Any]) -> None:
    variables = [twins.get(id(native(each))) for each in trained(old)]
    if any(each is None for each in variables):
        raise UnsupportedError(
            f"a copy of this {type(old).__name__} alone would train copies of variables that no model has",
            "copy it together with its model: ds.copy([model, optimizer], device)",
        )
    if not new.built:
        new.build(variables)
