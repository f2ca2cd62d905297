"""What compiled functions of JAX's, which all its operators are, carry to a card by themselves.

JAX's own guard (``jax.transfer_guard_host_to_device`` and its like) raises there, in C++.  It is not switched on here:
it refuses numbers, too, and with them ``x + 1`` and ``jnp.zeros(3)``, and what is carried to the host itself; it cannot
warn; and it is its thread's, so that tasks would share it.  Its flags for ``jax.device_put`` and ``jax.device_get``,
which say what they do, are asked.

All arguments pass ``InputsHandler``, except those of functions that run by a short cut in C++, which is not taken on
cards while somebody watches.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from inspect import getargvalues
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax._src import config, pjit
from jax._src.array import ArrayImpl
from jax._src.interpreters import pxla
from jax._src.numpy.array_methods import _IndexUpdateRef

from devshim.devices.device import CPU
from devshim.monitoring.instrumentation import quiet, replaced, said
from devshim_backends._jax.devices import started
from devshim_backends._jax.simulation.hooks import forget_short_cuts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from devshim.devices.device import Device

__all__ = ["arguments_told", "asked_for", "updates_told"]

_JAXS = frozenset({"jax", "jaxlib", "devshim_backends"})
"""Root packages between the user's line and a compiled function."""
_UPDATES = ("get", "set", "add", "subtract", "multiply", "mul", "divide", "power", "min", "max")
_flags = getattr(config, "guard_lib", None) or config.transfer_guard_lib  # the latter up to JAX 0.4.36


def asked_for() -> bool:
    """Whether this thread is in ``jax.device_get`` or ``jax.device_put``."""
    state = _flags.thread_local_state()
    return bool(state.explicit_device_get or state.explicit_device_put)


@contextmanager
def arguments_told(
    where: Callable[[ArrayImpl], Device | None],
    named: Callable[[Any], Device | None],
    report: Callable[[Device, Device, str], None],
) -> Iterator[None]:
    """Have JAX tell of what a compiled function carries, while the block is open.

    That is arrays of NumPy's, and such that are committed nowhere, as JAX makes of the former in `jax.numpy.stack` and
    the like.  It makes them of numbers, too, in ``x.at[0].set(1)`` and ``jax.grad``: so of those is told only where
    the function that the user's line calls was given such an array.

    Args:
        where: Returns an array's device, or None.
        named: Returns the device of one of JAX's devices.
        report: Told source, target and reason.
    """
    theirs = pxla.InputsHandler.__call__

    def call(handler: Any, args: Any) -> Any:
        if not quiet():
            for x, sharding in zip(args, handler.in_shardings, strict=False):
                source = where_from(x)
                if source is not None:
                    _tell(x, source, sharding)
        return theirs(handler, args)

    def where_from(x: Any) -> Device | None:
        if not _is_carried(x):  # JAX refuses what is committed elsewhere
            return None
        return CPU if isinstance(x, np.ndarray) else where(x)

    def _tell(x: Any, source: Device, sharding: Any) -> None:
        targets = {named(native) for native in getattr(sharding, "device_set", ())}
        if source not in targets and _is_hidden(x):
            for target in sorted(each for each in targets if each is not None):
                report(source, target, "an argument of a compiled function")

    with _no_short_cuts(), replaced(pxla.InputsHandler, {"__call__": call}):
        yield


def _is_hidden(x: Any) -> bool:
    """Whether the user's line says not where an argument goes, and JAX did not make it of numbers for itself."""
    called = _called()
    if called is None:
        return True
    names, _, _, given = getargvalues(called)
    if "device" in names and given["device"] is not None:  # jnp.asarray(array, device=card)
        return False
    return isinstance(x, np.ndarray) or _is_given(called)


def _is_the_users() -> bool:
    """Whether an update is the user's, or of a function of JAX's that was given an array: `jnp.insert` makes one."""
    called = _called()
    return called is None or called.f_globals.get("__name__") == __name__ or _is_given(called)


def _is_given(called: FrameType) -> bool:
    """Whether a function was given an array that JAX would carry."""
    names, variable, keywords, given = getargvalues(called)
    handed = [given.get(name) for name in (*names, variable, keywords) if name is not None]
    return any(map(_is_carried, jax.tree_util.tree_leaves(handed)))


def _is_carried(x: Any) -> bool:
    """Whether JAX would carry it to where it is wanted, and it is no number."""
    return (isinstance(x, np.ndarray) or (type(x) is ArrayImpl and not x._committed)) and x.ndim > 0


def _called() -> FrameType | None:
    """The function of JAX's that the nearest line of somebody else's has called."""
    called: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_globals.get("__name__") or "").partition(".")[0] in _JAXS:
        called, frame = frame, frame.f_back
    return called


@contextmanager
def updates_told(
    where: Callable[[ArrayImpl], Device | None],
    carried: Callable[[Any], Device | None],
    report: Callable[[Device, Device, str], None],
) -> Iterator[None]:
    """Have ``x.at[index].set(values)`` and its like tell of what they carry to ``x``, while the block is open.

    JAX makes arrays of what it is given there before any compiled function sees it.

    Args:
        where: Returns an array's device, or None.
        carried: Returns the device of an array that JAX would carry elsewhere, else None.
        report: Told source, target and reason.
    """

    def telling(theirs: Any) -> Any:
        def method(update: Any, *args: Any, **kwargs: Any) -> Any:
            x, index = update.array, update.index
            target = where(x) if type(x) is ArrayImpl and not quiet() else None
            if target is None or target is CPU:
                return theirs(update, *args, **kwargs)
            found = [*(index if isinstance(index, tuple) else (index,)), *args[:1], kwargs.get("values")]
            sources = [
                (CPU if each.ndim else None) if isinstance(each, np.ndarray) else carried(each) for each in found
            ]
            for source in sources:
                if source is not None and source is not target and _is_the_users():
                    report(source, target, "an index or a value")
            with said():
                return theirs(update, *args, **kwargs)

        return method

    names = [name for name in _UPDATES if hasattr(_IndexUpdateRef, name)]
    with replaced(_IndexUpdateRef, {name: telling(getattr(_IndexUpdateRef, name)) for name in names}):
        yield


@contextmanager
def _no_short_cuts() -> Iterator[None]:
    """Have no function take one on a card; on simulated cards none does anyway (`.watching`)."""
    theirs = pjit._get_fastpath_data

    def none_on_cards(executable: Any, *args: Any, **kwargs: Any) -> Any:
        natives = executable.unsafe_call._local_devices if hasattr(executable, "unsafe_call") else ()
        return None if any(each.platform != "cpu" for each in natives) else theirs(executable, *args, **kwargs)

    pjit._get_fastpath_data = none_on_cards
    if started() and any(each.platform != "cpu" for each in jax.local_devices()):
        forget_short_cuts()
    try:
        yield
    finally:
        if pjit._get_fastpath_data is none_on_cards:  # else simulation was switched on or off meanwhile
            pjit._get_fastpath_data = theirs
