"""JAX's fast path for functions on simulated GPUs, with results that are counted.

After its first run, a compiled function, and so every operator, runs in C++ without any Python: it takes 5 us instead
of 50. At its end, C++ arranges the results as the tree that the function returns. For a node of a class that was
registered in Python, it calls Python. So devshim makes the whole tree one such node, `_Results`, which counts the
arrays before it arranges them.

The fast path can refuse nothing before it runs, and does not show which arguments it was given. So a function goes
through Python each time if a GPU has a fault or was removed, if the function takes over its arguments' memory, or if
its results are large and a GPU has a limit.

A guard must see each array that JAX copies to a GPU. JAX has one fast path for each combination of arguments: for
arrays, by their devices and whether they are committed; everything else has another one. So a fast path that was
decided for arguments that JAX does not copy never copies an array. While a guard is open, only such a function takes
the fast path, and those that may copy an array are decided again when the guard opens.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax._src import pjit
from jax._src.array import ArrayImpl
from jax._src.tree_util import dispatch_registry

from devshim_backends._jax.simulation import memory, storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from devshim.simulation.memory import SimulatedDevice

__all__ = [
    "clear_fast_paths",
    "count_results",
    "is_allowed",
    "is_movable",
    "may_take",
    "note_refusal",
    "refuse_copies",
    "watch",
]

_CACHES = ("_cpp_pjit_cache_fun_only", "_cpp_pjit_cache_explicit_attributes")
"""The names of the caches of fast paths."""

_SMALL = 1 << 26
"""The bytes of results up to which a function may run before a GPU with a limit refuses them."""

_observers: list[object] = []
"""An entry for each context in which functions that copy an array to a GPU must go through Python."""
_is_watched = False
"""True while every new fast path is passed to `may_take`."""
_may_copy = True
"""False if no function with a fast path copies an array to or from a GPU."""
_was_refused = False
"""True if a function was refused the fast path because of an observer."""


def watch(on: bool) -> None:
    """Start or stop passing every new fast path to `may_take`; all are decided again."""
    global _is_watched
    _is_watched = on
    clear_fast_paths()


def clear_fast_paths() -> None:
    """Make JAX decide again which operators take the fast path; nothing is compiled again."""
    global _may_copy, _was_refused
    _may_copy, _was_refused = not _is_watched, False  # first: another thread may decide a function meanwhile
    for name in _CACHES:
        if hasattr(pjit, name):
            getattr(pjit, name).clear()


@contextmanager
def refuse_copies() -> Iterator[None]:
    """Keep functions that copy an array to or from a GPU from the fast path inside the context."""
    observer = object()
    _observers.append(observer)
    if _may_copy:
        clear_fast_paths()
    try:
        yield
    finally:
        _observers.remove(observer)
        if _was_refused:
            clear_fast_paths()


def may_take(natives: Iterable[Any], arguments: Iterable[Any], on_gpu: bool) -> bool:
    """Return False if a function copies an array to or from a GPU while that is observed.

    Args:
        natives: The JAX devices that it runs on.
        arguments: The arguments that it was given.
        on_gpu: True if one of the devices is a GPU.
    """
    global _may_copy
    devices = set(natives)
    moved = (x for x in arguments if is_movable(x))
    if not any(on_gpu if isinstance(x, np.ndarray) else x.sharding.device_set != devices for x in moved):
        return True
    _may_copy = True  # before the observers are read: one that comes in the meantime clears the fast paths
    if _observers:
        note_refusal()
        return False
    return True


def note_refusal() -> None:
    """Record that a function was refused its fast path, so that JAX decides again when the observers are gone."""
    global _was_refused
    _was_refused = True


def is_movable(x: Any) -> bool:
    """Return True if JAX would copy an argument to the device where it is used, and it is not a number."""
    return (isinstance(x, np.ndarray) or (type(x) is ArrayImpl and not x._committed)) and x.ndim > 0


def is_allowed(gpus: Iterable[SimulatedDevice], nbytes: int, arguments: Iterable[Any]) -> bool:
    """Return True if a function that has just run may take the fast path from now on.

    Args:
        gpus: The simulated GPUs that it runs on.
        nbytes: The size of its results on each of them.
        arguments: The arguments that it was given.
    """
    if any(_can_fail(gpu) or (gpu.limit is not None and nbytes > _SMALL) for gpu in gpus):
        return False
    return not any(x.is_deleted() for x in map(storage.underlying_array, arguments) if x is not None)


def _can_fail(gpu: SimulatedDevice) -> bool:
    """Return True if operators may have to be refused for another reason than a full memory."""
    return bool(gpu._faults or gpu.vanished or gpu.removed_at is not None)


def count_results(fastpath: Any, waits: bool) -> Any:
    """Return JAX's data of a fast path, changed so that its results are counted.

    Args:
        fastpath: What JAX would use.
        waits: True to return only when the results are there.
    """
    tree = fastpath.out_pytree_def
    _, node = dispatch_registry.flatten(_Results([0] * tree.num_leaves, _Plan(tree, waits)), None)
    return fastpath._replace(out_pytree_def=node)


class _Plan:
    """The data that count a function's results and arrange them as its tree.

    Attributes:
        tree: The tree that the function returns.
        parts: For each result, the buffers that it has, as for `memory.count_results`; None before the first run, after
            which it never changes.
        waits: True if the results are waited for.
    """

    __slots__ = ("parts", "tree", "waits")

    def __init__(self, tree: Any, waits: bool) -> None:
        self.tree, self.waits = tree, waits
        self.parts: list[memory.Parts] | None = None


class _Results:
    """The tree node of a function's results; only its registration is used."""

    def __init__(self, leaves: Sequence[Any], plan: _Plan) -> None:
        self.leaves, self.plan = leaves, plan


def _count_and_arrange(plan: _Plan, results: Sequence[Any]) -> Any:
    parts = plan.parts
    if parts is None:
        parts = plan.parts = [memory.parts_of(x) for x in results]
    memory.count_results(results, parts)
    if plan.waits:
        jax.block_until_ready(results)
    return plan.tree.unflatten(results)


dispatch_registry.register_node(_Results, lambda node: (node.leaves, node.plan), _count_and_arrange)
