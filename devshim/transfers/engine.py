"""The copy engine: every copy and every new tensor is made here, between a check before and a check after.

Requirements this module answers:

* A device that does not exist is refused before anything is touched, on every framework.
* A result is on the requested device, or the call raises: nothing goes elsewhere silently.
* A full device is the same error everywhere, which names the device and the bytes.
* Observers of copies (a ledger, a guard, a rollback) have one place where they attach.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import repeat
from operator import attrgetter, is_not

from devshim.devices.device import CPU, Device
from devshim.errors import DevshimError, TracingError, messages
from devshim.registry import missing_devices
from devshim.transfers import observing

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, TypeVar

    import numpy as np

    from devshim.contract.backend import Backend, Tensor
    from devshim.transfers.observing import Active

    T = TypeVar("T")


def require(backend: Backend, device: Device) -> Device:
    """Return the device if the backend has it, or raise `DeviceNotFoundError`."""
    _require(observing.ACTIVE, backend, device)
    return device


def _require(active: Active | None, backend: Backend, device: Device) -> None:
    if device is not CPU and device.index >= backend.count(device.kind):
        if backend.traces_bytecode and backend.compiling():
            from devshim.registry import traced_errors

            traced_errors.not_found(backend.name, device.text)
        raise missing_devices.not_found(backend, device)
    if active is not None and active.fault is not None:
        active.fault(backend, None, device, "a call that names it")


def move(backend: Backend, x: T, target: Device, non_blocking: bool = False) -> T:
    """Copy one tensor to a device within its framework: new memory, checked on arrival."""
    return move_observed(observing.ACTIVE, backend, x, target, non_blocking)


def move_observed(active: Active | None, backend: Backend, x: T, target: Device, non_blocking: bool) -> T:
    """Copy one tensor as `move` does, for a caller that has read `observing.ACTIVE` already."""
    if target is not CPU or active is not None:  # a copy to the host that nothing observes needs no check
        _require(active, backend, target)
    if active is not None and _is_copied_now(backend, x):
        with _recording(active, backend, x, target):
            _fault(active, backend, x, target)
            return move_observed(None, backend, x, target, non_blocking)
    try:
        result: T = backend.copy_to(x, target, non_blocking)
    except Exception as error:
        raise_if_full(backend, error, target, x)
        raise
    if target is CPU and backend.fast_paths.host_flag and getattr(result, backend.fast_paths.host_flag) is True:
        return result
    if backend.device_of(result) is not target:
        raise_misplaced(backend, target, result)
    return result


def _is_copied_now(backend: Backend, x: Tensor) -> bool:
    """Return True if this call makes a copy; in a compiled function, the framework makes it each time that runs."""
    if backend.compiling():
        return False
    try:
        backend.sources(x)
    except TracingError:
        return False
    return True


def _recording(active: Active, backend: Backend, x: Tensor, target: Device) -> AbstractContextManager[object]:
    """Return the observers' context for the copy of a tensor: one context for each device that the bytes come from."""
    record, entered = active.record, ExitStack()
    sources = () if record is None else backend.sources(x)
    for each in [record and record(backend, source, target, nbytes, 1) for source, nbytes in sources]:
        if each is not None:
            entered.enter_context(each)
    return entered


def _fault(active: Active, backend: Backend, x: Tensor, target: Device) -> None:
    """Trigger a simulated fault of the copy of a tensor."""
    if active.fault is not None:
        active.fault(backend, backend.device_of(x), target, f"a copy of {backend.nbytes(x):,} bytes")


def move_many(
    backend: Backend,
    xs: Sequence[Tensor],
    target: Device,
    non_blocking: bool = False,
    under_way: list[int] | None = None,
) -> Sequence[Tensor]:
    """Copy many tensors to a device at once, each checked on arrival; a ledger records each source separately.

    Args:
        backend: The backend of the tensors.
        xs: The tensors.
        target: The device to copy to.
        non_blocking: As for `move`.
        under_way: If given, receives the indices of the tensors one of which failed, if a copy fails.
    """
    active = observing.ACTIVE
    _require(active, backend, target)
    recording, record = None, None if active is None else active.record
    if record is not None and xs and all(_is_copied_now(backend, x) for x in xs):
        sources = {backend.device_of(x): None for x in xs}
        if len(sources) > 1:
            return _by_source(backend, xs, list(sources), target, non_blocking, under_way)
        recording = record(backend, next(iter(sources)), target, sum(backend.nbytes(x) for x in xs), len(xs))
    with recording or nullcontext():
        return _move_many(active, backend, xs, target, non_blocking, under_way)


def _move_many(
    active: Active | None,
    backend: Backend,
    xs: Sequence[Tensor],
    target: Device,
    non_blocking: bool,
    under_way: list[int] | None,
) -> Sequence[Tensor]:
    """Copy many tensors as `move_many` does, without recording them."""
    announced = _Announced(active, backend, xs, target)
    arrived: list[Tensor] = []
    try:
        _receive(backend, announced, target, non_blocking, arrived)
    except BaseException as error:
        # Those that were taken and had not arrived; if all arrived, the last one, which was on the wrong device.
        failed = list(range(announced.taken))[len(arrived) :] or [max(announced.taken - 1, 0)]
        arrived.clear()  # the traceback would keep them and their memory alive
        if under_way is not None:
            under_way[:] = failed
        if isinstance(error, Exception):
            raise_full(backend, error, target, sum(backend.nbytes(xs[i]) for i in failed))
        raise
    return arrived


