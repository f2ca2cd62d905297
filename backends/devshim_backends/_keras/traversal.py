"""The variables of Keras layers, and the key path of each.

Requirements of this module:

* A leaf's name is made of the names of the layers that lead to it. It is the same for an equal model that is made again
  in the same process: Keras numbers unnamed layers continuously (``dense_17``), and devshim numbers them per model.
* In a native module of the framework (``tf.Module``), names are those of attributes, also through lists and
  dictionaries; Keras layers in it are found.
* A variable with two names is listed under both.

Keras is not imported here: a program that has a layer has imported it.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.models import Kind

__all__ = [
    "Contents",
    "NamedVariable",
    "is_keras",
    "is_layer",
    "is_model_or_optimizer",
    "is_optimizer",
    "is_variable",
]

_IGNORED = frozenset({"_devshim_hook", "_tracker"})
_VARIABLES = frozenset({"Variable", "KerasVariable"})
_PLAIN = frozenset({type(None), bool, int, float, str})
"""Types of most attributes of a layer, which contain nothing that moves."""


class NamedVariable(NamedTuple):
    """A variable of a part.

    Attributes:
        name: The part's name for it.
        variable: The Keras variable, or the framework's own.
        kind: The kind of leaf.
    """

    name: str
    variable: Any
    kind: Kind


class NamedLayer(NamedTuple):
    """A layer or module of a model, and its key path, which is empty for the model."""

    path: str
    obj: Any


def is_keras(x: object, name: str) -> bool:
    """Return True if an object is of one of Keras 3's public classes, without importing them."""
    found: Any = sys.modules.get("keras")
    for each in name.split("."):
        found = getattr(found, each, None)
    return isinstance(found, type) and isinstance(x, found)


def is_layer(x: object) -> bool:
    """Return True for a Keras layer or model."""
    return is_keras(x, "Layer")


def is_metric(x: object) -> bool:
    """Return True for a Keras metric."""
    return is_keras(x, "Metric")


def is_optimizer(x: object) -> bool:
    """Return True for a Keras optimizer."""
    return is_keras(x, "optimizers.Optimizer")


def is_variable(x: object) -> bool:
    """Return True for a Keras variable; before Keras 3.8, ``keras.Variable`` is a separate class."""
    cls = type(x)
    if not any(base.__name__ in _VARIABLES and base.__module__.startswith("keras.") for base in cls.__mro__):
        return False
    return hasattr(x, "_value") and hasattr(x, "_trainable")


def is_model_or_optimizer(cls: type) -> bool:
    """Return True if instances of a class are Keras layers, models, optimizers, metrics or variables."""
    names = {base.__name__ for base in cls.__mro__ if base.__module__.startswith("keras.")}
    return not names.isdisjoint({"Layer", "Optimizer", "BaseOptimizer", "Metric", *_VARIABLES})


