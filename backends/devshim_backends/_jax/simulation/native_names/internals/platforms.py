"""Compilation for CUDA with native names: branches, and errors of operators that CUDA lacks.

On a simulated GPU, ``jax.lax.platform_dependent`` takes the branch for CUDA, and an operator that JAX has only for the
CPU, such as `jax.lax.linalg.schur`, raises JAX's error.

XLA compiles for its CPU, so JAX chooses the rules of the CPU for every operator, and this must stay so. Two primitives
are for the program: one asks for the platform, and the other keeps the branches of a platform. What is inside of a
branch is compiled for the CPU. JAX uses compiled code again for other devices of a platform, unless an operator in it
needs the devices; so the first primitive and the operators that CUDA lacks are declared to be of these.

A function of `jax.export` says for which platforms it was exported. One that was exported for the CPU only is refused
on a simulated GPU, and one for CUDA only is compiled; XLA refuses it if it calls kernels of CUDA. Of a function for
both, the code for the CPU is used, because that for CUDA may call kernels.
"""

from __future__ import annotations

import dataclasses
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from jax._src import dispatch
from jax._src.export._export import call_exported_p
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
_declared: set[Any] = set()
"""The primitives that are declared to need the devices while native names are on."""


def install(patches: Patches) -> None:
    """Let JAX take the branch for CUDA on simulated GPUs, and refuse there what it has only for the CPU."""
    general, of_cpu = mlir._lowerings, mlir._platform_specific_lowerings["cpu"]
    for primitive in _lacking_on_cuda():
        _replace_rule(patches, of_cpu, primitive, partial(_refuse_on_gpus, str(primitive)))
        _declare(primitive)
    _replace_rule(patches, general, call_exported_p, _check_export)
    _declare(call_exported_p)
    if _PLATFORM_INDEX is None:
        return
    _declare(_PLATFORM_INDEX)
    for primitive in _PRIMITIVES:
        _replace_rule(patches, general, primitive, _choose_branch)


def uninstall() -> None:
    """Let the primitives be compiled once for all devices again."""
    _NEED_DEVICES.difference_update(_declared)
    _declared.clear()


def _declare(primitive: Any) -> None:
    if primitive not in _NEED_DEVICES:
        _NEED_DEVICES.add(primitive)
        _declared.add(primitive)


def _rule(entry: Any) -> Any:
    """Return the rule of an entry, which JAX before 0.8 stores without an object around it."""
    return getattr(entry, "rule", entry)


def _replace_rule(patches: Patches, table: Any, primitive: Any, wrap: Callable[[Any], Any]) -> None:
    entry, rule = table[primitive], wrap(_rule(table[primitive]))
    patches.replace_item(table, primitive, dataclasses.replace(entry, rule=rule) if hasattr(entry, "rule") else rule)


# ---------------------------------------------------------------------- operators that CUDA lacks
def _lacking_on_cuda() -> list[Any]:
    """Return the primitives of JAX that have a rule for the CPU, but none for CUDA.

    Those of other packages are not among them: a package may register its rules for CUDA on a machine with a GPU only.
    """
    tables = mlir._platform_specific_lowerings
    return [
        primitive
        for primitive, entry in tables["cpu"].items()
        if primitive not in mlir._lowerings and primitive not in tables["cuda"] and _is_of_jax(_rule(entry))
    ]


def _is_of_jax(rule: Any) -> bool:
    while isinstance(rule, partial):
        rule = rule.func
    return str(getattr(rule, "__module__", "")).startswith("jax._src.")


def _refuse_on_gpus(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def lower(ctx: Any, *args: Any, **parameters: Any) -> Any:
        equation = getattr(ctx, "jaxpr_eqn_ctx", None)
        on_host = getattr(equation, "compute_type", None) == "device_host"  # in jax.experimental.compute_on
        if not on_host and _is_for_gpus(ctx.module_context):
            msg = f"MLIR translation rule for primitive '{name}' not found for platform cuda"
            raise NotImplementedError(msg)
        return original(ctx, *args, **parameters)

    return lower


# ---------------------------------------------------------------------- branches
def _choose_branch(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def lower(ctx: Any, *args: Any, **parameters: Any) -> Any:
        asks = "platforms" in parameters or parameters.get("branches_platforms") is not None
        if asks and not ctx.platforms and _is_for_gpus(ctx.module_context):
            ctx = ctx.replace(platforms=("cuda",))
        return original(ctx, *args, **parameters)

    return lower


def _check_export(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def lower(ctx: Any, *args: Any, exported: Any, **parameters: Any) -> Any:
        if not {"cpu", "cuda"} <= set(exported.platforms) and _is_for_gpus(ctx.module_context):
            ctx = ctx.replace(module_context=ctx.module_context.replace(platforms=("cuda",)))
        return original(ctx, *args, exported=exported, **parameters)

    return lower


def _is_for_gpus(module: Any) -> bool:
    """Return True if a module that is being compiled will run on simulated GPUs; one to export is for no device."""
    if module.lowering_parameters.for_export:
        return False
    axis = module.axis_context
    devices: Any = getattr(axis, "device_assignment", None)
    if devices is None and hasattr(axis, "mesh"):
        devices = getattr(axis.mesh, "_flat_devices_tuple", None)
    return tuple(module.platforms) == ("cpu",) and bool(devices) and is_gpu(devices[0])
