"""Synchronization and memory of devices, and settings that must be made before a framework starts its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from devshim.contract import capabilities
from devshim.devices import parsing
from devshim.devices.device import CPU, Device, as_int
from devshim.errors import DeviceNotFoundError
from devshim.errors.messages import already_started, bad_argument
from devshim.registry import argument_hints, current, registry, start_failures, tracing
from devshim.runtime import visible_devices
from devshim.transfers import engine, observing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from devshim.contract.backend import Backend
    from devshim.devices.info import MemoryInfo
    from devshim.devices.parsing import DeviceLike

__all__ = ["empty_cache", "memory", "memory_policy", "set_visible_devices", "synchronize"]


def synchronize(device: DeviceLike | None = None) -> None:
    """Wait until a device has finished all work that it was given.

    Args:
        device: The device; without it, every device of the current framework. The CPU needs no waiting.

    Raises:
        DeviceNotFoundError: The named device does not exist, or cannot start. Never raised without ``device``.
        OutOfMemoryError: The pending work did not fit in the device's memory; JAX reports that here.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.synchronize("cpu")
    """
    tracing.refuse("synchronize", "wait outside: here nothing has been computed yet")
    backend = current.current()
    targets = [CPU, *_cards(backend)] if device is None else [_start_device(backend, device)]
    observing.show_call(backend, "synchronize", targets[-1])
    _each(backend, targets, backend.synchronize, named=device is not None)


def memory(device: DeviceLike) -> MemoryInfo:
    """Return the memory of a device in bytes, as the current framework reports it.

    Args:
        device: The device. For the CPU: the machine's total and free memory, and this process's resident set.

    Returns:
        ``MemoryInfo(total, used, free, peak)``; a field that the framework cannot know is None.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> with ds.simulate(1, memory="1GiB"):
        ...     print(ds.memory("gpu").free)
        1073741824
    """
    tracing.refuse("memory", "ask outside: the compiled function would keep the value from compile time")
    backend = current.current()
    target = engine.require(backend, parsing.device_of_argument(device))
    observing.show_call(backend, "memory", target)
    return start_failures.ask_device(backend, target, backend.memory)


def empty_cache(device: DeviceLike | None = None) -> None:
    """Return memory that the current framework keeps for reuse to a device, or to every device; no effect on the CPU.

    Raises:
        DeviceNotFoundError: The named device does not exist, or cannot start.
        UnsupportedError: A device is named, and the framework has no such call.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.empty_cache("cpu")
    """
    tracing.refuse("empty_cache", "call it outside: here it would be done once, while the function is compiled")
    backend = current.current()
    if device is None:
        targets = [] if "empty_cache" in backend.gaps else _cards(backend)
    else:
        targets = [_start_device(backend, device)]
    for target in targets:
        observing.show_call(backend, "empty_cache", target)
    _each(backend, targets, backend.empty_cache, named=device is not None)


def _start_device(backend: Backend, device: DeviceLike) -> Device:
    """Return a named device; if it has only been counted so far, try to start it, which may fail."""
    target = engine.require(backend, parsing.device_of_argument(device))
    if target is not CPU and not backend.simulated:
        start_failures.touch_device(backend, target)
    return target


def _each(backend: Backend, targets: Iterable[Device], how: Callable[[Device], None], named: bool) -> None:
    """Call one of a backend's methods with each device; ignore a device that does not start unless it was named."""
    for target in targets:
        try:
            start_failures.ask_device(backend, target, how)
        except DeviceNotFoundError:
            if named:
                raise
        except Exception as error:
            engine.raise_full(backend, error, target, None)
            raise


