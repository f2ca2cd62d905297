"""What Keras layers and ``tf.Module`` objects are made of, and what each part is called.

Requirements this module answers:

* A leaf's name is made of the names of the layers that lead to it, and is the same for an equal model made anew in the
  same process: Keras numbers layers without a name on and on (``dense_17``), here they are numbered within their model.
* Of a ``tf.Module`` the names are those of its attributes, through lists and dictionaries, too; Keras layers in it are
  found, which ``tf.Module.variables`` leaves out (Keras 3 layers are no modules).
* What two names lead to is listed under both.

Keras is not imported here: whoever has a layer has imported it.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.wholes import Kind

__all__ = ["Held", "Part", "compiled_parts", "configured_in", "held", "inside", "is_keras", "is_layer", "is_metric"]
__all__ += ["is_optimizer", "is_variable", "metrics_in", "native", "parts"]

_IGNORED = frozenset({"_devshim_wire", "_tracker"})


class Held(NamedTuple):
    """A variable of a part.

    Attributes:
        name: What the part calls it.
        variable: The ``tf.Variable`` or Keras variable itself.
        kind: What kind of leaf it is.
    """

    name: str
    variable: Any
    kind: Kind


class Part(NamedTuple):
    """A layer or module of a model, and the path that leads to it; empty for the model."""

    path: str
    whole: Any


def is_keras(x: object, name: str) -> bool:
    """Whether an object is of one of Keras 3's public classes, which need not be imported."""
    found: Any = sys.modules.get("keras")
    for each in name.split("."):
        found = getattr(found, each, None)
    return isinstance(found, type) and isinstance(x, found)


def is_layer(x: object) -> bool:
    """Whether it is a Keras layer or model."""
    return is_keras(x, "Layer")


def is_metric(x: object) -> bool:
    """Whether it is a Keras metric."""
    return is_keras(x, "Metric")


def is_optimizer(x: object) -> bool:
    """Whether it is a Keras optimizer."""
    return is_keras(x, "optimizers.Optimizer")


def is_variable(x: object) -> bool:
    """Whether it is a variable of Keras'; ``keras.Variable`` is a class apart in Keras before 3.8."""
    return isinstance(x, tf.__internal__.types.Tensor) and hasattr(x, "_value") and hasattr(x, "_trainable")


def native(variable: Any) -> Any:
    """The ``tf.Variable`` of a variable of TensorFlow's or Keras'; None for one that has no value yet."""
    return variable if isinstance(variable, tf.Variable) else variable._value


def parts(whole: Any) -> Iterator[Part]:
    """Yield a model and every layer and module in it, each under every name that leads to it."""
    yield from _parts("", whole, ())


def _parts(path: str, whole: Any, above: tuple[int, ...]) -> Iterator[Part]:
    yield Part(path, whole)
    for name, child in inside(whole):
        if id(child) not in above and child is not whole:
            yield from _parts(f"{path}.{name}" if path else name, child, (*above, id(whole)))


def compiled_parts(whole: Any) -> list[Part]:
    """A model, and the layers in it, that ``compile`` was called on, once each: the halves of a GAN, say."""
    found = {id(part): Part(path, part) for path, part in reversed(list(parts(whole))) if _is_compiled(part)}
    return list(reversed(found.values()))


def _is_compiled(part: Any) -> bool:
    return is_keras(part, "Model") and part.compiled and hasattr(part, "optimizer")


# ---------------------------------------------------------------------- what is in it
def inside(whole: Any) -> list[tuple[str, Any]]:
    """The layers and modules directly in a layer or module, with their names."""
    if is_layer(whole):
        layers = [each for each in whole._layers if type(each).__name__ != "InputLayer"]
        found = list(zip(_renumbered([(each.name, type(each).__name__) for each in layers]), layers, strict=True))
        return found + [(name, x) for name, x in _attributes(whole) if isinstance(x, tf.Module)]
    return [(name, x) for name, x in _attributes(whole) if isinstance(x, tf.Module) or is_layer(x)]


