"""How a model over several devices computes: inputs are carried to each part, and gradients back.

Requirements this module answers:

* A part on one device gets its inputs there, in whatever lists and tuples they are, and gradients flow back.
* A part that is hybridized stays so, and is compiled for its device; what has parts on several devices runs part by
  part, also when it is hybridized after it was split.
* Nothing is remembered of where parts are: Gluon's own ``reset_ctx`` gives a model that works.

Gluon's hooks may not change what a block is given, so ``forward`` is shadowed on the block itself, and ``hybridize``
with it.
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
    """What stands for the ``forward`` of a block.

    Args:
        block: The block.
    """

    def __init__(self, block: Any) -> None:
        self.block = block
        self.inner: Callable[..., Any] | None = vars(block).get("forward")
        """A ``forward`` of its own that the block had before."""
        self.active: bool = vars(block).get("_active", False)
        """Whether the block was hybridized."""

    def hybridize(self, active: bool = True, **options: Any) -> None:
        """Stand for the block's ``hybridize``: its parts are compiled, each by itself."""
        block = self.block
        type(block).hybridize(block, active, **options)
        self.active = vars(block).get("_active", False)
        self.hold()

    def hold(self) -> None:
        """Keep Gluon from compiling the block before its inputs are carried."""
        if self.active:
            vars(self.block)["_active"] = False

    def forward(self, *args: Any) -> Any:
        """Call the block's own."""
        if self.inner is not None:
            return self.inner(*args)
        return type(self.block).forward(self.block, *args)


class Part(Wire):
    """A block all of whose parameters are on one device."""

    def hold(self) -> None:
        """1.9 compiles in ``forward``, where inputs have been carried; 2.0 before it."""
        if IS_2:
            super().hold()

    def __call__(self, *args: Any) -> Any:
        """Carry the inputs, and compute."""
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
    """A block whose parameters are on several devices; those that are its own are on one."""

    def __call__(self, *args: Any) -> Any:
        """Carry the inputs to the block's own parameters, if it has any, and compute; the result is on one device."""
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
    """Whether a block only calls its parts one after the other, so that nothing meets in its code."""
    for chain in (mx.gluon.nn.Sequential, mx.gluon.nn.HybridSequential):
        if isinstance(block, chain):
            names = ("forward", "hybrid_forward")
            return all(getattr(type(block), name, None) is getattr(chain, name, None) for name in names)
    return False


class Scoped(Wire):
    """A block on one device, in which some code makes arrays without saying where.

    The recurrent cells of 2.0.0b1 do (``GRUCell.forward``, every ``unroll`` without a state to begin with); the blocks
    of 1.9 run in the scope of their inputs' device.
    """

    def __call__(self, *args: Any) -> Any:
        """Compute in the scope of the block's device."""
        native = next(iter(devices_of(self.block)))
        with type(native)(native):
            return self.forward(*args)


def needs_scope(block: Any) -> bool:
    """Whether a block on one device has to be called in its scope."""
    return IS_2 and any(isinstance(each, mx.gluon.rnn.RecurrentCell) for each in blocks_in(block))


def put_on(wire: Part | Spanning | Scoped) -> None:
    """Put a wire on its block."""
    own = vars(wire.block)
    own["forward"] = wire
    if isinstance(wire.block, mx.gluon.HybridBlock) and not isinstance(wire, Scoped):
        own["hybridize"] = wire.hybridize
        wire.hold()


def take_off(block: Any) -> None:
    """Take the wire off a block, if it has one."""
    own = vars(block)
    wire = own.get("forward")
    if isinstance(wire, Wire):
        del own["forward"]
        if wire.inner is not None:
            own["forward"] = wire.inner
        if own.pop("hybridize", None) is not None:
            own["_active"] = wire.active


def _is_traced(args: Any) -> bool:
    """Whether a block is being compiled, so that there are no values to carry."""
    if isinstance(args, (list, tuple)):
        return is_deferred() or any(_is_traced(arg) for arg in args)
    return isinstance(args, mx.sym.Symbol)
