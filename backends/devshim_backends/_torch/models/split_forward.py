"""The forward pass of a split model: inputs are copied to each part, and operands in its own code are aligned.

Requirements this module answers:

* A part on one device gets its inputs there, in whatever tree of tensors they are, and gradients flow back.
* The results of parts can be operands in the code of the module that has the parts (a residual connection, a
  concatenation, a weight used without its module): see `devshim_backends._torch.models.align_devices`.
* The result is on the device of the part that ran last.
* The locations of parts are not stored: `copy.deepcopy`, `pickle` and PyTorch's own ``to`` produce a model that works.
* An exception, including Ctrl-C, leaves no state behind.
"""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from devshim_backends._torch.models.align_devices import RUN, Meeting, carry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from devshim.contract.backend import Tensor


# ---------------------------------------------------------------------- the devices of a module's tensors
def devices_of(module: Any) -> dict[Any, None]:
    """Return the devices of all parameters and buffers in a module and its submodules, in their order."""
    return {tensor.device: None for tensor in _tensors(module)}


def own_devices_of(module: Any) -> dict[Any, None]:
    """Return the devices of the tensors that a module's own code computes with."""
    if isinstance(module, torch.nn.MultiheadAttention):  # it uses the weight of its submodule, and never calls it
        return devices_of(module)
    found = {tensor.device: None for tensor in _direct(module)}
    parametrized = module._modules.get("parametrizations")
    return found if parametrized is None else {**found, **devices_of(parametrized)}


def _direct(module: Any) -> Iterator[Tensor]:
    for held in (module._parameters, module._buffers):
        yield from (tensor for tensor in held.values() if tensor is not None)


def _tensors(module: Any) -> Iterator[Tensor]:
    for each in module.modules():
        yield from _direct(each)


# ---------------------------------------------------------------------- parts on one device
def carry_inputs(module: Any, args: Any, kwargs: Any) -> Any:
    """Copy the inputs of a part to its device; this is a forward pre-hook."""
    device = next(_tensors(module)).device
    if not torch.compiler.is_compiling():
        RUN.ran(device)
    if all(_stays(x, device) for x in args) and all(_stays(x, device) for x in kwargs.values()):
        return None  # the fast path for most parts, whose input comes from the same device
    return pytree.tree_map_only(torch.Tensor, lambda x: carry(x, device), (args, kwargs))


def _stays(x: Any, device: Any) -> bool:
    """Return True if an argument clearly needs no copy."""
    return x.device == device if isinstance(x, torch.Tensor) else x is None or isinstance(x, (bool, int, float, str))


# ---------------------------------------------------------------------- modules with parts on several devices
class Spanning:
    """The ``forward`` of a module whose parts are on several devices.

    Args:
        module: The module.
        inner: The module's own ``forward`` attribute, or None if it uses its class's method.
    """

    def __init__(self, module: Any, inner: Any = None) -> None:
        self._module = module
        self._inner = inner

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of the method that this object replaces, by which libraries find a model's arguments."""
        return inspect.signature(self._inner or type(self._module).forward.__get__(self._module))

    def take_off(self) -> None:
        """Restore the module's own ``forward``."""
        del self._module.forward
        if self._inner is not None:
            self._module.forward = self._inner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self._forward(*args, **kwargs)
        if RUN.devices is not None:
            with self._meeting():
                return self._forward(*args, **kwargs)
        found = devices_of(self._module)
        if len(found) < 2:  # the model was moved by code other than devshim
            return self._forward(*args, **kwargs)
        RUN.devices = found
        try:
            with self._meeting():
                result = self._forward(*args, **kwargs)
            return self._together(result, RUN.last)
        finally:
            RUN.devices = RUN.last = None

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._inner is not None:
            return self._inner(*args, **kwargs)
        return type(self._module).forward(self._module, *args, **kwargs)

    def _meeting(self) -> Any:
        """Return a context that aligns operands in the module's own code; a chain of modules needs none."""
        chain = self._inner is None and type(self._module).forward is torch.nn.Sequential.forward
        return nullcontext() if chain or RUN.meeting else Meeting()

    def _together(self, result: Any, device: Any) -> Any:
        """Return the result on one device; the model did not compute a tensor that is on no part's device."""
        found = RUN.devices or {}
        return pytree.tree_map_only(
            torch.Tensor, lambda x: x if device is None or x.device not in found else carry(x, device), result
        )
