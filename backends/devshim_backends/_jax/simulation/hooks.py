"""Hooks in JAX that see every new array on a simulated GPU, installed while GPUs are simulated.

Requirements this module answers:

* JAX's operators run out of memory as devshim's calls do. If their results cannot possibly fit, the error comes before
  they run, so that the host does not store what the simulated GPU would refuse. Otherwise it comes after they ran.
* Arrays on the host are as fast as without simulation.

There are two kinds of hooks. Compiled code, and so every operator, runs in ``ExecuteReplicated.__call__``; moves use
one of three implementations of ``device_put``. After its first run, an operator can take JAX's C++ fast path, which
skips Python. ``_get_fastpath_data`` decides that, and the hook refuses the fast path for code on simulated GPUs.
"""

from __future__ import annotations

import re
import threading
from math import prod
from typing import TYPE_CHECKING, Any

from jax._src import dispatch, pjit, stages
from jax._src.interpreters import pxla

from devshim.errors import DeviceMismatchError, messages
from devshim.simulation.memory import ROUND
from devshim_backends._jax.simulation import memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.simulation.memory import SimulatedDevice
    from devshim_backends._jax.simulation.memory import JaxSimulatedDevices

_fastpath = pjit._get_fastpath_data
_execute = pxla.ExecuteReplicated.__call__
_put_impl = dispatch.device_put_p.impl
_put_many, _put_parts = dispatch._batched_device_put_impl, pxla.batched_device_put
_CACHES = ("_cpp_pjit_cache", "_cpp_pjit_cache_fun_only", "_cpp_pjit_cache_explicit_attributes")
"""The names of the caches of fast paths; the first one exists before JAX 0.4.36."""

_SAYS_MIXED = "_device_assignment_mismatch_error"
_mixed = [(module, getattr(module, _SAYS_MIXED)) for module in (pjit, stages) if hasattr(module, _SAYS_MIXED)]
"""The functions that write the text of the JAX error for arrays on several devices, just before JAX raises it."""

_moving = threading.local()
_cards: Mapping[Any, SimulatedDevice] = {}
_all: JaxSimulatedDevices | None = None


def install(cards: JaxSimulatedDevices, by_native: Mapping[Any, SimulatedDevice]) -> None:
    """Install the hooks, which count and check what is made on simulated GPUs. The mapping's keys are JAX devices."""
    global _cards, _all
    if any(native not in _cards for native in by_native):  # earlier operators there may use the fast path
        forget_short_cuts()
    _cards, _all = by_native, cards
    pjit._get_fastpath_data = _recording_fastpath
    pxla.ExecuteReplicated.__call__ = _recording_execute
    dispatch.device_put_p.def_impl(_recording_put_impl)
    dispatch._batched_device_put_impl = _recording_put_many
    pxla.batched_device_put = _recording_put_parts
    for module, says in _mixed:
        setattr(module, _SAYS_MIXED, _refusing(says))


def uninstall() -> None:
    """Uninstall the hooks."""
    global _cards
    _cards = {}
    for module, says in _mixed:
        setattr(module, _SAYS_MIXED, says)
    pxla.batched_device_put = _put_parts
    dispatch._batched_device_put_impl = _put_many
    dispatch.device_put_p.def_impl(_put_impl)
    pxla.ExecuteReplicated.__call__ = _execute
    pjit._get_fastpath_data = _fastpath
    forget_short_cuts()


def forget_short_cuts() -> None:
    """Make JAX decide again which operators take the fast path; nothing is compiled again."""
    for name in _CACHES:
        if hasattr(pjit, name):
            getattr(pjit, name).clear()


def _refusing(says: Callable[..., str]) -> Callable[..., str]:
    """Wrap the function so that devshim's error, which is also a ``ValueError``, is raised instead."""

    def refuse(*args: Any, **kwargs: Any) -> str:
        raise DeviceMismatchError(
            _NATIVE.sub(_named, says(*args, **kwargs)), "bring one of them to the other: ds.place(x, ds.device_of(y))"
        ) from None

    return refuse


_NATIVE = re.compile(r"with device ids \[(\d+)\] on platform CPU")
"""The name of a single device in JAX's error. Simulated GPUs are JAX's CPU devices from 1 on."""