def metrics_in(whole: Any) -> list[tuple[str, Any]]:
    """The metrics directly in a layer or module, with their names; those of ``compile`` are no part of it."""
    if is_layer(whole):
        found = list(whole._metrics)
        return list(zip(_renumbered([(each.name, type(each).__name__) for each in found]), found, strict=True))
    return [(name, x) for name, x in _attributes(whole) if is_metric(x)]


def configured_in(whole: Any) -> list[Any]:
    """The metrics and seed generators among a module's attributes."""
    return [x for _, x in _attributes(whole) if is_metric(x) or is_keras(x, "random.SeedGenerator")]


def held(whole: Any) -> list[Held]:
    """The variables directly in a layer, module or metric, and the states of its random numbers."""
    if is_metric(whole):
        names = _renumbered([(each.name, "Variable") for each in whole.variables])
        return [Held(name, each, "state") for name, each in zip(names, whole.variables, strict=True)]
    if not is_layer(whole):
        return _of_attributes(whole)
    trained = len(whole._trainable_variables)
    seeds = [each.state for each in whole._seed_generators]
    own = [*whole._trainable_variables, *whole._non_trainable_variables, *seeds]
    names = _renumbered([(each.name, "Variable") for each in own])
    made = [
        Held(name, each, "parameter" if i < trained else "buffer")
        for i, (name, each) in enumerate(zip(names, own, strict=True))
    ]
    known = {id(each.variable) for each in made} | {id(x) for layer in whole._layers for x in layer.variables}
    return made + [each for each in _of_attributes(whole) if id(each.variable) not in known]


def _of_attributes(whole: Any) -> list[Held]:
    """The variables, seed generators and generators among the attributes of a module."""
    found = []
    for name, x in _attributes(whole):
        if isinstance(x, tf.Variable) or is_variable(x):
            found.append(Held(name, x, "parameter" if x.trainable else "buffer"))
        elif is_keras(x, "random.SeedGenerator"):
            found.append(Held(f"{name}.{x.state.name}", x.state, "buffer"))
        elif isinstance(x, tf.random.Generator):
            found.append(Held(name, x.state, "buffer"))
    return found


def _attributes(whole: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object, and what lists, tuples and dictionaries among them hold, in alphabetical order.

    A layer's private lists are left out: they are Keras' own, and hold what has a place by its name.
    """
    hidden: frozenset[str] = getattr(type(whole), "_TF_MODULE_IGNORED_PROPERTIES", frozenset())
    for name, x in sorted(vars(whole).items()):
        if name in hidden or name in _IGNORED or name.startswith("_self_"):
            continue
        if not (name.startswith("_") and is_layer(whole) and isinstance(x, (list, tuple, dict))):
            yield from _items(name.lstrip("_") or name, x)


def _items(name: str, x: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(x, dict):
        for key in x:
            yield from _items(f"{name}.{key}", x[key])
    elif isinstance(x, (list, tuple)):
        for i, each in enumerate(x):
            yield from _items(f"{name}.{i}", each)
    else:
        yield name, x


# ---------------------------------------------------------------------- names
def _renumbered(named: list[tuple[str, str]]) -> list[str]:
    """Names of siblings, with what Keras numbered in the process numbered among them, and no name twice.

    Args:
        named: Each one's name, and that of its class.
    """
    counts: dict[str, int] = {}
    made = []
    for name, cls in named:
        stem, _, number = name.rpartition("_")
        automatic = stem.removeprefix("forward_").removeprefix("backward_") == _snake(cls)  # Bidirectional's prefixes
        base = stem if number.isdecimal() and automatic else name
        seen = counts.get(base, 0)
        counts[base] = seen + 1
        made.append(f"{base}_{seen}" if seen else base)
    return made


def _snake(name: str) -> str:
    """A class's name as Keras makes a layer's name of it: ``BatchNormalization`` -> ``batch_normalization``."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
