"""The one path every copy takes, and every new tensor: check, copy, check again.

Requirements this module answers:

* A device that does not exist is refused before anything is touched, on every framework.
* A result is where it was asked to be, or the call raises: nothing lands elsewhere silently.
* A full device is the same error everywhere, naming the device and the bytes.
* What looks at copies (a ledger, a guard, a rollback) has one place to stand.
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
"""Asked before every copy and every allocation while faults are simulated (`devshim.simulation.memory.watch`)."""

LEDGER: Callable[[Backend, Device, Device, int | None, int], AbstractContextManager[None] | None] | None = None
"""Gives what is entered around a copy while anybody watches (`transfers.observers`); no bytes: a tensor is made."""


def require(backend: Backend, device: Device) -> Device:
    """Return the device if the backend has it; else raise `DeviceNotFoundError`."""
    if device is not CPU and device.index >= backend.count(device.kind):
        if backend.reads_code and backend.compiling():
            from devshim.registry import traced_errors

            traced_errors.not_found(backend.name, device.text)
        raise missing_devices.not_found(backend, device)
    faults = FAULTS  # here and below read once: another thread may leave its block at any time
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
    if target is CPU and backend.hosted and getattr(result, backend.hosted) is True:
        return result
    if backend.device_of(result) is not target:
        raise_misplaced(backend, target, result)
    return result


def _is_copied_now(backend: Backend, x: Tensor) -> bool:
    """Whether a copy is made by this call; inside a compiled function the framework makes it, each time that runs."""
    if backend.compiling():
        return False
    try:
        backend.sources(x)
    except TracingError:
        return False
    return True


def _recording(ledger: Any, backend: Backend, x: Tensor, target: Device) -> AbstractContextManager[object] | None:
    """What is entered around a tensor's copy while anybody watches: for each device that the bytes come from."""
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
    """Copy many tensors to a device at once, each checked on arrival; a ledger is told of each source by itself.

    Args:
        backend: Whose they are.
        xs: The tensors.
        target: Where to.
        non_blocking: As for `move`.
        under_way: Where given, names by number, when a copy has failed, those of which one was it.
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
        # Those that had been taken and had not arrived; the last, where that was not where it should be.
        failed = list(range(announced.taken))[len(arrived) :] or [max(announced.taken - 1, 0)]
        arrived.clear()  # the traceback would keep them, and their memory
        if under_way is not None:
            under_way[:] = failed
        if isinstance(error, Exception):
            raise_full(backend, error, target, sum(backend.nbytes(xs[i]) for i in failed))
        raise
    return arrived


class _Announced:
    """Tensors as a sequence that notes which have been taken; a fault comes when its tensor's turn has."""

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
    """Copy all, and check where each has arrived; one that is elsewhere is the one that failed."""
    arrived.extend(backend.copy_many(xs, target, non_blocking))  # keeps those that came before one that fails
    if target is CPU and are_hosted(backend, arrived):
        return
    device_of = backend.device_of
    for i, result in enumerate(arrived):
        if device_of(result) is not target:
            del arrived[i:]
            xs.taken = i + 1
            raise_misplaced(backend, target, result)


def are_hosted(backend: Backend, xs: Sequence[Tensor]) -> bool:
    """Return True if a fast look shows that all tensors are in host memory."""
    return bool(backend.hosted) and not any(map(is_not, map(attrgetter(backend.hosted), xs), repeat(True)))


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
    """Copy a tensor's values into NumPy memory (or, with ``copy=False``, look at them there)."""
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
    """Return the arguments of `make` that copy NumPy memory into a new tensor (``copy=False``: that share it)."""
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
    if ledger is not None:  # `from_host` gives bytes, and says last whether it is a copy
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
    """Raise `PlacementError` for a result that is not where it was asked to be."""
    from devshim.errors import messages

    raise messages.misplaced(backend, asked, backend.device_of(result))


def _asked(backend: Backend, args: tuple[object, ...]) -> int | None:
    """The bytes an adapter was asked to create by ``(..., shape, ..., dtype, device)``; None without a shape."""
    from math import prod

    shape = next((each for each in args if isinstance(each, tuple)), None)
    return None if shape is None else prod(shape) * backend.nbytes(backend.zeros((1,), args[-2], CPU))


def raise_if_full(backend: Backend, error: Exception, device: Device, x: Tensor) -> None:
    """Raise what a full device raises everywhere, if that is why a copy of a tensor failed."""
    raise_full(backend, error, device, backend.nbytes(x))


def raise_full(backend: Backend, error: Exception, device: Device, nbytes: int | None) -> None:
    """Do the same where the bytes are known; a simulated card's own error says it already."""
    from devshim.errors import messages
    from devshim.registry import unstarted

    if isinstance(error, DevshimError):
        return
    if backend.is_out_of_memory(error):
        raise messages.out_of_memory(backend, device, nbytes) from error
    unstarted.raise_unstarted(backend, error, device)
