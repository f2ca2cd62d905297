"""Hooks that run a model over several devices, block by block.

Gluon's own hooks cannot change the inputs of a block, so a hook here is an object that `install` stores as the
attribute ``forward`` of one block, where it hides the method of the class. There are three:

* `DeviceHook`, for a block on one device, copies the inputs to that device. They can be in lists and tuples.
* `SplitHook`, for a block with parts on several devices, calls the block's own code, which calls the parts. Meanwhile
  operators accept arrays on several devices (see `align_devices`).
* `ScopeHook`, for a model on one device, makes that device the default while the model runs.

A compiled graph runs on one device. So a split block is never compiled, and each part is compiled for its device,
even if the model is hybridized later: a hook also hides ``hybridize``, and clears the flag ``_active`` of its block.
2.0 compiles a block before it calls ``forward``: there the hook copies the inputs, and then calls the compiled block.
The devices are looked up at each call, so a model still works after Gluon's own ``reset_ctx``.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim_backends._mxnet.internals.native import IS_2
from devshim_backends._mxnet.models.align_devices import PASS, align_operators, move_arrays
from devshim_backends._mxnet.models.traversal import block_devices, blocks_in, own_devices
from devshim_backends._mxnet.tracing import is_deferred

if TYPE_CHECKING:
    from collections.abc import Callable

SHADOWS = ("forward", "hybridize")
"""The attributes that hide methods of a block."""


class ForwardHook:
    """A callable that replaces the ``forward`` of a block.

    Args:
        block: The block.
    """

    def __init__(self, block: Any) -> None:
        self.block = block
        self.own_forward: Callable[..., Any] | None = vars(block).get("forward")
        """The instance's own ``forward``, if the block had one before."""
        self.is_hybridized: bool = vars(block).get("_active", False)

    def hybridize(self, active: bool = True, **options: Any) -> None:
        """Hybridize the block, instead of its own method, so that its parts are compiled separately."""
        type(self.block).hybridize(self.block, active, **options)
        self.is_hybridized = vars(self.block).get("_active", False)
        self.disable_compilation()

    def disable_compilation(self) -> None:
        """Prevent Gluon from compiling the block before its inputs are copied."""
        if self.is_hybridized:
            vars(self.block)["_active"] = False

    def forward(self, *args: Any) -> Any:
        """Call the block's own ``forward``."""
        if self.own_forward is not None:
            return self.own_forward(*args)
        return type(self.block).forward(self.block, *args)


class DeviceHook(ForwardHook):
    """A hook for a block whose parameters are all on one device."""

    def disable_compilation(self) -> None:
        """Prevent compilation in 2.0, which compiles before ``forward``; 1.9 compiles in it, after the copies."""
        if IS_2:
            super().disable_compilation()

    def __call__(self, *args: Any) -> Any:
        """Copy the inputs to the block's device, and compute."""
        if _is_traced(args):
            return self.forward(*args)
        native = next(iter(block_devices(self.block)))
        PASS.visit(native)
        args = move_arrays(args, native)
        if not IS_2:
            return self.forward(*args)
        with type(native)(native):
            return self.block._call_cached_op(*args) if self.is_hybridized else self.forward(*args)


class SplitHook(ForwardHook):
    """A hook for a block whose parts are on several devices, while its own parameters are on one."""

    def __call__(self, *args: Any) -> Any:
        """Copy the inputs to the block's own parameters, if it has any, and compute; the result is on one device."""
        if _is_traced(args):
            return self.forward(*args)
        if PASS.devices:
            return self._run(args)
        PASS.begin(self.block)
        try:
            result = self._run(args)
            return result if PASS.last_device is None else move_arrays(result, PASS.last_device, PASS.devices)
        finally:
            PASS.end()

    def _run(self, args: tuple[Any, ...]) -> Any:
        native = next(iter(own_devices(self.block)), None)
        if native is not None:
            PASS.visit(native)
            args = move_arrays(args, native)
        is_chain = self.own_forward is None and _is_chain(self.block)
        with nullcontext() if is_chain else align_operators():
            return self.forward(*args)


def _is_chain(block: Any) -> bool:
    """Return True if a block only calls its parts one after the other, so that its code combines no arrays."""
    for chain in (mx.gluon.nn.Sequential, mx.gluon.nn.HybridSequential):
        if isinstance(block, chain):
            names = ("forward", "hybrid_forward")
            return all(getattr(type(block), name, None) is getattr(chain, name, None) for name in names)
    return False


class ScopeHook(ForwardHook):
    """A hook for a block on one device, in which some code makes arrays without giving a device.

    The recurrent cells of 2.0.0b1 do that (``GRUCell.forward``, every ``unroll`` without an initial state); the blocks
    of 1.9 run in the scope of their inputs' device.
    """

    def __call__(self, *args: Any) -> Any:
        """Compute in the scope of the block's device."""
        native = next(iter(block_devices(self.block)))
        with type(native)(native):
            return self.forward(*args)


def needs_scope(block: Any) -> bool:
    """Return True if a block on one device has to be called in a scope of that device."""
    return IS_2 and any(isinstance(each, mx.gluon.rnn.RecurrentCell) for each in blocks_in(block))


def install(hook: DeviceHook | SplitHook | ScopeHook) -> None:
    """Install a hook on its block."""
    attributes = vars(hook.block)
    attributes["forward"] = hook
    if isinstance(hook.block, mx.gluon.HybridBlock) and not isinstance(hook, ScopeHook):
        attributes["hybridize"] = hook.hybridize
        hook.disable_compilation()


def uninstall(block: Any) -> None:
    """Uninstall the hook of a block, if it has one."""
    attributes = vars(block)
    hook = attributes.get("forward")
    if isinstance(hook, ForwardHook):
        del attributes["forward"]
        if hook.own_forward is not None:
            attributes["forward"] = hook.own_forward
        if attributes.pop("hybridize", None) is not None:
            attributes["_active"] = hook.is_hybridized


def _is_traced(args: Any) -> bool:
    """Return True if a block is being compiled, in which case its inputs have no values to copy."""
    if isinstance(args, (list, tuple)):
        return is_deferred() or any(_is_traced(arg) for arg in args)
    return isinstance(args, mx.sym.Symbol)
