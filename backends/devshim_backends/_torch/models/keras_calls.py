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
from devshim_backends._torch.models import keras_split_forward
from devshim_backends._torch.models.align_devices import RUN, carry
from devshim_backends._torch.models.keras_scopes import FOLLOWING, Within, found_in, value_of
from devshim_backends._torch.models.keras_traversal import CONTENTS, device_of, first_device_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Backend

    Call = Callable[..., Any]

__all__ = [
    "added",
    "applied",
    "batches_found",
    "compiled",
    "drawn",
    "layer_built",
    "layer_called",
    "loss_called",
    "metric_called",
]
__all__ += ["optimizer_built", "serve", "step_made"]

_BACKEND: list[Backend] = []
"""The adapter, in a list that is empty until `serve`."""


def serve(backend: Backend) -> None:
    """Store the adapter, which brings variables to their devices."""
    _BACKEND[:] = [backend]


def carried(tree: Any, device: torch.device) -> Any:
    """Return a tree of arguments with its tensors on a device."""
    return pytree.tree_map_only(torch.Tensor, lambda x: carry(x, device), tree)


# ---------------------------------------------------------------------- layers
def layer_called(theirs: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    """Call a layer on the device of its inputs, or of its weights if the inputs have no device."""
    if RUN.devices is not None or keras_split_forward.spans(layer):
        return keras_split_forward.called(theirs, layer, args, kwargs)
    if FOLLOWING.device is not None:
        return theirs(layer, *args, **kwargs)
    home = planned_device(layer)
    device = found_in((args, kwargs)) if home is None else native(home)
    if device is None:
        device = first_device_of(layer)
    if device is None:
        return theirs(layer, *args, **kwargs)
    with Within(device, carries=False):
        result = theirs(layer, *args, **kwargs)
    if home is not None:
        move_new_variables(_BACKEND[0], CONTENTS, layer)
    return result


def layer_built(theirs: Call, layer: Any, args: Any, kwargs: Any) -> Any:
    """Bring newly built weights to the device that the layer was placed on."""
    result = theirs(layer, *args, **kwargs)
    if planned_device(layer) is not None:
        move_new_variables(_BACKEND[0], CONTENTS, layer)
    return result


def added(theirs: Call, obj: Any, args: Any, kwargs: Any) -> Any:
    """Add a weight or layer on the device of the existing ones."""
    return add_on_device(_BACKEND[0], CONTENTS, obj, lambda: theirs(obj, *args, **kwargs))


# ---------------------------------------------------------------------- losses, metrics, random numbers
def loss_called(theirs: Call, loss: Any, args: Any, kwargs: Any) -> Any:
    """Compute a loss on the device of the predictions, or else of the labels."""
    predicted = args[1:2] or (kwargs.get("y_pred"),)
    device = None if FOLLOWING.device is not None else found_in((predicted, args, kwargs))
    if device is None:
        return theirs(loss, *args, **kwargs)
    with Within(device, carries=False):
        return theirs(loss, *args, **kwargs)


def metric_called(theirs: Call, metric: Any, args: Any, kwargs: Any) -> Any:
    """Compute a metric on the device of its own variables; without variables, on the device of its arguments."""
    device = found_in(metric.variables)
    if device is not None:
        args, kwargs = carried((args, kwargs), device)
    else:
        device = found_in((args, kwargs))
    if device is None:
        return theirs(metric, *args, **kwargs)
    with Within(device, carries=True):
        return theirs(metric, *args, **kwargs)


def drawn(theirs: Call, seeds: Any, args: Any, kwargs: Any) -> Any:
    """Draw the next seed on the device of the generator's state."""
    device = found_in([seeds.state])
    if device is None:
        return theirs(seeds, *args, **kwargs)
    with Within(device, carries=True):
        return theirs(seeds, *args, **kwargs)


# ---------------------------------------------------------------------- training
def compiled(theirs: Call, model: Any, args: Any, kwargs: Any) -> Any:
    """Bring the metrics and optimizer that ``compile`` gave a model to the device of the weights they belong to."""
    result = theirs(model, *args, **kwargs)
    move_states_to_weights(_BACKEND[0], model)
    return result


def step_made(name: str, theirs: Call, model: Any, args: Any, kwargs: Any) -> Any:
    """Make a new training step copy its batch to the model's device: Keras's data comes from the host."""
    move_new_variables(_BACKEND[0], CONTENTS, model)
    result = theirs(model, *args, **kwargs)
    made = getattr(model, name)
    if made is None or hasattr(made, ORIGINAL):
        return result

    def step(data: Any) -> Any:
        device = device_of(model)
        if device is None:
            return made(data)
        with Within(device, carries=True):
            return made(data if keras_split_forward.spans(model) else carried(data, device))

    setattr(step, ORIGINAL, made)
    setattr(model, name, step)
    return result if result is None else step


def batches_found(theirs: Call, batches: Any, args: Any, kwargs: Any) -> Any:
    """Make batches on the host, whatever the scope: PyTorch (2.13) would shuffle them on the scope's device.

    That fails, because the generator is the host's. The training step copies each batch to the model.
    """
    with torch.device("cpu"):
        return _OnHost(theirs(batches, *args, **kwargs))


class _OnHost:
    """Batches that are made on the host, even inside a scope of another device."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        with torch.device("cpu"):
            batches = iter(self._batches)
        while True:
            with torch.device("cpu"):  # not around `yield`: the caller has a scope of its own
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch


def optimizer_built(theirs: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Make an optimizer create its state on the device of the variables, and bring its existing state there."""
    variables = args[0] if args else kwargs.get("variables", ())
    device = found_in(variables)
    if device is None:
        return theirs(optimizer, *args, **kwargs)
    with Within(device, carries=True):
        result = theirs(optimizer, *args, **kwargs)
    if optimizer.built:
        move_states_to_weights(_BACKEND[0], optimizer)
    return result


def applied(theirs: Call, optimizer: Any, args: Any, kwargs: Any) -> Any:
    """Apply gradients on the device of the variables, which may have moved since the gradients were computed."""
    given = list(args)
    gradients = given[0] if given else kwargs["grads"]
    variables = given[1] if len(given) > 1 else kwargs.get("trainable_variables")
    variables = optimizer._trainable_variables if variables is None else list(variables)
    device = found_in(variables)
    if device is None:
        return theirs(optimizer, *args, **kwargs)
    tensors = [value_of(each) for each in variables]
    gradients = [g if g is None or x is None else carry(g, x.device) for g, x in zip(gradients, tensors, strict=False)]
    with Within(device, carries=True):
        return theirs(optimizer, gradients, variables)
