"""The forward pass of a split model: inputs are copied to each part, and operands in its own code are aligned.

Requirements of this module:

* A part on one device gets its inputs there, in any tree of tensors, and gradients flow back.
* The results of parts can be operands in the code of the module that has the parts (a residual connection, a
  concatenation, a weight used without its module): see `devshim_backends._torch.models.align_devices`.
* The result is on the device of the part that ran last.
* The locations of parts are not stored: `copy.deepcopy`, `pickle` and PyTorch's own ``to`` produce a model that works.
* An exception, including Ctrl-C, leaves no state behind.
"""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils import _pytree as pytree

from devshim_backends._torch.models.align_devices import FORWARD, AlignDevices, to_device
from devshim_backends._torch.models.traversal import all_tensors, devices_of
from devshim_backends._torch.tracing import compiles_here


# ---------------------------------------------------------------------- parts on one device
def copy_inputs(module: Any, args: Any, kwargs: Any) -> Any:
    """Copy the inputs of a part to its device; this is a forward pre-hook."""
    device = next(all_tensors(module)).device
    if not compiles_here():
        FORWARD.enter_part(device)
    if all(_needs_no_copy(x, device) for x in args) and all(_needs_no_copy(x, device) for x in kwargs.values()):
        return None  # the fast path for most parts, whose input comes from the same device
    return pytree.tree_map_only(torch.Tensor, lambda x: to_device(x, device), (args, kwargs))


def _needs_no_copy(x: Any, device: Any) -> bool:
    """Return True if an argument clearly needs no copy."""
    return x.device == device if isinstance(x, torch.Tensor) else x is None or isinstance(x, (bool, int, float, str))


# ---------------------------------------------------------------------- modules with parts on several devices
class SplitForward:
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
        """The signature of the method that this object replaces; libraries read a model's arguments from it."""
        return inspect.signature(self._inner or type(self._module).forward.__get__(self._module))

    def uninstall(self) -> None:
        """Restore the module's own ``forward``."""
        del self._module.forward
        if self._inner is not None:
            self._module.forward = self._inner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if compiles_here():
            return self._forward(*args, **kwargs)
        if FORWARD.devices is not None:
            with self._align_devices():
                return self._forward(*args, **kwargs)
        found = devices_of(self._module)
        if len(found) < 2:  # the model was moved by code other than devshim
            return self._forward(*args, **kwargs)
        FORWARD.devices = found
        try:
            with self._align_devices():
                result = self._forward(*args, **kwargs)
            return self._gather_result(result, FORWARD.last_device)
        finally:
            FORWARD.devices = FORWARD.last_device = None

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._inner is not None:
            return self._inner(*args, **kwargs)
        return type(self._module).forward(self._module, *args, **kwargs)

    def _align_devices(self) -> Any:
        """Return a context that aligns operands in the module's own code; a chain of modules needs none."""
        chain = self._inner is None and type(self._module).forward is torch.nn.Sequential.forward
        return nullcontext() if chain or FORWARD.aligning else AlignDevices()

    def _gather_result(self, result: Any, device: Any) -> Any:
        """Return the result on one device; the model did not compute a tensor that is on no part's device."""
        found = FORWARD.devices or {}
        return pytree.tree_map_only(
            torch.Tensor, lambda x: x if device is None or x.device not in found else to_device(x, device), result
        )
