"""Switching Paddle's own names for GPUs on and off: replaced functions and attributes, and the default device."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import paddle

from devshim.simulation.patching import Patches
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.scopes import process_wide_place, set_process_wide_place
from devshim_backends._paddle.simulation.internals import error_texts
from devshim_backends._paddle.simulation.native_names import distributed, names, runtime, tensors
from devshim_backends._paddle.simulation.native_names.internals import (
    cuda_only,
    executors,
    flags,
    generators,
    predictors,
    sparse,
)

if TYPE_CHECKING:
    from devshim.contract.backend import Backend

_patches = Patches()
_default: list[Any] = []
"""Paddle's default device from before."""


def install(backend: Backend) -> None:
    """Let Paddle's names for GPUs mean the simulated GPUs."""
    names.set_backend(backend)
    _default[:] = [process_wide_place()]
    found: dict[Any, Any] = {}
    try:
        for module in (names, runtime, flags, generators, distributed, sparse, predictors):
            found.update(module.functions())
        _replace_in_modules(found)
        for owner, name, new in (
            *names.attributes(),
            *tensors.attributes(),
            *runtime.attributes(),
            *generators.attributes(),
            *sparse.attributes(),
            *cuda_only.attributes(),
            *executors.attributes(),
            *predictors.attributes(),
        ):
            _patches.replace(owner, name, new)
        if backend.simulated:
            set_process_wide_place(names.gpu_place(names.default_index()))
        error_texts.use_native_names(True)
    except BaseException:
        uninstall()
        raise


def uninstall() -> None:
    """Let them mean what they mean to Paddle itself."""
    is_changed, before = names.is_simulated(process_wide_place()), _default
    _patches.undo()
    error_texts.use_native_names(False)
    if is_changed and before:
        set_process_wide_place(before[0])
    before.clear()
    flags.forget()
    runtime.forget_streams()
    names.set_backend(None)


def _replace_in_modules(replacements: dict[Any, Any]) -> None:
    """Replace functions and classes in all modules of Paddle that have imported them, except in its C++ module."""
    by_id = {id(original): new for original, new in replacements.items()}
    scope = paddle.device.set_device.__globals__  # `paddle.device` itself may be a stand-in for the module (3.3)
    for key, value in list(scope.items()):
        if id(value) in by_id:
            _patches.replace_item(scope, key, by_id[id(value)])
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "paddle" and isinstance(module, ModuleType) and module is not core:
            if name == "paddle.base.libpaddle" or vars(module) is scope:
                continue
            for key, value in list(vars(module).items()):
                if id(value) in by_id:
                    _patches.replace(module, key, by_id[id(value)])
