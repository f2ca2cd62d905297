"""Making a block compute where its parameters are: compiled graphs, deferred parameters, and hooks that copy inputs.

Requirements that this module meets:

* A block on one device is as Gluon made it: every hook that this module installed is removed again.
* A hybridized block is compiled again when its parameters have moved: the old graph keeps the memory that it planned
  on the previous device (``static_alloc``).
* Parameters whose shape is not known yet are later created where they were placed.  A parameter for which
  ``initialize`` was never called is refused, because that later call would choose the device without regard to this.
* In a model over several devices, each part on one device copies its inputs there (see `split_forward`).  A block with
  parts on several devices is not compiled as a whole: MXNet's graphs run on one device.
* A block that cannot compute over several devices is refused, and the whole move is undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import mxnet as mx

from devshim.errors import UnsupportedError
from devshim_backends._mxnet.models import optimizer_step, optimizers, split_forward
from devshim_backends._mxnet.models.storage_swap import MOVED
from devshim_backends._mxnet.models.traversal import blocks_in, children_of, devices_of, own_devices_of, parameters_of
from devshim_backends._mxnet.native import IS_2

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

    Undo = Callable[[], None]

_COMPILED = ("_cached_graph", "_cached_op", "_cached_op_args", "_first_forward")
_KEPT = (*_COMPILED, *split_forward.SHADOWS, "_active")
"""The attributes of a block that this module changes."""

_SEEN: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""The last move for which a block was checked for graphs to compile again; see `storage_swap.MOVED`."""


def install_hooks(backend: Backend, model: Any, where: Callable[[str], Device]) -> Undo:
    """Make a block compute where its parameters are; see `devshim.contract.models.ModelBackend.install_hooks`."""
    undo: list[Undo] = [_put_back(block) for block in blocks_in(model)]

    def take_back() -> None:
        for each in reversed(undo):
            each()

    try:
        for path, parameter in parameters_of(model):
            undo.append(_place_deferred(path, parameter, backend, where))
        for block in blocks_in(model):
            split_forward.take_off(block)
            _compile_anew(block)
        places = len(devices_of(model))
        if places == 1 and split_forward.needs_scope(model):
            split_forward.put_on(split_forward.Scoped(model))
        if places > 1 and isinstance(model, mx.gluon.Block):  # nothing calls parameters that are not in a block
            _wire(backend, "", model, set())
            optimizer_step.allow(parameter for _, parameter in parameters_of(model))
        trainers = (parameter._trainer for _, parameter in parameters_of(model))
        undo.append(optimizers.follow([each() if IS_2 and each else each for each in trainers]))
    except BaseException:
        take_back()
        raise
    return take_back


def _put_back(block: Any) -> Undo:
    """Return a function that restores the attributes changed on a block, without the arrays in it."""
    own = vars(block)
    before = {name: own[name] for name in _KEPT if name in own}

    def take_back() -> None:
        for name in _KEPT:
            own.pop(name, None)
        own.update(before)

    return take_back


# ---------------------------------------------------------------------- deferred parameters and compiled graphs
def _place_deferred(path: str, parameter: Any, backend: Backend, where: Callable[[str], Device]) -> Undo:
    """Make a parameter of unknown shape get its memory on its device once the shape is known."""
    before = parameter._deferred_init
    if parameter._data is None:
        if not before:
            raise UnsupportedError(
                f"{path or 'a parameter'} is not initialized, and Gluon decides where it will be when it is",
                "call net.initialize() first; shapes need not be known for that",
            )
        init, _, default_init, data = before
        parameter._deferred_init = (init, [backend.to_native(where(path))], default_init, data)
    return lambda: setattr(parameter, "_deferred_init", before)


def _compile_anew(block: Any) -> None:
    """Discard what was compiled before parameters of the block moved."""
    last = max((MOVED.get(parameter, 0) for _, parameter in parameters_of(block)), default=0)
    if last > _SEEN.get(block, 0):
        _SEEN[block] = last
        if isinstance(block, mx.gluon.HybridBlock):
            block._clear_cached_op()


# ---------------------------------------------------------------------- hooks
def _wire(backend: Backend, path: str, block: Any, seen: set[int]) -> None:
    """Make the parts of a block copy their inputs, and make the blocks with such parts run part by part."""
    if id(block) in seen:
        return
    seen.add(id(block))
    found, own = devices_of(block), own_devices_of(block)
    if len(own) > 1 or (len(found) > 1 and isinstance(block, mx.gluon.SymbolBlock)):
        told = " and ".join(str(backend.from_native(device)) for device in found)
        raise UnsupportedError(
            f"the parameters of {path or 'the model'} ({type(block).__name__}) would be on {told}, and it computes "
            "with them together",
            f"place all of {path or 'it'} on one device",
        )
    if len(found) == 1:
        split_forward.put_on(split_forward.Part(block))
    elif found:
        split_forward.put_on(split_forward.Spanning(block))
        for name, child in children_of(block):
            _wire(backend, f"{path}.{name}" if path else name, child, seen)
