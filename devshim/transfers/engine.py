"""The copy engine: every copy and every new tensor is made here, between a check before and a check after.

Requirements this module answers:

* A device that does not exist is refused before anything is touched, on every framework.
* A result is on the requested device, or the call raises: nothing goes elsewhere silently.
* A full device is the same error everywhere, which names the device and the bytes.
* Observers of copies (a ledger, a guard, a rollback) have one place where they attach.
"""

from __future__ import annotations

from itertools import repeat
from operator import attrgetter, is_not

from devshim.devices.device import CPU, Device
from devshim.errors import DevshimError, TracingError
from devshim.registry import missing_devices

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, TypeVar

    import numpy as np

    from devshim.contract.backend import Backend, Tensor

    T = TypeVar("T")

FAULTS: Callable[[Backend, Device | None, Device, str], None] | None = None
"""Called before every copy and every allocation while faults are simulated (`devshim.simulation.memory.watch`)."""

LEDGER: Callable[[Backend, Device, Device, int | None, int], AbstractContextManager[None] | None] | None = None
"""Returns a context for each copy while an observer is active (`transfers.observers`); no bytes: for a new tensor."""


def require(backend: Backend, device: Device) -> Device:
    """Return the device if the backend has it, or raise `DeviceNotFoundError`."""
    if device is not CPU and device.index >= backend.count(device.kind):
        if backend.traces_bytecode and backend.compiling():
            from devshim.registry import traced_errors

            traced_errors.not_found(backend.name, device.text)
        raise missing_devices.not_found(backend, device)
    faults = FAULTS  # here and below, read once: another thread may leave its block at any time
    if faults is not None:
        faults(backend, None, device, "a call that names it")
    return device


def move(backend: Backend, x: T, target: Device, non_blocking: bool = False) -> T:
    """Copy one tensor to a device within its framework: new memory, checked on arrival."""
    ledger, faults = LEDGER, FAULTS
    if target is not CPU or faults is not None:
        require(backend, target)
    if ledger is not None and _is_copied_now(backend, x):
        recording = _recording(ledger, backend, x, target)
        if recording is not None:
            with recording:
                return move(backend, x, target, non_blocking)
    if faults is not None and _is_copied_now(backend, x):
        faults(backend, backend.device_of(x), target, f"a copy of {backend.nbytes(x):,} bytes")
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


def _recording(ledger: Any, backend: Backend, x: Tensor, target: Device) -> AbstractContextManager[object] | None:
    """Return the observers' context for the copy of a tensor: one context for each device that the bytes come from."""
    found = [ledger(backend, source, target, nbytes, 1) for source, nbytes in backend.sources(x)]
    if len(found) == 1 or None in found:
        return found[0]  # type: ignore[no-any-return]
    from contextlib import ExitStack

    entered = ExitStack()
    for each in found:
        entered.enter_context(each)
    return entered


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
    require(backend, target)
    ledger = LEDGER
    if ledger is not None and xs and all(_is_copied_now(backend, x) for x in xs):
        sources = {backend.device_of(x): None for x in xs}
        if len(sources) > 1:
            return _by_source(backend, xs, list(sources), target, non_blocking, under_way)
        recording = ledger(backend, next(iter(sources)), target, sum(backend.nbytes(x) for x in xs), len(xs))
        if recording is not None:
            with recording:
                return move_many(backend, xs, target, non_blocking, under_way)
    announced = _Announced(backend, xs, target)
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

    def __init__(self, backend: Backend, xs: Sequence[Tensor], target: Device) -> None:
        self._backend, self._xs, self._target = backend, xs, target
        self.taken = 0

    def __len__(self) -> int:
        return len(self._xs)

    def __getitem__(self, index: Any) -> Any:
        return self._xs[index]

    def __iter__(self) -> Iterator[Tensor]:
        for i, x in enumerate(self._xs):
            if i == self.taken:  # the first time
                self.taken += 1
                faults = FAULTS
                if faults is not None and _is_copied_now(self._backend, x):
                    about = f"a copy of {self._backend.nbytes(x):,} bytes"
                    faults(self._backend, self._backend.device_of(x), self._target, about)
            yield x


def _receive(backend: Backend, xs: Any, target: Device, non_blocking: bool, arrived: list[Tensor]) -> None:
    """Copy all, and check where each has arrived; one on another device counts as the one that failed."""
    arrived.extend(backend.copy_many(xs, target, non_blocking))  # keeps those that arrived before one that fails
    if target is CPU and are_hosted(backend, arrived):
        return
    device_of = backend.device_of
    for i, result in enumerate(arrived):
        if device_of(result) is not target:
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
        from devshim.errors import messages

        raise messages.copy_needed(backend.device_of(x), CPU)
    ledger, faults = LEDGER, FAULTS
    if faults is not None:
        faults(backend, backend.device_of(x), CPU, f"a copy of {backend.nbytes(x):,} bytes")
    if ledger is not None and copy:
        recording = _recording(ledger, backend, x, CPU)
        if recording is not None:
            with recording:
                return backend.to_numpy(x, copy)
    return backend.to_numpy(x, copy)


def from_host(backend: Backend, array: np.ndarray, target: Device, copy: bool) -> tuple[Any, ...]:
    """Return the arguments with which `make` copies NumPy memory into a tensor, or shares it (``copy=False``)."""
    require(backend, target)
    if not copy:
        from devshim.transfers import alignment

        alignment.require(backend, array, target)
    faults = FAULTS
    if faults is not None:
        faults(backend, CPU, target, f"a copy of {array.nbytes:,} bytes")
    return (backend, target, array.nbytes, backend.from_numpy, array, target, copy)


def make(backend: Backend, target: Device, nbytes: int | None, how: Callable[..., Tensor], *args: object) -> Tensor:
    """Create a tensor on an existing device by calling ``how(*args)``, and check where it is."""
    ledger = LEDGER
    if ledger is not None:  # `from_host` passes bytes; its last argument is `copy`
        recording = ledger(backend, CPU, target, nbytes if args[-1] is True else None, 1)
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
    from devshim.errors import messages

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
    from devshim.errors import messages
    from devshim.registry import unstarted

    if isinstance(error, DevshimError):
        return
    if backend.is_out_of_memory(error):
        raise messages.out_of_memory(backend, device, nbytes) from error
    unstarted.raise_unstarted(backend, error, device)
