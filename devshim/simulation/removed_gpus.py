"""Refuse the use of tensors that are still on a simulated GPU after that GPU was removed.

A GPU is removed when a ``with ds.simulate(...)`` block ends, or when fewer GPUs are simulated than before.
Requirements of this module:

* `device_of` still works for these tensors, on every framework, and the GPU counts its memory until it is freed.
* The error names the line that removed the GPU. devshim's own calls raise it; the framework's operators and reads
  raise it too, as far as the adapter can intercept them (`Backend.refuse_removed_devices`).
* No check is installed if no tensor is left behind. When the same GPUs come back, every tensor works again.
* When the last tensor on the removed GPUs has died, nothing is refused any more. Python does not report that, because
  the callback of a weak reference must not run Python code (see `memory`), so `forget_unused` looks before an error.
"""

from __future__ import annotations

import gc
from _thread import RLock
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from devshim.errors import SimulationError
from devshim.transfers.observers import site

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim.simulation.memory import Fault

    Check: TypeAlias = Callable[[Device | None], None]

__all__ = ["device_even_if_removed", "forget_unused", "removed_gpu_error", "switch"]

_READS = ("copy_to", "copy_many", "to_numpy", "to_dlpack")
"""The methods of an adapter that may get tensors whose device is not known yet, and that need a check."""

_INSTALLED: dict[str, ExitStack] = {}
"""The installed checks, by the backend's name."""

_LOCK: Any = RLock()
"""Held by `forget_unused`; a switch, which may wait for other threads, only counts itself in `_switches`."""
_switches = 0


def switch(backend: Backend, gpus: int, memory: int | None, faults: Sequence[Fault]) -> None:
    """Show ``gpus`` simulated GPUs on a backend, and refuse the use of tensors on GPUs that this removes.

    Raises:
        SimulationError: Under the same conditions as `Backend.simulate`.
    """
    _count_switch(1)
    try:
        _switch(backend, gpus, memory, faults)
    finally:
        _count_switch(-1)


def _count_switch(step: int) -> None:
    global _switches
    with _LOCK:
        _switches += step


def _switch(backend: Backend, gpus: int, memory: int | None, faults: Sequence[Fault]) -> None:
    before, removed = backend.simulated_or_removed, [(gpu, gpu.removed_at) for gpu in backend.simulated_devices or ()]
    last_used = _used_beyond(backend, gpus)
    _stop(backend)
    backend.simulated_or_removed = max(gpus, last_used)
    for gpu, _ in removed[:gpus]:
        gpu.removed_at = None
    try:
        backend.simulate(gpus, memory, faults)
    except BaseException:
        backend.simulated_or_removed = before
        for gpu, line in removed:
            gpu.removed_at = line
        if before > backend.simulated:
            _start(backend)
        raise
    for gpu, line in removed[gpus:]:
        gpu.removed_at = (line or site()) if gpu.device.index < last_used else None
    if last_used:
        _start(backend)


def _used_beyond(backend: Backend, gpus: int) -> int:
    """Return how many GPUs must keep their label: the number up to the last removed GPU that is still in use."""
    simulated = backend.simulated_devices
    if simulated is None or not simulated.used_beyond(gpus):
        return 0
    gc.collect()  # tensors that only a reference cycle keeps alive, such as an error and its traceback, are not in use
    return simulated.used_beyond(gpus)


def forget_unused(backend: Backend, *, collect: bool = True) -> None:
    """Stop refusing removed GPUs on which no tensor is left; their `removed_at` is None afterwards.

    Args:
        backend: The backend; no lock of its adapter may be held.
        collect: True to look for reference cycles first, which takes much longer: for a new tensor, and for a device
            that a program names. A tensor that is on a removed GPU is in use, so a search is not worth its time.
    """
    if _LOCK._is_owned():  # a finalizer that the search below runs
        return
    with _LOCK:
        if _switches:  # a switch decides about removed GPUs itself
            return
        simulated: Any = backend.simulated_devices  # not None: the backend has simulated GPUs that were removed
        last_used = simulated.used_beyond(backend.simulated, unseen=False)
        if last_used and collect:
            gc.collect()
            last_used = simulated.used_beyond(backend.simulated, unseen=False)
        labelled = max(backend.simulated, last_used)
        if labelled >= backend.simulated_or_removed:
            return
        _stop(backend)
        backend.simulated_or_removed = labelled
        backend.forget_removed_devices()
        for gpu in simulated:
            if gpu.device.index >= labelled:
                gpu.removed_at = None
        if last_used:
            _start(backend)


def _start(backend: Backend) -> None:
    """Install the checks that refuse the use of tensors on removed GPUs."""
    simulated: Any = backend.simulated_devices
    plain, plain_native = type(backend).device_of, type(backend).from_native

    def refused(device: Device | None) -> bool:
        is_simulated = device is not None and device.kind == "gpu" and device.index < backend.simulated_or_removed
        return is_simulated and simulated[device.index].removed_at is not None  # type: ignore[union-attr]

    def check(device: Device | None) -> None:
        if refused(device):
            forget_unused(backend, collect=False)
            simulated[device.index].require_shown()  # type: ignore[union-attr]  # None is not refused

    def device_of(x: Any) -> Device:
        device = plain(backend, x)
        if not refused(device):
            return device
        check(device)
        return plain(backend, x)

    def from_native(native: object) -> Device | None:
        device = plain_native(backend, native)
        if not refused(device):
            return device
        forget_unused(backend)
        return plain_native(backend, native)

    own = vars(backend)
    own.update(device_of=device_of, from_native=from_native)
    own.update({name: _check_first(backend, getattr(backend, name), check) for name in _READS})
    simulated.forget_unused = partial(forget_unused, backend)
    stack = _INSTALLED[backend.name] = ExitStack()
    for name in ("device_of", "from_native", *_READS):
        stack.callback(own.pop, name, None)
    stack.enter_context(backend.refuse_removed_devices(check))


def _stop(backend: Backend) -> None:
    installed = _INSTALLED.pop(backend.name, None)
    if installed is not None:
        installed.close()


def _check_first(backend: Backend, method: Callable[..., Any], check: Check) -> Callable[..., Any]:
    """Wrap an adapter's method so that it checks the devices of its tensors first."""
    plain = type(backend).device_of

    def checked(xs: Any, *args: Any, **kwargs: Any) -> Any:
        alone = backend.is_tensor(type(xs))
        for x in (xs,) if alone else [xs[i] for i in range(len(xs))]:  # by index: iterating over `xs` may use it up
            for part in () if backend.is_tracer(x) else backend.shards(x) or (x,):
                check(plain(backend, part))
        return method(xs, *args, **kwargs)

    return checked


def device_even_if_removed(backend: Backend, read: Callable[[], Any]) -> Device:
    """Return the device of the tensor that ``read()`` returns; for a removed GPU, the device that it was on."""
    try:
        return backend.device_of(read())
    except SimulationError as error:
        return error.where()


def removed_gpu_error(device: Device, site: str, cls: type[SimulationError] = SimulationError) -> SimulationError:
    """Return the error for the use of a tensor on a simulated GPU that is no longer shown."""
    real = f": {cls._real_text}" if cls._real_text else ""
    error = cls(
        f"{device} was removed at {site}, and a tensor on it was used{real}",
        f"keep the ds.simulate(...) block open while its tensors are used, or move them first: ds.place(x, 'cpu'); "
        f"ds.simulate(gpus={device.index + 1}) brings {device} back, with the tensors on it",
    )
    error.device = device
    return error
