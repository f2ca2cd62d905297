"""The leaves of Keras models when PyTorch is the backend of Keras.

A Keras layer is then a ``torch.nn.Module``, whose parameters are in dictionaries under names that Keras numbers
continuously in a process; and Keras's optimizers, metrics and states of random numbers are not modules. So this module
lists leaves as Keras does, under the names that they have with other backends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from devshim_backends._keras.traversal import Contents, NamedVariable, is_layer, is_variable
from devshim_backends._torch.models.storage_swap import leaves_of_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.models import Leaf

__all__ = ["CONTENTS", "leaves_of_variable"]


class TorchContents(Contents):
    """The contents of Keras objects, including native PyTorch modules that Keras wraps (``TorchModuleWrapper``)."""

    def owner(self, variable: Any) -> Any:
        return variable._value if is_variable(variable) else variable

    def named_variables(self, obj: Any) -> list[NamedVariable]:
        found = super().named_variables(obj)
        wrapped = list(_native_tensors(obj)) if is_layer(obj) else []
        known = {id(each.variable) for each in wrapped}
        return [each for each in found if id(self.owner(each.variable)) not in known] + wrapped


def _native_tensors(layer: Any) -> Iterator[NamedVariable]:
    """Yield the tensors of native PyTorch modules in a layer; Keras lists their parameters without names."""
    for name, module in layer._modules.items():
        if module is None or name == "_torch_params" or is_layer(module):
            continue
        for path, tensor in module.named_parameters():
            yield NamedVariable(f"{name}.{path}", tensor, "parameter")
        for path, tensor in module.named_buffers():
            yield NamedVariable(f"{name}.{path}", tensor, "buffer")


CONTENTS = TorchContents()


def leaves_of_variable(path: str, kind: Any, variable: Any, follows: Any) -> Iterator[Leaf]:
    """Return the leaf of a Keras variable, then the leaf of its gradient; a variable without a value has none."""
    tensor = CONTENTS.owner(variable)
    return iter(()) if tensor is None else leaves_of_tensor(path, kind, tensor, follows)


def device_of(obj: Any) -> torch.device | None:
    """Return the device of the last of a model's weights; None for a model without weights."""
    found = None
    for _, part in CONTENTS.parts(obj):
        for each in CONTENTS.named_variables(part):
            tensor = CONTENTS.owner(each.variable)
            found = found if tensor is None else tensor.device
    return found


def first_device_of(layer: Any) -> torch.device | None:
    """Return the device of the first weight found in a layer, without a full traversal; None without weights."""
    for held in (layer._trainable_variables, layer._non_trainable_variables):
        for variable in held:
            if variable._value is not None:
                device: torch.device = variable._value.device
                return device
    for each in layer._layers:
        found = first_device_of(each)
        if found is not None:
            return found
    return None
