"""Independent copies of blocks and trainers, with their own memory, on the same devices.

Requirements that this module meets:

* Ties, hooks and the trainer's references have the same structure within the copy as within the original.
* The copy contains nothing of the original.  2.0 refers to a block's children weakly, and a copy of a weak reference
  refers to the original, as does a parameter's reference to its trainer. A compiled graph belongs to a handle that
  must not be copied.
* 2.0 identifies a parameter by its ``_uuid``, and a copy gets a new one; 1.9 identifies it by its name, which the copy
  keeps.
* A trainer is copied together with its model: by itself, it would train parameters that no model has.
"""

from __future__ import annotations

import copy
import uuid
import weakref
from typing import TYPE_CHECKING, Any

import mxnet as mx

from devshim.errors import DevshimError, UnsupportedError, messages
from devshim_backends._mxnet.internals.native import IS_2, numpy_shapes
from devshim_backends._mxnet.models import optimizer_step
from devshim_backends._mxnet.models.optimizers import optimizer_of, parameters_by_index, settings_of, updaters_of
from devshim_backends._mxnet.models.storage_swap import arrays_in
from devshim_backends._mxnet.models.traversal import (
    MODELS,
    block_devices,
    blocks_in,
    children_of,
    parameters_of,
    wait_for_compiled,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devshim.contract.backend import Backend


def clones(backend: Backend, objects: Sequence[Any]) -> list[Any]:
    """Copy blocks and trainers in one call: a trainer's parameters are those of the copied model."""
    blocks = [block for obj in objects if isinstance(obj, mx.gluon.Block) for block in blocks_in(obj)]
    models = [obj for obj in objects if isinstance(obj, MODELS)]
    parameters = {id(each): each for model in models for _, each in parameters_of(model)}
    _require_model(objects, parameters)
    memo: dict[int, Any] = {}
    copies = _deepcopy(backend, objects, blocks, list(parameters.values()), memo)
    for block in blocks:
        _finish_block(block, memo)
    for parameter in parameters.values():
        _finish_parameter(parameter, memo)
    for each in copies:
        if isinstance(each, mx.gluon.Block) and len(block_devices(each)) > 1:
            optimizer_step.allow_split(parameter for _, parameter in parameters_of(each))
    return copies


def _deepcopy(
    backend: Backend, objects: Sequence[Any], blocks: list[Any], parameters: list[Any], memo: dict[int, Any]
) -> list[Any]:
    """Copy the objects with ``deepcopy``.

    Raises:
        OutOfMemoryError: The copies do not fit on their devices.
        UnsupportedError: Python cannot copy one of the objects.
    """
    try:
        _fill_memo(backend, objects, blocks, parameters, memo)
        with numpy_shapes():
            return copy.deepcopy(list(objects), memo)
    except (RuntimeError, TypeError) as error:
        if isinstance(error, DevshimError):
            raise
        if backend.is_out_of_memory(error):
            raise messages.out_of_memory_for_clones(backend, objects) from error
        msg = f"MXNet cannot copy this {' or '.join(dict.fromkeys(type(each).__name__ for each in objects))}: {error}"
        raise UnsupportedError(msg, "make a new object, and load the parameters of the first one into it") from error


def _require_model(objects: Sequence[Any], copied: Mapping[int, Any]) -> None:
    """Refuse to copy a trainer without its model.

    Raises:
        UnsupportedError: The copy would train parameters that no model has.
    """
    for obj in objects:
        trained = {} if isinstance(obj, MODELS) else parameters_by_index(obj)
        if any(id(each) not in copied for each in trained.values()):
            msg = f"a copy of this {type(obj).__name__} alone would train parameters that no model has"
            raise UnsupportedError(msg, "copy it together with its model: ds.copy([model, trainer], device)")


def _fill_memo(
    backend: Backend, objects: Sequence[Any], blocks: list[Any], parameters: list[Any], memo: dict[int, Any]
) -> None:
    """Fill the memo of ``deepcopy`` with replacements for objects that Python cannot copy correctly."""
    for parameter in parameters:
        trainer = parameter._trainer
        if not IS_2 and trainer is not None and all(trainer is not obj for obj in objects):
            memo[id(trainer)] = None
    for obj in objects:
        wait_for_compiled(obj)
    for block in blocks:
        if isinstance(block, mx.gluon.HybridBlock):
            memo[id(block._cached_op)] = None
            if not isinstance(block, mx.gluon.SymbolBlock):
                memo[id(block._cached_graph)] = ()
    containers = [vars(each) for each in (*blocks, *parameters)]
    containers += [updater.states for obj in objects for updater in updaters_of(obj)]
    containers += [settings_of(optimizer_of(each)) for each in objects if not isinstance(each, MODELS)]
    for (
        each
    ) in containers:  # copied on their devices; ``deepcopy`` of an array would go through the host, and stay there
        for _, array in arrays_in("", each):
            if id(array) not in memo:
                memo[id(array)] = backend.copy_to(array.detach(), backend.device_of(array))


def _finish_block(block: Any, memo: dict[int, Any]) -> None:
    """Make the copy of a block refer to the copies of its children, and discard what was compiled."""
    copied = memo[id(block)]
    if IS_2:
        for name, child in children_of(block):
            copied._children[name] = weakref.ref(memo[id(child)])
    if isinstance(copied, mx.gluon.HybridBlock):
        copied._clear_cached_op()


def _finish_parameter(parameter: Any, memo: dict[int, Any]) -> None:
    """Give the copy of a parameter its own identity, trainer and gradient."""
    copied = memo[id(parameter)]
    if IS_2:
        trainer = parameter._trainer and memo.get(id(parameter._trainer()))
        copied._trainer = None if trainer is None else weakref.ref(trainer)
        copied._uuid = str(uuid.uuid4())
        if copied._var_name is not None and copied._var_name.startswith(parameter._uuid.replace("-", "_")):
            copied._var = copied._var_name = None
    if copied._grad is not None:
        for data, new, gradient in zip(parameter._data, copied._data, copied._grad, strict=True):
            mx.autograd.mark_variables([new], [gradient], copied.grad_req)
            new._fresh_grad = data._fresh_grad
