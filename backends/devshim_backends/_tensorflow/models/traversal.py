"""The variables of Keras models and ``tf.Module`` objects, which `devshim_backends._keras.traversal` helps to find.

``tf.Module.variables`` skips Keras layers, which are not modules in Keras 3; this module finds them.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from devshim_backends._keras.traversal import Contents, NamedVariable, is_keras, is_layer, is_metric, is_optimizer

__all__ = [
    "CONTENTS",
    "children",
    "compiled_parts",
    "is_keras",
    "is_layer",
    "is_metric",
    "is_optimizer",
    "is_part",
    "named_variables",
    "native",
    "parts",
]


class TensorflowContents(Contents):
    """The contents of Keras models that may include ``tf.Module``, ``tf.Variable`` and ``tf.random.Generator``."""

    def is_module(self, x: object) -> bool:
        return isinstance(x, tf.Module)

    def is_native(self, x: object) -> bool:
        return isinstance(x, tf.Variable)

    def owner(self, variable: Any) -> Any:
        return native(variable)

    def states(self, name: str, x: object) -> list[NamedVariable]:
        return [NamedVariable(name, x.state, "buffer")] if isinstance(x, tf.random.Generator) else []


CONTENTS = TensorflowContents()
parts, named_variables, children = CONTENTS.parts, CONTENTS.named_variables, CONTENTS.children
compiled_parts = CONTENTS.compiled_parts


def is_part(x: object) -> bool:
    """Return True for a module, layer or metric: what an adapter moves besides optimizers."""
    return isinstance(x, tf.Module) or is_layer(x) or is_metric(x)


def native(variable: Any) -> Any:
    """Return the ``tf.Variable`` of a TensorFlow or Keras variable, or None if it has no value yet."""
    return variable if isinstance(variable, tf.Variable) else variable._value
