"""Independent copies of models: Keras rebuilds its own models, and Python deep-copies a ``tf.Module``."""

from __future__ import annotations

import copy
from typing import Any

from devshim_backends._keras.cloning import rebuild_layer
from devshim_backends._tensorflow.models.align_devices import allow_mixed_devices
from devshim_backends._tensorflow.models.traversal import CONTENTS, children, is_layer, is_metric, parts

__all__ = ["clone_model"]


def clone_model(model: Any) -> Any:
    """Return a model of the same structure; the caller still has to copy the values into it."""
    if is_layer(model) or is_metric(model):
        return rebuild_layer(CONTENTS, model)
    with allow_mixed_devices():  # Python's copies of variables are created in the scope of the caller
        return copy.deepcopy(model, _clone_keras_objects(model))


def _clone_keras_objects(module: Any) -> dict[int, Any]:
    """Return clones of the Keras objects in a module, by `id`: Keras makes them, because Python cannot copy them."""
    result: dict[int, Any] = {}
    for _, part in parts(module):
        if not is_layer(part):
            result.update(
                (id(x), rebuild_layer(CONTENTS, x)) for _, x in children(part) if is_layer(x) and id(x) not in result
            )
            result.update((id(x), type(x).from_config(x.get_config())) for x in CONTENTS.metrics_and_seeds_in(part))
    return result