def _named(found: re.Match[str]) -> str:
    index = int(found[1]) - 1
    return f"on gpu:{index} (simulated)" if index >= 0 else "on cpu"


def _recording_fastpath(executable: Any, *args: Any, **kwargs: Any) -> Any:
    natives = executable.unsafe_call._local_devices if hasattr(executable, "unsafe_call") else ()
    return None if any(native in _cards for native in natives) else _fastpath(executable, *args, **kwargs)


def _recording_put_impl(*xs: Any, **params: Any) -> Any:
    return _outermost(lambda: _put_impl(*xs, **params), xs)


def _recording_put_many(*xs: Any, **params: Any) -> Any:
    return _outermost(lambda: _put_many(*xs, **params), xs)


def _recording_put_parts(aval: Any, sharding: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
    return _outermost(lambda: [_put_parts(aval, sharding, xs, *args, **kwargs)], xs)[0]


def _outermost(put: Callable[[], Any], sources: Any) -> Any:
    """Count the arrays that a move made, but not those of the moves inside it, with which they share buffers."""
    if getattr(_moving, "now", False):
        return put()
    for x in map(memory.base, sources):
        for _, card in () if x is None or x.is_deleted() else memory.cards_of(x):
            card.require_shown()
    made = _unseen(put)
    try:
        memory.made(made, sources=sources)
    except BaseException:
        if isinstance(made, list):
            made.clear()  # the traceback would keep the arrays and their memory alive
        raise
    return made


def arriving(put: Callable[[], list[Any]], native: Any) -> list[Any]:
    """Move arrays to a device on which none of them is, and count them there, in a third of the time that `made` takes.

    Arrays from another device are in memory of their own, so shared buffers need not be looked for.
    """
    if native not in _cards or getattr(_moving, "now", False):
        return put()
    made: list[Any] = _unseen(put)
    try:
        memory.arrived(made, native)
    except BaseException:
        made.clear()  # the traceback would keep the arrays and their memory alive
        raise
    return made


def _unseen(work: Callable[[], Any]) -> Any:
    """Run a function without counting the moves that JAX makes for itself, such as for the 2 in ``x * 2``."""
    before, _moving.now = getattr(_moving, "now", False), True
    try:
        return work()
    finally:
        _moving.now = before


def _recording_execute(executable: Any, *args: Any) -> Any:
    by_native = _cards  # read once, because another thread may uninstall the hooks
    cards = [(native, by_native[native]) for native in executable._local_devices if native in by_native]
    if not cards:
        return _execute(executable, *args)
    for _, card in cards:
        card.check_alive("an operator")
        if card.limit is not None:
            _refuse_hopeless(executable, card, args)
    results = _unseen(lambda: _execute(executable, *args))
    memory.donated(args)
    try:
        memory.made(results)
    except BaseException:
        for x in map(memory.base, results):
            if x is not None:
                x.delete()  # the traceback of this error may keep it alive for long
        raise
    return results


def _refuse_hopeless(executable: Any, card: SimulatedDevice, args: Any) -> None:
    """Raise if the results cannot fit, even if they reuse the memory of all arguments."""
    sizes = [_result_bytes(*each) for each in zip(*_results(executable), strict=True)]
    wanted = sum(-(-size // ROUND) * ROUND for size in sizes)
    free = card.info().free
    if free is None or wanted <= free:
        return
    memory.settle()
    free, given = card.info().free or 0, sum(_argument_bytes(x) for x in args)
    if wanted <= free + given:
        return
    for size in sizes:
        if size > free:
            cards = _all
            assert cards is not None
            raise messages.full(card.device, size, free, cards.error_class())
        free -= -(-size // ROUND) * ROUND


def _results(executable: Any) -> tuple[Any, Any]:
    return executable.out_handler.out_avals, executable.out_handler.out_shardings


def _result_bytes(aval: Any, sharding: Any) -> int:
    """Return the bytes that a result takes on each of its devices, or 0 if it is not an array."""
    shape, itemsize = getattr(aval, "shape", None), getattr(getattr(aval, "dtype", None), "itemsize", None)
    return 0 if shape is None or itemsize is None else prod(sharding.shard_shape(shape)) * int(itemsize)


def _argument_bytes(x: Any) -> int:
    found = memory.base(x)
    return 0 if found is None or found.is_deleted() else -(-memory.part_bytes(found) // ROUND) * ROUND
