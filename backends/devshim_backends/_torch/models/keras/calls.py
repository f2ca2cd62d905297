"""Patches around the calls of Keras layers, losses, metrics, optimizers and training steps with PyTorch.

Each function receives the original method of Keras, the object, and the arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from devshim_backends._keras.building import add_on_device, move_new_variables, move_states_to_weights, planned_device
from devshim_backends._keras.patching import ORIGINAL
from devshim_backends._torch.devices import native
from devshim_backends._torch.models.align_devices import FORWARD, to_device
from devshim_backends._torch.models.keras import split_forward
from devshim_backends._torch.models.keras.internals.scopes import CURRENT, ComputeOn, find_device, tensor_of
from devshim_backends._torch.models.keras.traversal import CONTENTS, device_of, first_device_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Backend

    Call = Callable[..., Any]

__all__ = [
    "add_item",
    "apply_gradients",
    "build_layer",
    "call_layer",
    "call_loss",
    "call_metric",
    "compile_model",
    "get_batches",
    "next_seed",
]
__all__ += ["build_optimizer", "make_step", "set_backend"]

_BACKEND: list[Backend] = []
"""The adapter, in a list that is empty until `set_backend` is called."""


def set_backend(backend: Backend) -> None:
    """Store the adapter, which brings variables to their devices."""
    _BACKEND[:] = [backend]


def copy_tree(tree: Any, device: torch.device) -> Any:
    """Return a tree of arguments with its tensors on a device."""
    return pytree.tree_map_only(torch.Tensor, lambda x: to_device(x, device), tree)


def _call_on(device: torch.device | None, copies: bool, original: Call, obj: Any, args: Any, kwargs: Any) -> Any:
    """Call a method of Keras with a device to compute on; if the device is None, Keras chooses one."""
    if device is None:
        return original(obj, *args, **kwargs)
    with ComputeOn(device, copies=copies):
        return original(obj, *args, **kwargs)


# ---------------------------------------------------------------------- layers
def call_layer(original: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    """Call a layer on the device of its inputs, or of its weights if the inputs have no device."""
    if FORWARD.devices is not None or split_forward.is_split(layer):
        return split_forward.call_part(original, layer, args, kwargs)
    if CURRENT.device is not None:
        return original(layer, *args, **kwargs)
    home = planned_device(layer)
    device = find_device((args, kwargs)) if home is None else native(home)
    result = _call_on(device or first_device_of(layer), False, original, layer, args, kwargs)
    if home is not None:
        move_new_variables(_BACKEND[0], CONTENTS, layer)
    return result


def build_layer(original: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    """Bring newly built weights to the device that the layer was placed on."""
    result = original(layer, *args, **kwargs)
    if planned_device(layer) is not None:
        move_new_variables(_BACKEND[0], CONTENTS, layer)
    return result


def add_item(original: Call, obj: Any, args: Any, kwargs: Any) -> Any:
    """Add a weight or layer on the device of the existing ones."""
    return add_on_device(_BACKEND[0], CONTENTS, obj, lambda: original(obj, *args, **kwargs))


# ---------------------------------------------------------------------- losses, metrics, random numbers
def call_loss(original: Call, loss: Any, args: Any, kwargs: Any) -> Any:
    """Compute a loss on the device of the predictions, or else of the labels."""
    predicted = args[1:2] or (kwargs.get("y_pred"),)
    device = None if CURRENT.device is not None else find_device((predicted, args, kwargs))
    return _call_on(device, False, original, loss, args, kwargs)


def call_metric(original: Call, metric: Any, args: Any, kwargs: Any) -> Any:
    """Compute a metric on the device of its own variables; without variables, on the device of its arguments."""
    device = find_device(metric.variables)
    if device is not None:
        args, kwargs = copy_tree((args, kwargs), device)
    else:
        device = find_device((args, kwargs))
    return _call_on(device, True, original, metric, args, kwargs)


def next_seed(original: Call, seeds: Any, args: Any, kwargs: Any) -> Any:
    """Draw the next seed on the device of the generator's state."""
    return _call_on(find_device([seeds.state]), True, original, seeds, args, kwargs)


# ---------------------------------------------------------------------- training
def compile_model(original: Call, model: Any, args: Any, kwargs: Any) -> Any:
    """Bring the metrics and optimizer that ``compile`` gave a model to the device of the weights they belong to."""
    result = original(model, *args, **kwargs)
    move_states_to_weights(_BACKEND[0], model)
    return result


def make_step(name: str, original: Call, model: Any, args: Any, kwargs: Any) -> Any:
    """Make a new training step copy its batch to the model's device: Keras's data comes from the host."""
    move_new_variables(_BACKEND[0], CONTENTS, model)
    result = original(model, *args, **kwargs)
    keras_step = getattr(model, name)
    if keras_step is None or hasattr(keras_step, ORIGINAL):
        return result

    def step(data: Any) -> Any:
        device = device_of(model)
        if device is None:
            return keras_step(data)
        with ComputeOn(device, copies=True):
            return keras_step(data if split_forward.is_split(model) else copy_tree(data, device))

    setattr(step, ORIGINAL, keras_step)
    setattr(model, name, step)
    return result if result is None else step


def get_batches(original: Call, batches: Any, args: Any, kwargs: Any) -> Any:
    """Make batches on the host, regardless of the scope: PyTorch (2.13) would shuffle them on the scope's device.

    That fails, because the generator is the host's. The training step copies each batch to the model.
    """
    with torch.device("cpu"):
        return _HostBatches(original(batches, *args, **kwargs))


class _HostBatches:
    """Batches that are made on the host, even inside a scope of another device."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        with torch.device("cpu"):
            batches = iter(self._batches)
        while True:
            with torch.device("cpu"):  # not around `yield`: the caller has its own scope
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch


def build_optimizer(original: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Make an optimizer create its state on the device of the variables, and bring its existing state there."""
    variables = args[0] if args else kwargs.get("variables", ())
    device = find_device(variables)
    result = _call_on(device, True, original, optimizer, args, kwargs)
    if device is not None and optimizer.built:
        move_states_to_weights(_BACKEND[0], optimizer)
    return result


def apply_gradients(original: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Apply gradients on the device of the variables, which may have moved since the gradients were computed."""
    gradients = args[0] if args else kwargs["grads"]
    variables = args[1] if len(args) > 1 else kwargs.get("trainable_variables")
    variables = optimizer._trainable_variables if variables is None else list(variables)
    device = find_device(variables)
    if device is None:
        return original(optimizer, *args, **kwargs)
    pairs = zip(gradients, map(tensor_of, variables), strict=False)
    gradients = [g if g is None or x is None else to_device(g, x.device) for g, x in pairs]
    with ComputeOn(device, copies=True):
        return original(optimizer, gradients, variables)
