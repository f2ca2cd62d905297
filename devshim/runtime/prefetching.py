"""`prefetch`: load and copy the next batches in a thread, while the program works on the current one.

Requirements of this module:

* At most ``depth`` batches are on the way or waiting. The thread waits for a free slot before it asks the loader for
  another batch, so that it never has more.
* The program sees what a plain loop would show: the batches in order, then the loader's end or its error, once, with
  the loader's own traceback.
* When the loop ends, the thread ends and the batches are released, for every reason: the end, an error, ``break``,
  Ctrl-C, ``close``, garbage collection. The thread knows only the shared `_Queue`, so an iterator that nothing refers
  to is freed.
* The loader runs as it would in the consumer's thread: the same framework, default device, observers and modes. What it
  does when ``iter`` is called, such as drawing a seed, it does in the consumer's thread.
* Nothing is loaded from a list or tuple. Where its batches are also small and stay on the host, copying one takes less
  time than waking a thread, so no thread is started: see `devshim.runtime.in_memory`.
"""

from __future__ import annotations

import contextvars
import os
import threading
import time
import weakref
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from devshim.devices import parsing
from devshim.devices.device import CPU
from devshim.errors import ArgumentError, DeviceNotFoundError, UnsupportedError
from devshim.errors.formatting import describe
from devshim.errors.messages import bad_argument
from devshim.registry import argument_hints, current, default_devices, registry, tracing
from devshim.runtime import ahead, in_memory, scopes
from devshim.tensors import arguments
from devshim.transfers import engine, observers, observing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device
    from devshim.devices.parsing import DeviceLike

T = TypeVar("T")

__all__ = ["prefetch"]

PATIENCE = 5.0
"""Seconds to wait for the thread when a loop ends early; a loader that takes longer for a batch ends after that."""


class prefetch(Generic[T]):
    """An iterable over a loader's batches on a device, with the next batches loaded and copied in the background.

    Args:
        iterable: A loader: a ``DataLoader`` of PyTorch, Paddle or Gluon, a ``tf.data.Dataset``, a generator, a list.
            Its batches are trees of tensors and NumPy arrays, as for `place`; everything else in them is unchanged.
        device: The device of the batches.
        depth: How many batches may be loaded, copied or waiting at a time, at least 1. The device needs memory for that
            many batches in addition to the one in use.

    Raises:
        DeviceNotFoundError: No imported framework has the device.
        ArgumentError: ``iterable`` cannot be iterated or is a tensor, or ``depth`` is not a number of 1 or more.
        UnsupportedError: In the loop, if the process was forked after the loop had begun.

    Each ``iter`` starts a new thread, and can be repeated if the loader can; from a list or tuple of small batches for
    the host, there is nothing to load ahead, and each batch is copied when the loop asks for it. ``len`` is the
    loader's. Each tensor is placed by its own framework, as by `place`; NumPy arrays become tensors of the current
    framework, except for arrays of text and objects. A batch is complete when it is handed over, and can be used
    immediately, in any thread. Where the framework has streams (PyTorch on CUDA), the copies run in parallel with the
    computation, from pinned memory.

    The loader runs in the thread, with the framework, default device, ledgers and guards that are in effect when the
    iteration begins. Its copies are recorded there, at the line of the loop. An error in the loader is raised in the
    loop after the batches before it. A loop that ends early waits until the loader has returned the batch at which it
    is, for up to 5 seconds. ``close`` of the iterator does the same.

    >>> import devshim as ds
    >>> ds.use("numpy")
    >>> ds.simulate(gpus=1)
    <1 simulated GPU>
    >>> loader = [{"x": ds.ones((2, 3)), "name": f"batch {i}"} for i in range(2)]
    >>> for batch in ds.prefetch(loader, "gpu"):
    ...     print(batch["name"], ds.device_of(batch["x"]))
    batch 0 gpu:0
    batch 1 gpu:0
    """

    def __init__(self, iterable: Iterable[T], device: DeviceLike, depth: int = 2) -> None:
        tracing.refuse("prefetch", "iterate over it outside, and call the compiled function with each batch")
        self._device = _find_existing(parsing.device_of_call("prefetch", iterable, device))
        self._depth = arguments.integer("depth", depth)
        if self._depth < 1:
            raise bad_argument("depth", depth, "at least 1", "ds.prefetch(loader, device, depth=2)")
        self._iterable = _check_loader(iterable)

    def __iter__(self) -> _Batches[T] | in_memory.Batches[T]:
        tracing.refuse("prefetch", "iterate over it outside, and call the compiled function with each batch")
        if self._device is CPU and in_memory.are_small(self._iterable):
            return in_memory.Batches(self._iterable, _caller())
        source = iter(self._iterable)
        return _Batches(source, self._device, self._depth, is_own=source is not self._iterable)

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # Python's own error says that it has no length

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<prefetch of {describe(self._iterable)} to {self._device}, depth {self._depth}>"


def _find_existing(device: Device) -> Device:
    """Return a device that the current framework, or another one that is imported, has."""
    backend = current.current()
    try:
        return engine.require(backend, device)
    except DeviceNotFoundError:
        if any(device.index < other.count(device.kind) for other in registry.loaded_backends() if other is not backend):
            return device
        raise


