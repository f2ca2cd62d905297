"""The forward pass of a model over several devices: inputs are copied to each part, and gradients back.

Requirements that this module meets:

* A part on one device gets its inputs there, in any lists and tuples, and gradients flow back.
* A hybridized part stays hybridized, and is compiled for its device.  A block with parts on several devices runs part
  by part, even if it is hybridized after it was split.
* The locations of the parts are not cached: after Gluon's own ``reset_ctx`` the model works.

Gluon's hooks cannot change the inputs of a block, so ``forward`` is shadowed on the block itself, and so is
``hybridize``.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim_backends._mxnet.models.align_devices import RUN, Meeting, carried
from devshim_backends._mxnet.models.traversal import blocks_in, devices_of, own_devices_of
from devshim_backends._mxnet.native import IS_2
from devshim_backends._mxnet.tracing import is_deferred

if TYPE_CHECKING:
    from collections.abc import Callable

SHADOWS = ("forward", "hybridize")


class Wire:
    """A callable that replaces the ``forward`` of a block.

    Args:
        block: The block.
    """

    def __init__(self, block: Any) -> None:
        self.block = block
        self.inner: Callable[..., Any] | None = vars(block).get("forward")
        """The instance's own ``forward``, if the block had one before."""
        self.active: bool = vars(block).get("_active", False)
        """True if the block was hybridized."""

    def hybridize(self, active: bool = True, **options: Any) -> None:
        """Hybridize the block, in place of its own method, so that its parts are compiled separately."""
        block = self.block
        type(block).hybridize(block, active, **options)
        self.active = vars(block).get("_active", False)
        self.hold()

    def hold(self) -> None:
        """Prevent Gluon from compiling the block before its inputs are copied."""
        if self.active:
            vars(self.block)["_active"] = False

    def forward(self, *args: Any) -> Any:
        """Call the block's own ``forward``."""
        if self.inner is not None:
            return self.inner(*args)
        return type(self.block).forward(self.block, *args)


class Part(Wire):
    """A hook for a block whose parameters are all on one device."""

    def hold(self) -> None:
        """Prevent compilation in 2.0, which compiles before ``forward``; 1.9 compiles in it, after the copies."""
        if IS_2:
            super().hold()

    def __call__(self, *args: Any) -> Any:
        """Copy the inputs to the block's device, and compute."""
        if _is_traced(args):
            return self.forward(*args)
        native = next(iter(devices_of(self.block)))
        RUN.ran(native)
        args = carried(args, native)
        if not IS_2:
            return self.forward(*args)
        with type(native)(native):
            return self.block._call_cached_op(*args) if self.active else self.forward(*args)


class Spanning(Wire):
    """A hook for a block whose parameters are on several devices, while those of its own are on one."""

    def __call__(self, *args: Any) -> Any:
        """Copy the inputs to the block's own parameters, if it has any, and compute; the result is on one device."""
        if _is_traced(args):
            return self.forward(*args)
        if RUN.places:
            return self._run(args)
        RUN.begin(self.block)
        try:
            result = self._run(args)
            return result if RUN.last is None else carried(result, RUN.last, RUN.places)
        finally:
            RUN.end()

    def _run(self, args: tuple[Any, ...]) -> Any:
        own = next(iter(own_devices_of(self.block)), None)
        if own is not None:
            RUN.ran(own)
            args = carried(args, own)
        chain = self.inner is None and _is_chain(self.block)
        with nullcontext() if chain else Meeting():
            return self.forward(*args)


def _is_chain(block: Any) -> bool:
    """Return True if a block only calls its parts one after the other, so that its code combines no arrays."""
    for chain in (mx.gluon.nn.Sequential, mx.gluon.nn.HybridSequential):
        if isinstance(block, chain):
            names = ("forward", "hybrid_forward")
            return all(getattr(type(block), name, None) is getattr(chain, name, None) for name in names)
    return False


class Scoped(Wire):
    """A hook for a block on one device, in which some code makes arrays without giving a device.

    The recurrent cells of 2.0.0b1 do that (``GRUCell.forward``, every ``unroll`` without an initial state); the blocks
    of 1.9 run in the scope of their inputs' device.
    """

    def __call__(self, *args: Any) -> Any:
        """Compute in the scope of the block's device."""
        native = next(iter(devices_of(self.block)))
        with type(native)(native):
            return self.forward(*args)


def needs_scope(block: Any) -> bool:
    """Return True if a block on one device has to be called in a scope of that device."""
    return IS_2 and any(isinstance(each, mx.gluon.rnn.RecurrentCell) for each in blocks_in(block))


def put_on(wire: Part | Spanning | Scoped) -> None:
    """Install a hook on its block."""
    own = vars(wire.block)
    own["forward"] = wire
    if isinstance(wire.block, mx.gluon.HybridBlock) and not isinstance(wire, Scoped):
        own["hybridize"] = wire.hybridize
        wire.hold()


def take_off(block: Any) -> None:
    """Uninstall the hook of a block, if it has one."""
    own = vars(block)
    wire = own.get("forward")
    if isinstance(wire, Wire):
        del own["forward"]
        if wire.inner is not None:
            own["forward"] = wire.inner
        if own.pop("hybridize", None) is not None:
            own["_active"] = wire.active


def _is_traced(args: Any) -> bool:
    """Return True if a block is being compiled, in which case its inputs have no values to copy."""
    if isinstance(args, (list, tuple)):
        return is_deferred() or any(_is_traced(arg) for arg in args)
    return isinstance(args, mx.sym.Symbol)
