"""The branch of ``jax.lax.platform_dependent`` with native names: on a simulated GPU, the one for CUDA.

XLA compiles for its CPU, so JAX chooses the rules of the CPU for every operator, and this must stay so. Two primitives
are for the program: one asks for the platform, and the other keeps the branches of a platform. What is inside of a
branch is compiled for the CPU. JAX uses compiled code again for other devices of a platform, unless an operator in it
needs the devices; so the first primitive is declared to be one of these.
"""

from __future__ import annotations

import dataclasses
from functools import wraps
from typing import TYPE_CHECKING, Any

from jax._src import dispatch
from jax._src.interpreters import mlir
from jax._src.lax.control_flow import conditionals

from devshim_backends._jax.simulation.native_names.devices import is_gpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.simulation.patching import Patches

__all__ = ["install", "uninstall"]

_PLATFORM_INDEX = getattr(conditionals, "platform_index_p", None)
"""The primitive that asks for the platform; the oldest JAX has another one, whose answer stays ``cpu``."""
_PRIMITIVES = (_PLATFORM_INDEX, conditionals.cond_p)
_NEED_DEVICES: set[Any] = getattr(dispatch, "prim_requires_devices_during_lowering", set())


def install(patches: Patches) -> None:
    """Let ``jax.lax.platform_dependent`` take the branch for CUDA on simulated GPUs."""
    if _PLATFORM_INDEX is None:
        return
    _NEED_DEVICES.add(_PLATFORM_INDEX)
    for primitive in _PRIMITIVES:
        entry: Any = mlir._lowerings[primitive]
        if hasattr(entry, "rule"):  # JAX 0.8 and newer
            new: Any = dataclasses.replace(entry, rule=_wrap(entry.rule))
        else:
            new = _wrap(entry)
        patches.replace_item(mlir._lowerings, primitive, new)


def uninstall() -> None:
    """Let the primitive be compiled once for all devices again."""
    _NEED_DEVICES.discard(_PLATFORM_INDEX)


def _wrap(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def lower(ctx: Any, *args: Any, **parameters: Any) -> Any:
        asks = "platforms" in parameters or parameters.get("branches_platforms") is not None
        if asks and not ctx.platforms and _is_for_gpus(ctx.module_context):
            ctx = ctx.replace(platforms=("cuda",))
        return original(ctx, *args, **parameters)

    return lower


def _is_for_gpus(module: Any) -> bool:
    """Return True if a module that is being compiled will run on simulated GPUs; one to export is for no device."""
    axis = module.axis_context
    devices: Any = getattr(axis, "device_assignment", None)
    if devices is None and hasattr(axis, "mesh"):
        devices = getattr(axis.mesh, "_flat_devices_tuple", None)
    return tuple(module.platforms) == ("cpu",) and bool(devices) and is_gpu(devices[0])
