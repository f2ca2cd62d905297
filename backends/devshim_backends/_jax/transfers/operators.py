"""Implicit transfers by JAX's compiled functions, which include all its operators: they copy arguments to a GPU.

JAX has a guard for these (``jax.transfer_guard_host_to_device`` and others), which raises in C++. devshim does not use
it: it also refuses numbers, and so ``x + 1`` and ``jnp.zeros(3)``; it refuses copies from NumPy to JAX's CPU device; it
cannot warn; and it is thread-local, so that tasks would share it. devshim reads its flags for ``jax.device_put`` and
``jax.device_get``, which are explicit transfers.

All arguments go through ``InputsHandler``, except those of functions on JAX's C++ fast path. So while a listener is
active, functions that copy an array to a GPU do not take the fast path.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax._src import config, pjit
from jax._src.array import ArrayImpl
from jax._src.interpreters import pxla
from jax._src.numpy.array_methods import _IndexUpdateRef

from devshim.devices.device import CPU
from devshim.monitoring.instrumentation import is_suppressed, patched, suppressed
from devshim_backends._jax.internals.clients import computes_on_cpu
from devshim_backends._jax.simulation.internals import fast_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from devshim.devices.device import Device

__all__ = ["is_explicit_transfer", "report_arguments", "report_updates"]

_JAX_PACKAGES = frozenset({"jax", "jaxlib", "devshim_backends"})
"""The root packages of frames between the user's line and a compiled function."""
_UPDATES = ("get", "set", "add", "subtract", "multiply", "mul", "divide", "power", "min", "max")
_CREATION = frozenset(inspect.unwrap(each).__code__ for each in (jax.numpy.array, jax.numpy.asarray))
"""The functions that make an array of host values on the default device, which is explicit, as in every framework.

In a list with JAX arrays, a NumPy array is an operand."""
_flags = config.guard_lib


def is_explicit_transfer() -> bool:
    """Return True if this thread is in ``jax.device_get`` or ``jax.device_put``."""
    state = _flags.thread_local_state()
    return bool(state.explicit_device_get or state.explicit_device_put)


@contextmanager
def report_arguments(
    where: Callable[[ArrayImpl], Device | None],
    device_of_native: Callable[[Any], Device | None],
    report: Callable[[Device, Device, str], None],
) -> Iterator[None]:
    """Report, inside the context, the arguments that JAX's compiled functions copy to another device.

    These are NumPy arrays and uncommitted arrays, such as those that `jax.numpy.stack` makes of NumPy arrays. JAX also
    makes such arrays of numbers and masks, in ``x.at[0].set(1)``, ``x[x > 1]`` and ``jax.grad``. So an array is
    reported only if the function that the user's line calls was given an array like that.

    Args:
        where: Returns an array's device, or None.
        device_of_native: Returns the device for a JAX device.
        report: Called with source, target and reason.
    """
    original = pxla.InputsHandler.__call__

    def call(handler: Any, args: Any) -> Any:
        if not is_suppressed():
            for x, sharding in zip(args, handler.in_shardings, strict=False):
                source = source_of(x)
                if source is not None:
                    report_copies(x, source, sharding)
        return original(handler, args)

    def source_of(x: Any) -> Device | None:
        if not fast_path.is_movable(x):  # JAX refuses arrays that are committed to another device
            return None
        return CPU if isinstance(x, np.ndarray) else where(x)

    def report_copies(x: Any, source: Device, sharding: Any) -> None:
        targets = {device_of_native(native) for native in getattr(sharding, "device_set", ())}
        if source not in targets and _is_implicit():
            fast_path.note_refusal()
            for target in sorted(each for each in targets if each is not None):
                report(source, target, "an argument of a compiled function")

    with _keep_copies_off_fast_path(), patched(pxla.InputsHandler, {"__call__": call}):
        yield