class Contents:
    """The contents of Keras objects; an adapter's subclass adds the native objects of its framework."""

    def is_module(self, x: object) -> bool:
        """Return True for a native module of the framework, whose attributes are searched like a layer's."""
        return False

    def is_native(self, x: object) -> bool:
        """Return True for a native variable of the framework."""
        return False

    def owner(self, variable: Any) -> Any:
        """Return the object with a variable's data, which is moved once even if it is shared; None without a value."""
        raise NotImplementedError

    def states(self, name: str, x: object) -> list[NamedVariable]:
        """Return other values in an attribute, such as a native generator of the framework."""
        return []

    # ------------------------------------------------------------------ parts
    def parts(self, obj: Any) -> Iterator[NamedLayer]:
        """Yield a model and every layer and module in it, each under every name that it has."""
        yield from self._parts("", obj, ())

    def _parts(self, path: str, obj: Any, above: tuple[int, ...]) -> Iterator[NamedLayer]:
        yield NamedLayer(path, obj)
        for name, child in self.children(obj):
            if id(child) not in above and child is not obj:
                yield from self._parts(f"{path}.{name}" if path else name, child, (*above, id(obj)))

    def compiled_parts(self, obj: Any) -> list[NamedLayer]:
        """Return the model and sublayers on which ``compile`` was called, once each: for example, a GAN's halves."""
        found = {
            id(part): NamedLayer(path, part) for path, part in reversed(list(self.parts(obj))) if _is_compiled(part)
        }
        return list(reversed(found.values()))

    def compiled_metrics(self, model: Any) -> list[Any]:
        """Return the metrics that ``compile`` gave a model, including the tracker of its loss."""
        known = {id(metric) for _, part in self.parts(model) for _, metric in self.metrics_in(part)}
        known |= {id(metric) for path, part in self.compiled_parts(model) if path for metric in part.metrics}
        return [metric for metric in model.metrics if id(metric) not in known]

    def children(self, obj: Any) -> list[tuple[str, Any]]:
        """Return the layers and modules directly in a layer or module, with their names."""
        if is_layer(obj):
            layers = [each for each in obj._layers if type(each).__name__ != "InputLayer"]
            found = list(zip(_renumber([(each.name, type(each).__name__) for each in layers]), layers, strict=True))
            return found + [(name, x) for name, x in _attributes(obj) if self.is_module(x)]
        if not self.is_module(obj):
            return []  # a metric, whose contents `named_variables` lists
        return [(name, x) for name, x in _attributes(obj) if self.is_module(x) or is_layer(x)]

    def metrics_in(self, obj: Any) -> list[tuple[str, Any]]:
        """Return the metrics directly in a layer or module, with their names, without those from ``compile``."""
        if is_layer(obj):
            found = list(obj._metrics)
            return list(zip(_renumber([(each.name, type(each).__name__) for each in found]), found, strict=True))
        return [(name, x) for name, x in _attributes(obj) if is_metric(x)] if self.is_module(obj) else []

    def metrics_and_seeds_in(self, obj: Any) -> list[Any]:
        """Return the metrics and seed generators among a module's attributes."""
        return [x for _, x in _attributes(obj) if is_metric(x) or is_keras(x, "random.SeedGenerator")]

    # ------------------------------------------------------------------ variables
    def named_variables(self, obj: Any) -> list[NamedVariable]:
        """Return the variables directly in a layer, module or metric, and the states of its random generators."""
        if is_metric(obj):
            names = _renumber([(each.name, "Variable") for each in obj.variables])
            return [NamedVariable(name, each, "state") for name, each in zip(names, obj.variables, strict=True)]
        if not is_layer(obj):
            return self._attribute_variables(obj)
        trained = len(obj._trainable_variables)
        seeds = [each.state for each in obj._seed_generators]
        own = [*obj._trainable_variables, *obj._non_trainable_variables, *seeds]
        names = _renumber([(each.name, "Variable") for each in own])
        made = [
            NamedVariable(name, each, "parameter" if i < trained else "buffer")
            for i, (name, each) in enumerate(zip(names, own, strict=True))
        ]
        known = {id(each.variable) for each in made} | {id(x) for layer in obj._layers for x in layer.variables}
        return made + [each for each in self._attribute_variables(obj) if id(each.variable) not in known]

    def _attribute_variables(self, obj: Any) -> list[NamedVariable]:
        """Return the variables, seed generators and generators among the attributes of a module."""
        found = []
        for name, x in _attributes(obj):
            if self.is_native(x) or is_variable(x):
                found.append(NamedVariable(name, x, "parameter" if x.trainable else "buffer"))
            elif is_keras(x, "random.SeedGenerator"):
                found.append(NamedVariable(f"{name}.{x.state.name}", x.state, "buffer"))
            else:
                found += self.states(name, x)
        return found


def _is_compiled(part: Any) -> bool:
    return is_keras(part, "Model") and part.compiled and hasattr(part, "optimizer")


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, and the items of lists, tuples and dictionaries, in alphabetical order.

    Numbers, strings and None are omitted. So are a layer's private lists: they belong to Keras, and their contents are
    listed under their names.
    """
    hidden: frozenset[str] = getattr(type(obj), "_TF_MODULE_IGNORED_PROPERTIES", frozenset())
    private_lists = is_layer(obj)
    for name, x in sorted(vars(obj).items()):
        if type(x) in _PLAIN or name in hidden or name in _IGNORED or name.startswith("_self_"):
            continue
        if not (private_lists and name.startswith("_") and isinstance(x, (list, tuple, dict))):
            yield from _items(name.lstrip("_") or name, x)


def _items(name: str, x: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(x, dict):
        for key in x:
            yield from _items(f"{name}.{key}", x[key])
    elif isinstance(x, (list, tuple)):
        for i, each in enumerate(x):
            yield from _items(f"{name}.{i}", each)
    elif type(x) not in _PLAIN:
        yield name, x


# ---------------------------------------------------------------------- names
def _renumber(named: list[tuple[str, str]]) -> list[str]:
    """Return unique names for siblings: numbers that Keras counts per process are replaced by numbers among siblings.

    Args:
        named: The name of each sibling, and the name of its class.
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
    """Return a class's name as Keras makes a layer's name of it: ``BatchNormalization`` -> ``batch_normalization``."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
