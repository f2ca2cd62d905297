"""Kinds of memory in shardings with native names: a simulated GPU refuses those that a real GPU lacks.

The CPU, on which a simulated GPU is, also has ``unpinned_host``. JAX refuses a kind in C++, when a sharding is made;
here it is refused in Python, when a sharding is used in `jax.device_put`, `jax.jit` or a constraint.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from jax._src import pjit
from jax.sharding import AbstractMesh

from devshim_backends._jax.simulation.native_names.devices import text_of_lacking_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from devshim.simulation.patching import Patches

__all__ = ["install"]


def install(patches: Patches) -> None:
    """Check the kind of memory of each sharding that is used."""
    patches.replace(pjit, "pjit_check_aval_sharding", _check_kinds(pjit.pjit_check_aval_sharding))


def _check_kinds(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def pjit_check_aval_sharding(shardings: Iterable[Any], *args: Any, **options: Any) -> None:
        for sharding in shardings:
            if getattr(sharding, "memory_kind", None) == "unpinned_host":
                _require_kind(sharding)
        original(shardings, *args, **options)

    return pjit_check_aval_sharding


def _require_kind(sharding: Any) -> None:
    if isinstance(getattr(sharding, "mesh", None), AbstractMesh):
        return  # it has no devices
    for native in sharding.device_set:
        lacking = text_of_lacking_memory(native, sharding.memory_kind)
        if lacking and native.default_memory().kind != sharding.memory_kind:
            raise ValueError(lacking)