def _is_implicit() -> bool:
    """Return True if the user's line gave an array to a JAX function, and did not ask for a copy of it.

    Otherwise JAX has made the argument itself: of numbers, or of a mask, whose read is reported.
    """
    frame = _jax_function_frame()
    if frame is None:
        return True
    arguments = _arguments(frame)
    if arguments.get("device") is not None:
        return False
    leaves = jax.tree_util.tree_leaves(arguments)
    if frame.f_code in _CREATION and not any(isinstance(x, ArrayImpl) for x in leaves):
        return False
    return any(map(fast_path.is_movable, leaves))


def _is_user_update() -> bool:
    """Return True if an update is the user's, or of a JAX function that was given an array: `jnp.insert` makes one."""
    frame = _jax_function_frame()
    return frame is None or frame.f_globals.get("__name__") == __name__ or _receives_movable(frame)


def _receives_movable(frame: FrameType) -> bool:
    """Return True if one of a function's arguments is an array that JAX would copy to another device."""
    return any(map(fast_path.is_movable, jax.tree_util.tree_leaves(_arguments(frame))))


def _arguments(frame: FrameType) -> dict[str, Any]:
    """Return the arguments of a function that is running, by name."""
    names, variable, keywords, values = inspect.getargvalues(frame)
    return {name: values.get(name) for name in (*names, variable, keywords) if name is not None}


def _jax_function_frame() -> FrameType | None:
    """Return the frame of the JAX function that was called by the nearest line outside JAX."""
    called: FrameType | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_globals.get("__name__") or "").partition(".")[0] in _JAX_PACKAGES:
        called, frame = frame, frame.f_back
    return called


@contextmanager
def report_updates(
    where: Callable[[ArrayImpl], Device | None],
    uncommitted: Callable[[Any], Device | None],
    report: Callable[[Device, Device, str], None],
) -> Iterator[None]:
    """Report, inside the context, what ``x.at[index].set(values)`` and similar methods copy to the device of ``x``.

    JAX makes arrays from the index and the values before any compiled function sees them.

    Args:
        where: Returns an array's device, or None.
        uncommitted: Returns the device of an array that JAX would copy to another device, otherwise None.
        report: Called with source, target and reason.
    """

    def reporting(original: Any) -> Any:
        def method(update: Any, *args: Any, **kwargs: Any) -> Any:
            x, index = update.array, update.index
            target = where(x) if type(x) is ArrayImpl and not is_suppressed() else None
            if target is None or target is CPU:
                return original(update, *args, **kwargs)
            operands = [*(index if isinstance(index, tuple) else (index,)), *args[:1], kwargs.get("values")]
            sources = [
                (CPU if each.ndim else None) if isinstance(each, np.ndarray) else uncommitted(each) for each in operands
            ]
            for source in sources:
                if source is not None and source is not target and _is_user_update():
                    report(source, target, "an index or a value")
            with suppressed():
                return original(update, *args, **kwargs)

        return method

    names = [name for name in _UPDATES if hasattr(_IndexUpdateRef, name)]
    with patched(_IndexUpdateRef, {name: reporting(getattr(_IndexUpdateRef, name)) for name in names}):
        yield


@contextmanager
def _keep_copies_off_fast_path() -> Iterator[None]:
    """Keep functions that copy an array to or from a GPU from the fast path; afterwards JAX decides again."""
    original = pjit._get_fastpath_data

    def decide(executable: Any, *args: Any, **kwargs: Any) -> Any:
        natives = executable.unsafe_call._local_devices if hasattr(executable, "unsafe_call") else ()
        is_on_gpu = any(not computes_on_cpu(each) for each in natives)  # the hooks of simulated GPUs ask themselves
        if natives and not fast_path.may_take(natives, args[1], is_on_gpu):
            return None
        return original(executable, *args, **kwargs)

    pjit._get_fastpath_data = decide
    try:
        with fast_path.refuse_copies():
            yield
    finally:
        if pjit._get_fastpath_data is decide:  # otherwise simulation was switched on or off meanwhile
            pjit._get_fastpath_data = original
