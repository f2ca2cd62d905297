"""PaddlePaddle's own names for GPUs, for simulated GPUs (``ds.simulate(2, native_names=True)``).

A simulated GPU is a device of a plug-in: Paddle prints ``Place(sim_gpu:1)``, and computes on it as on a real one.  A
program that is written for CUDA names it ``"gpu:1"`` or ``paddle.CUDAPlace(1)``.  Requirements that this package meets:

* The places that such a program makes and reads are those of the plug-in; only their names change (`places`).
* Paddle's own modules go on to treat them as a plug-in's: what they would call for CUDA is not in a build for CPUs.  So
  the answers to "is this a GPU of CUDA?" depend on who asks (`asks`).
* The functions of ``paddle.device.cuda`` and ``paddle.cuda`` answer for simulated GPUs (`cuda`).
* The first GPU is Paddle's default device, as in every build for CUDA.
* Switching off restores every attribute, and the default device.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import paddle

from devshim.simulation.patching import Patches
from devshim_backends._paddle.devices import core
from devshim_backends._paddle.scopes import process_wide_place, set_process_wide_place
from devshim_backends._paddle.simulation.native_names import cuda, generators, places, tensors

if TYPE_CHECKING:
    from devshim.contract.backend import Backend

_patches = Patches()
_default: list[Any] = []
"""Paddle's default device from before."""


def install(backend: Backend) -> None:
    """Let Paddle's names for GPUs mean the simulated GPUs."""
    places.set_backend(backend)
    _default[:] = [process_wide_place()]
    try:
        _replace_in_modules({**places.functions(), **cuda.functions(), **generators.functions()})
        for owner, name, new in (
            *places.attributes(),
            *tensors.attributes(),
            *cuda.attributes(),
            *generators.attributes(),
        ):
            _patches.replace(owner, name, new)
        set_process_wide_place(places.gpu_place(0))
    except BaseException:
        uninstall()
        raise


def uninstall() -> None:
    """Let them mean what they mean to Paddle itself."""
    is_changed, before = places.is_simulated(process_wide_place()), _default
    _patches.undo()
    if is_changed and before:
        set_process_wide_place(before[0])
    before.clear()
    places.set_backend(None)


def _replace_in_modules(replacements: dict[Any, Any]) -> None:
    """Replace functions and classes in all modules of Paddle that have imported them, except in its C++ module."""
    by_id = {id(original): new for original, new in replacements.items()}
    names = paddle.device.set_device.__globals__  # `paddle.device` itself may be a stand-in for the module (3.3)
    for key, value in list(names.items()):
        if id(value) in by_id:
            _patches.replace_item(names, key, by_id[id(value)])
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "paddle" and isinstance(module, ModuleType) and module is not core:
            if name == "paddle.base.libpaddle" or vars(module) is names:
                continue
            for key, value in list(vars(module).items()):
                if id(value) in by_id:
                    _patches.replace(module, key, by_id[id(value)])
