"""Making a block compute where its parameters are: compiled graphs, deferred parameters, and hooks that copy inputs.

Requirements that this module meets:

* A block on one device is as Gluon made it: every hook that this module installed is removed again.
* A hybridized block is compiled again when its parameters have moved: the old graph keeps the memory that it planned
  on the previous device (``static_alloc``).
* Parameters whose shape is not known yet are later created where they were placed. A parameter for which
  ``initialize`` was never called is refused, because that later call would choose the device without regard to this.
* In a model over several devices, each part on one device copies its inputs there (see `split_forward`). A block with
  parts on several devices is not compiled as a whole: MXNet's graphs run on one device.
* A block that cannot compute over several devices is refused, and the whole move is undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import mxnet as mx

from devshim.contract.blocks import join_path
from devshim.errors import UnsupportedError
from devshim_backends._mxnet.internals.native import IS_2
from devshim_backends._mxnet.models import optimizer_step, optimizers, split_forward
from devshim_backends._mxnet.models.storage_swap import LAST_MOVE
from devshim_backends._mxnet.models.traversal import (
    block_devices,
    blocks_in,
    children_of,
    own_devices,
    parameters_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

    Undo = Callable[[], None]

_COMPILED = ("_cached_graph", "_cached_op", "_cached_op_args", "_first_forward")
_CHANGED = (*_COMPILED, *split_forward.SHADOWS, "_active")
"""The attributes of a block that this module changes."""

_CHECKED: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""The last move for which a block was checked for graphs to compile again; see `storage_swap.LAST_MOVE`."""


def install_hooks(backend: Backend, model: Any, where: Callable[[str], Device]) -> Undo:
    """Make a block compute where its parameters are; see `devshim.contract.models.ModelBackend.install_hooks`."""
    undo: list[Undo] = [_save_attributes(block) for block in blocks_in(model)]

    def restore() -> None:
        for each in reversed(undo):
            each()

    try:
        for path, parameter in parameters_of(model):
            undo.append(_place_deferred(path, parameter, backend, where))
        for block in blocks_in(model):
            split_forward.uninstall(block)
            _discard_stale_graph(block)
        number = len(block_devices(model))
        if number == 1 and split_forward.needs_scope(model):
            split_forward.install(split_forward.ScopeHook(model))
        if number > 1 and isinstance(model, mx.gluon.Block):  # nothing calls parameters that are not in a block
            _install_split_hooks(backend, "", model, set())
            optimizer_step.allow_split(parameter for _, parameter in parameters_of(model))
        trainers = (parameter._trainer for _, parameter in parameters_of(model))
        undo.append(optimizers.follow_parameters([each() if IS_2 and each else each for each in trainers]))
    except BaseException:
        restore()
        raise
    return restore


def _save_attributes(block: Any) -> Undo:
    """Return a function that restores the attributes changed on a block, without the arrays in it."""
    attributes = vars(block)
    before = {name: attributes[name] for name in _CHANGED if name in attributes}

    def restore() -> None:
        for name in _CHANGED:
            attributes.pop(name, None)
        attributes.update(before)

    return restore


# ---------------------------------------------------------------------- deferred parameters and compiled graphs
def _place_deferred(path: str, parameter: Any, backend: Backend, where: Callable[[str], Device]) -> Undo:
    """Make a parameter of unknown shape get its memory on its device once the shape is known."""
    before = parameter._deferred_init
    if parameter._data is None:
        if not before:
            msg = f"{path or 'a parameter'} is not initialized, and Gluon chooses its device when it is"
            raise UnsupportedError(msg, "call net.initialize() first; it works before the shapes are known")
        init, _, default_init, data = before
        parameter._deferred_init = (init, [backend.to_native(where(path))], default_init, data)
    return lambda: setattr(parameter, "_deferred_init", before)


def _discard_stale_graph(block: Any) -> None:
    """Discard what was compiled before parameters of the block moved."""
    last = max((LAST_MOVE.get(parameter, 0) for _, parameter in parameters_of(block)), default=0)
    if last > _CHECKED.get(block, 0):
        _CHECKED[block] = last
        if isinstance(block, mx.gluon.HybridBlock):
            block._clear_cached_op()


# ---------------------------------------------------------------------- hooks
def _install_split_hooks(backend: Backend, path: str, block: Any, seen: set[int]) -> None:
    """Install hooks on a block on several devices and on the blocks in it (see `split_forward`)."""
    if id(block) in seen:
        return
    seen.add(id(block))
    natives = block_devices(block)
    if len(own_devices(block)) > 1 or (len(natives) > 1 and isinstance(block, mx.gluon.SymbolBlock)):
        devices = " and ".join(str(backend.from_native(native)) for native in natives)
        msg = (
            f"the parameters of {path or 'the model'} ({type(block).__name__}) would be on {devices}, but the block "
            "needs all of them on one device"
        )
        raise UnsupportedError(msg, f"place all of {path or 'it'} on one device")
    if len(natives) == 1:
        split_forward.install(split_forward.DeviceHook(block))
    elif natives:
        split_forward.install(split_forward.SplitHook(block))
        for name, child in children_of(block):
            _install_split_hooks(backend, join_path(path, name), child, seen)