def memory_policy(policy: Literal["grow"] | float) -> None:
    """Keep frameworks from reserving a whole GPU at first use, as TensorFlow and JAX do.

    Args:
        policy: ``"grow"`` to allocate memory as needed, in the current framework and in all imported ones: each one
            that shares a GPU needs it. Or the fraction of each GPU, in (0, 1], that the current one may use.

    Raises:
        AlreadyStartedError: One of them has started its devices, and accepts the setting only before that; call this
            before the first tensor. Nothing has changed.
        UnsupportedError: The current framework has no such setting.

    Examples:
        >>> import devshim as ds
        >>> ds.use("torch")
        >>> ds.memory_policy("grow")  # at the top of the program
    """
    backend = current.current()  # loaded, so that the next line asks it
    tracing.refuse("memory_policy", "call it at the top of the program")
    fraction = isinstance(policy, (int, float)) and not isinstance(policy, bool) and 0 < policy <= 1
    if not fraction and not (isinstance(policy, str) and policy == "grow"):
        raise bad_argument(
            "policy",
            policy,
            "'grow' or a fraction above 0 and at most 1",
            "ds.memory_policy('grow'), or ds.memory_policy(0.5) for half of each card",
        )
    if "memory_policy" in backend.gaps:
        raise capabilities.unsupported_error(backend, "memory_policy")
    concerned = [backend, *(_sharing(backend) if policy == "grow" else ())]
    for each in concerned:
        if ("grow" if policy == "grow" else "fraction") not in each.policies_after_start and each.started():
            raise already_started(each, f"ds.memory_policy({policy!r})")
    for each in concerned:
        observing.show_call(each, "memory_policy" if policy == "grow" else "memory_fraction", None, (policy,))
        _set_policy(each, policy)


def _set_policy(backend: Backend, policy: Literal["grow"] | float) -> None:
    """Pass the policy on to a framework; this may start its GPUs."""
    start_failures.ask_device(backend, Device("gpu"), lambda _: backend.memory_policy(policy))


def _sharing(backend: Backend) -> list[Backend]:
    """Return the other frameworks that are imported and could reserve whole GPUs."""
    others = [
        each for each in registry.imported_backends() if each is not backend and "grow" not in each.policies_after_start
    ]
    return [each for each in others if "memory_policy" not in each.gaps and not each.simulated and _cards(each)]


def release_cache(backend: Backend) -> None:
    """Release the memory that a framework keeps for reuse on each of its devices, if it has a call for that."""
    if "empty_cache" not in backend.gaps:
        _each(backend, _cards(backend), backend.empty_cache, named=False)


def _cards(backend: Backend) -> list[Device]:
    return [Device(kind, i) for kind in backend.kinds() for i in range(backend.count(kind))]


def set_visible_devices(indices: Iterable[int] | None) -> None:
    """Show only some GPUs, renumbered from 0, to every framework of this process.

    Args:
        indices: Which GPUs, in their new order, among those visible now; an empty list hides all. None
            undoes the earlier calls of this function.

    Raises:
        AlreadyStartedError: A framework has started its devices, or has made a tensor on a simulated GPU; the error
            says which. Nothing has changed.
        DeviceNotFoundError: An index is too large.
        ArgumentError: ``indices`` is not a list of distinct non-negative ints.

    Sets ``CUDA_VISIBLE_DEVICES`` (``HIP_VISIBLE_DEVICES`` with AMD's driver) for this process and its children; of
    simulated GPUs, only for those with native names.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.set_visible_devices([])  # no GPU
        >>> ds.set_visible_devices(None)  # as before
    """
    registry.imported_backends()  # loads them, so that the next line asks them
    tracing.refuse("set_visible_devices", "call it at the top of the program")
    if indices is None:
        visible_devices.restore()
        return
    try:
        wanted = [] if isinstance(indices, (str, bytes)) else [as_int(index) for index in indices]
    except TypeError as error:
        raise argument_hints.no_indices(indices) from error
    if isinstance(indices, (str, bytes)):
        raise argument_hints.no_indices(indices)
    if len(set(wanted)) != len(wanted) or any(index < 0 for index in wanted):
        valid = [index for index in dict.fromkeys(wanted) if index >= 0]
        hint = f"name each card once, from 0 on: ds.set_visible_devices({valid})"
        raise bad_argument("indices", wanted, "made of different ints of 0 or more", hint)
    visible_devices.show(wanted)