class _Announced:
    """A sequence of tensors that counts how many were taken; a simulated fault is raised when its tensor is taken."""

    def __init__(self, active: Active | None, backend: Backend, xs: Sequence[Tensor], target: Device) -> None:
        self._active, self._backend, self._xs, self._target = active, backend, xs, target
        self.taken = 0

    def __len__(self) -> int:
        return len(self._xs)

    def __getitem__(self, index: Any) -> Any:
        return self._xs[index]

    def __iter__(self) -> Iterator[Tensor]:
        for i, x in enumerate(self._xs):
            if i == self.taken:  # the first time
                self.taken += 1
                if self._active is not None and _is_copied_now(self._backend, x):
                    _fault(self._active, self._backend, x, self._target)
            yield x


def _receive(backend: Backend, xs: Any, target: Device, non_blocking: bool, arrived: list[Tensor]) -> None:
    """Copy all, and check where each has arrived; one on another device counts as the one that failed."""
    arrived.extend(backend.copy_many(xs, target, non_blocking))  # keeps those that arrived before one that fails
    if target is CPU and are_hosted(backend, arrived):
        return
    for i, result in enumerate(arrived):
        if backend.device_of(result) is not target:
            del arrived[i:]
            xs.taken = i + 1
            raise_misplaced(backend, target, result)


def are_hosted(backend: Backend, xs: Sequence[Tensor]) -> bool:
    """Return True if a fast check shows that all tensors are in host memory."""
    return bool(backend.fast_paths.host_flag) and not any(
        map(is_not, map(attrgetter(backend.fast_paths.host_flag), xs), repeat(True))
    )


def _by_source(
    backend: Backend,
    xs: Sequence[Tensor],
    sources: list[Device],
    target: Device,
    non_blocking: bool,
    under_way: list[int] | None,
) -> Sequence[Tensor]:
    moved: list[Tensor] = list(xs)
    for source in sources:
        at = [i for i, x in enumerate(xs) if backend.device_of(x) is source]
        failed: list[int] = []
        try:
            results = move_many(backend, [xs[i] for i in at], target, non_blocking, failed)
        except BaseException:
            moved.clear()
            if under_way is not None:
                under_way[:] = [at[i] for i in failed]
            raise
        for i, result in zip(at, results, strict=True):
            moved[i] = result
    return moved


def to_host(backend: Backend, x: Tensor, copy: bool) -> np.ndarray[Any, Any]:
    """Copy a tensor's values into NumPy memory, or with ``copy=False`` make an array over the tensor's memory."""
    if backend.compiling():
        from devshim.registry import tracing

        tracing.refuse("to_numpy", "return the tensor from the compiled function, and read it outside")
    if not copy and backend.device_of(x) is not CPU:
        raise messages.copy_needed(backend.device_of(x), CPU)
    active = observing.ACTIVE
    if active is None:
        return backend.to_numpy(x, copy)
    _fault(active, backend, x, CPU)
    with _recording(active, backend, x, CPU) if copy else nullcontext():
        return backend.to_numpy(x, copy)


def from_host(backend: Backend, array: np.ndarray, target: Device, copy: bool) -> tuple[Any, ...]:
    """Return the arguments with which `make` copies NumPy memory into a tensor, or shares it (``copy=False``)."""
    active = observing.ACTIVE
    _require(active, backend, target)
    if not copy:
        from devshim.transfers import alignment

        alignment.require(backend, array, target)
    if active is not None and active.fault is not None:
        active.fault(backend, CPU, target, f"a copy of {array.nbytes:,} bytes")
    return (backend, target, array.nbytes, backend.from_numpy, array, target, copy)


def make(backend: Backend, target: Device, nbytes: int | None, how: Callable[..., Tensor], *args: object) -> Tensor:
    """Create a tensor on an existing device by calling ``how(*args)``, and check where it is."""
    active = observing.ACTIVE
    if active is not None and active.record is not None:  # `from_host` passes bytes; its last argument is `copy`
        recording = active.record(backend, CPU, target, nbytes if args[-1] is True else None, 1)
        if recording is not None:
            with recording:
                return make(backend, target, nbytes, how, *args)
    try:
        result = how(*args)
    except Exception as error:
        if isinstance(error, DevshimError):
            raise
        raise_full(backend, error, target, _asked(backend, args) if nbytes is None else nbytes)
        raise
    if backend.device_of(result) is not target:
        raise_misplaced(backend, target, result)
    return result


def raise_misplaced(backend: Backend, asked: Device, result: Tensor) -> None:
    """Raise `PlacementError` for a result that is not on the requested device."""
    raise messages.misplaced(backend, asked, backend.device_of(result))


def _asked(backend: Backend, args: tuple[object, ...]) -> int | None:
    """Return the bytes that ``(..., shape, ..., dtype, device)`` asks an adapter to create; None without a shape."""
    from math import prod

    shape = next((each for each in args if isinstance(each, tuple)), None)
    return None if shape is None else prod(shape) * backend.nbytes(backend.zeros((1,), args[-2], CPU))


def raise_if_full(backend: Backend, error: Exception, device: Device, x: Tensor) -> None:
    """Raise devshim's error for a full device, if that is why the copy of a tensor failed."""
    raise_full(backend, error, device, backend.nbytes(x))


def raise_full(backend: Backend, error: Exception, device: Device, nbytes: int | None) -> None:
    """Raise devshim's error for a full device or one that cannot start; an error of devshim already says it."""
    from devshim.registry import unstarted

    if isinstance(error, DevshimError):
        return
    if backend.is_out_of_memory(error):
        raise messages.out_of_memory(backend, device, nbytes) from error
    unstarted.raise_unstarted(backend, error, device)
