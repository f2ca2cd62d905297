"""Implicit transfers by JAX's compiled functions, which include all its operators: they copy arguments to a GPU.

JAX has a guard for these (``jax.transfer_guard_host_to_device`` and others), which raises in C++. devshim does not use
it: it also refuses numbers, and so ``x + 1`` and ``jnp.zeros(3)``; it refuses copies from NumPy to JAX's CPU device; it
cannot warn; and it is thread-local, so that tasks would share it. devshim reads its flags for ``jax.device_put`` and
``jax.device_get``, which are explicit transfers.

All arguments go through ``InputsHandler``, except those of functions on JAX's C++ fast path. So while a listener is
active, functions on GPUs do not take the fast path.
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
from devshim.monitoring.instrumentation import is_suppressed, patched, suppressed
from devshim_backends._jax.devices import started
from devshim_backends._jax.simulation.hooks import forget_short_cuts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from devshim.devices.device import Device

__all__ = ["arguments_told", "asked_for", "updates_told"]

_JAXS = frozenset({"jax", "jaxlib", "devshim_backends"})
"""The root packages of frames between the user's line and a compiled function."""
_UPDATES = ("get", "set", "add", "subtract", "multiply", "mul", "divide", "power", "min", "max")
_flags = getattr(config, "guard_lib", None) or config.transfer_guard_lib  # the latter up to JAX 0.4.36


def asked_for() -> bool:
    """Return True if this thread is in ``jax.device_get`` or ``jax.device_put``."""
    state = _flags.thread_local_state()
    return bool(state.explicit_device_get or state.explicit_device_put)


@contextmanager
def arguments_told(
    where: Callable[[ArrayImpl], Device | None],
    named: Callable[[Any], Device | None],
    report: Callable[[Device, Device, str], None],
) -> Iterator[None]:
    """Report, inside the context, the arguments that JAX's compiled functions copy to another device.

    These are NumPy arrays and uncommitted arrays, such as those that `jax.numpy.stack` makes of NumPy arrays. JAX also
    makes uncommitted arrays of numbers, in ``x.at[0].set(1)`` and ``jax.grad``. So an uncommitted array is reported
    only if the function that the user's line calls was given such an array.

    Args:
        where: Returns an array's device, or None.
        named: Returns the device for a JAX device.
        report: Called with source, target and reason.
    """
    theirs = pxla.InputsHandler.__call__

    def call(handler: Any, args: Any) -> Any:
        if not is_suppressed():
            for x, sharding in zip(args, handler.in_shardings, strict=False):
                source = where_from(x)
                if source is not None:
                    _tell(x, source, sharding)
        return theirs(handler, args)

    def where_from(x: Any) -> Device | None:
        if not _is_carried(x):  # JAX refuses arrays that are committed to another device
            return None
        return CPU if isinstance(x, np.ndarray) else where(x)

    def _tell(x: Any, source: Device, sharding: Any) -> None:
        targets = {named(native) for native in getattr(sharding, "device_set", ())}
        if source not in targets and _is_hidden(x):
            for target in sorted(each for each in targets if each is not None):
                report(source, target, "an argument of a compiled function")

    with _no_short_cuts(), patched(pxla.InputsHandler, {"__call__": call}):
        yield


def _is_hidden(x: Any) -> bool:
    """Return True if the user's line does not name the device, and JAX did not make the argument of numbers."""
    called = _called()
    if called is None:
        return True
    names, _, _, given = getargvalues(called)
    if "device" in names and given["device"] is not None:  # such as jnp.asarray(array, device=gpu)
        return False
    return isinstance(x, np.ndarray) or _is_given(called)


def _is_the_users() -> bool:
    """Return True if an update is the user's, or of a JAX function that was given an array: `jnp.insert` makes one."""
    called = _called()
    return called is None or called.f_globals.get("__name__") == __name__ or _is_given(called)


def _is_given(called: FrameType) -> bool:
    """Return True if a function was given an array that JAX would copy to another device."""
    names, variable, keywords, given = getargvalues(called)
    handed = [given.get(name) for name in (*names, variable, keywords) if name is not None]
    return any(map(_is_carried, jax.tree_util.tree_leaves(handed)))


def _is_carried(x: Any) -> bool:
    """Return True if JAX would copy an argument to the device where it is used, and it is not a number."""
    return (isinstance(x, np.ndarray) or (type(x) is ArrayImpl and not x._committed)) and x.ndim > 0


def _called() -> FrameType | None:
    """Return the frame of the JAX function that was called by the nearest line outside JAX."""
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
    """Report, inside the context, what ``x.at[index].set(values)`` and similar methods copy to the device of ``x``.

    JAX makes arrays of the index and the values before any compiled function sees them.

    Args:
        where: Returns an array's device, or None.
        carried: Returns the device of an array that JAX would copy to another device, otherwise None.
        report: Called with source, target and reason.
    """

    def telling(theirs: Any) -> Any:
        def method(update: Any, *args: Any, **kwargs: Any) -> Any:
            x, index = update.array, update.index
            target = where(x) if type(x) is ArrayImpl and not is_suppressed() else None
            if target is None or target is CPU:
                return theirs(update, *args, **kwargs)
            found = [*(index if isinstance(index, tuple) else (index,)), *args[:1], kwargs.get("values")]
            sources = [
                (CPU if each.ndim else None) if isinstance(each, np.ndarray) else carried(each) for each in found
            ]
            for source in sources:
                if source is not None and source is not target and _is_the_users():
                    report(source, target, "an index or a value")
            with suppressed():
                return theirs(update, *args, **kwargs)

        return method

    names = [name for name in _UPDATES if hasattr(_IndexUpdateRef, name)]
    with patched(_IndexUpdateRef, {name: telling(getattr(_IndexUpdateRef, name)) for name in names}):
        yield


@contextmanager
def _no_short_cuts() -> Iterator[None]:
    """Keep functions on GPUs from the fast path; on simulated GPUs `simulation.hooks` does it already."""
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
        if pjit._get_fastpath_data is none_on_cards:  # otherwise simulation was switched on or off meanwhile
            pjit._get_fastpath_data = theirs