def _check_loader(iterable: Iterable[T]) -> Iterable[T]:
    """Return a loader; refuse any other object."""
    if argument_hints.is_tensor(iterable) or isinstance(iterable, (dict, str, bytes)):
        problem = f"ds.prefetch takes a loader, which yields batches, and was given {describe(iterable)}"
        raise ArgumentError(problem, "to move one batch: ds.place(batch, device); a list of batches is also a loader")
    if not (hasattr(type(iterable), "__iter__") or hasattr(type(iterable), "__getitem__")):
        problem = f"ds.prefetch takes a loader, and {describe(iterable)} cannot be iterated"
        raise ArgumentError(problem, "pass a loader, a generator or a list of batches")
    return iterable


class _Batches(Generic[T]):
    """One iteration: the consumer's side of a queue."""

    def __init__(self, source: Iterator[T], device: Device, depth: int, *, is_own: bool) -> None:
        backend = current.current()
        observing.show_call(backend, "place", device)
        queue = _Queue(depth)
        context = contextvars.copy_context()
        context.run(observers.CALLER.set, _caller())
        thread_states = [each.capture_thread_state() for each in registry.imported_backends()]
        worker = _Worker(queue, source, device, backend, thread_states, is_own=is_own)
        thread = threading.Thread(target=context.run, args=(worker,), name="devshim-prefetch", daemon=True)
        self._queue = queue
        self._end = weakref.finalize(self, _end, queue, thread)
        thread.start()

    def __iter__(self) -> _Batches[T]:
        return self

    def __next__(self) -> T:
        kind, value = self._queue.take()
        if kind == "batch":
            batch, arrived = value
            for use, xs in arrived:
                use(xs)
            return batch  # type: ignore[no-any-return]  # what the loader yields
        self._end()
        if kind == "error":
            try:
                raise value
            finally:
                del value  # otherwise the error refers to this frame, and the frame to the error
        raise StopIteration

    def close(self) -> None:
        """End the iteration: stop the thread and release its batches."""
        self._end()


def _caller() -> Any:
    """Return the user's line as a frame that refers to no variables: they may refer to the iterator."""
    frame = observers.user_frame()
    return SimpleNamespace(f_code=frame.f_code, f_lineno=frame.f_lineno, f_globals=frame.f_globals, f_back=None)


class _Queue:
    """The batches between the thread and the consumer, and the ``depth`` slots for them.

    Both are queues that CPython implements in C, so that a signal's handler or a finalizer can end the iteration while
    the same thread is inside any of these methods. With a lock of Python, it would wait for that thread forever.
    """

    def __init__(self, depth: int) -> None:
        self._slots: SimpleQueue[None] = SimpleQueue()
        self._waiting: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.stopped = False
        self._process = os.getpid()
        for _ in range(depth):
            self._slots.put(None)

    def reserve(self) -> bool:
        """Wait for a free slot; return False if the iteration has ended."""
        self._slots.get()
        return not self.stopped

    def put(self, kind: str, value: Any) -> None:
        """Hand a batch, or the end, to the consumer."""
        self._waiting.put((kind, value))
        if self.stopped:  # the consumer may have released the others before this one came
            self._release()

    def take(self) -> tuple[str, Any]:
        """Wait for the next batch or the end; if the iteration had ended before the call, return its end.

        Another thread may see the end while this one has taken the last batch, which is still handed over.
        """
        ended = self.stopped
        if not ended and os.getpid() != self._process:
            msg = "this iterator of ds.prefetch was made before os.fork, and its thread runs only in the other process"
            raise UnsupportedError(msg, "call ds.prefetch after os.fork, in the process that uses the batches")
        found = self._waiting.get()
        if ended or found[0] == "end":
            self._waiting.put(_ENDED)  # for the next call, and for another thread that waits
            return _ENDED
        self._slots.put(None)
        return found

    def stop(self) -> None:
        """End the iteration, and release the batches that wait."""
        self.stopped = True
        self._slots.put(None)
        self._release()

    def _release(self) -> None:
        with suppress(Empty):
            while True:
                self._waiting.get_nowait()
        self._waiting.put(_ENDED)


_ENDED = ("end", None)


def _end(queue: _Queue, thread: threading.Thread) -> None:
    """Stop the thread, and wait for it."""
    queue.stop()
    if thread is threading.current_thread() or thread.ident is None:
        return
    end = time.monotonic() + PATIENCE
    while thread.is_alive() and time.monotonic() < end:
        thread.join(0.1)


class _Worker:
    """The thread's side: takes batches from the loader, and copies them to the device."""

    def __init__(
        self,
        queue: _Queue,
        source: Iterator[Any],
        device: Device,
        backend: Backend,
        thread_states: list[Callable[[], Any]],
        *,
        is_own: bool,
    ) -> None:
        self._queue, self._source, self._device, self._is_own = queue, source, device, is_own
        self._backend, self._thread_states = backend, thread_states

    def __call__(self) -> None:
        queue, source = self._queue, self._source
        try:
            with ExitStack() as entered:
                for restore in self._thread_states:
                    entered.enter_context(restore())
                default = default_devices.innermost()
                if default is not None:
                    entered.enter_context(scopes.on(default))
                self._serve(queue, source)
        except BaseException as error:
            queue.put("error", error)
        finally:
            queue.put("end", None)
            if self._is_own:  # the program may go on with an iterator that it made itself
                for backend in registry.loaded_backends():
                    backend.close_loader(source)
            del self._source, source

    def _serve(self, queue: _Queue, source: Iterator[Any]) -> None:
        while queue.reserve():
            try:
                batch = next(source)
            except StopIteration:
                return
            if queue.stopped:
                return
            queue.put("batch", ahead.send(batch, self._backend, self._device))
            del batch
