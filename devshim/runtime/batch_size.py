"""Batch sizes that fit: `is_out_of_memory` recognizes the error of a full device, `shrink_batch` reacts to it.

Requirements of this module:

* The error of a full device comes in many classes, and is often wrapped: by a thread pool, another process, a group of
  tasks or the program itself. Each error that led to it is looked at.
* An error that was being handled before `shrink_batch` was called led to nothing in it, and does not count.
* A failed call's tensors are gone before the next try: no frame of the failed call is alive then.
"""

from __future__ import annotations

import gc
import sys
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from devshim.errors import ArgumentError, BackendError, OutOfMemoryError
from devshim.errors.formatting import type_name, with_article
from devshim.errors.messages import bad_argument
from devshim.errors.out_of_memory import reports_full_device
from devshim.registry import argument_hints, discovery, registry, tracing
from devshim.runtime import memory
from devshim.tensors import arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devshim.contract.backend import Backend

    R = TypeVar("R")

__all__ = ["is_out_of_memory", "shrink_batch"]


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an error says that a device, or the host, has too little free memory.

    Args:
        error: An exception of any framework, library or program. The errors that it wraps count too: its cause, the
            error during whose handling it was raised (unless ``from None`` hides that one), and the members of an
            exception group.

    Raises:
        ArgumentError: ``error`` is not an exception.

    It recognizes `devshim.OutOfMemoryError`, `MemoryError`, each framework's own classes, and the texts of CUDA, HIP,
    cuBLAS, cuSOLVER, cuSPARSE, cuDNN, cuFFT, XLA and the frameworks in errors of other classes.

    >>> import devshim as ds
    >>> ds.is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    True
    >>> ds.is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    False
    """
    tracing.refuse("is_out_of_memory", "catch the error outside: inside a compiled function nothing runs out of memory")
    if not isinstance(error, BaseException):
        raise bad_argument("error", error, "an exception", "except Exception as error: ds.is_out_of_memory(error)")
    return _is_full(error, ())


def _is_full(error: BaseException, unrelated: tuple[BaseException, ...]) -> bool:
    """Return True if an error, or one that led to it, says that a device is full; ``unrelated`` ones do not count."""
    led = list(_iter_causes(error, unrelated))
    if any(reports_full_device(each) or _is_out_of_memory(registry.loaded_backends(), each) for each in led):
        return True
    # devshim may not have loaded the backend of an imported framework yet, if nothing of devshim was used before.
    return any(_is_out_of_memory([backend], each) for backend in _load_imported() for each in led)


def _is_out_of_memory(backends: list[Backend], error: BaseException) -> bool:
    return any(backend.is_out_of_memory(error) for backend in backends)


def _iter_causes(error: BaseException, unrelated: tuple[BaseException, ...] = ()) -> Iterator[BaseException]:
    """Yield an error and those that led to it, each once."""
    seen = {id(each) for each in unrelated}
    stack = [error]
    while stack:
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        hidden = each.__cause__ is not None or each.__suppress_context__
        members = getattr(each, "exceptions", ())  # of an ExceptionGroup, or of a backport's
        inner = [each.__cause__, None if hidden else each.__context__]
        inner += list(members) if isinstance(members, (tuple, list)) else []
        stack += [other for other in inner if isinstance(other, BaseException)]


def _load_imported() -> Iterator[Backend]:
    """Load the backends of the imported frameworks and yield each; skip one that does not load."""
    before = {backend.name for backend in registry.loaded_backends()}
    for name in discovery.imported_names():
        if name not in before:
            with suppress(BackendError):
                yield registry.load(name)


class _Sizes:
    """The sizes that one function was called with, for ``grow``.

    Attributes:
        start: The first size; another one makes the function start over.
        fitted: The last size that fitted.
        pause: The number of calls to wait before a larger size is tried.
        waited: The number of calls since a larger size did not fit.
    """

    def __init__(self, start: int) -> None:
        self.start = start
        self.fitted = 0
        self.pause = 0
        self.waited = 0

    def next(self, limit: int | None) -> int:
        """Return the size to try first."""
        if not self.fitted:
            return self.start
        known = self.fitted if limit is None else min(self.fitted, limit)
        if self.waited < self.pause:
            self.waited += 1
            return known
        return 2 * known if limit is None else min(2 * known, limit)

    def note(self, tried: int, fitted: int) -> None:
        """Store the outcome of a call: after a size that did not fit, wait for twice as many calls as the last time."""
        if fitted == tried:
            self.pause = self.pause if fitted <= self.fitted else 0
        elif self.fitted:
            self.pause, self.waited = min(2 * self.pause or 1, _LONGEST_PAUSE), 0
        self.fitted = fitted


_LONGEST_PAUSE = 64
_REMEMBERED: dict[tuple[int, int], tuple[weakref.ref[object], _Sizes]] = {}
"""The ids of a function and, for a method, of its object -> the sizes, until that object is deleted."""


def _sizes_of(fn: Callable[[int], object], start: int) -> _Sizes:
    """Return the sizes of a function; new ones if it is called for the first time, or with another start."""
    owner = getattr(fn, "__self__", None)
    function = getattr(fn, "__func__", None)
    anchor, key = (fn, (id(fn), 0)) if owner is None or function is None else (owner, (id(function), id(owner)))
    found = _REMEMBERED.get(key)
    if found is None or found[1].start != start:
        try:
            alive = weakref.ref(anchor, lambda _: _REMEMBERED.pop(key, None))
        except TypeError:
            kind = with_article(type_name(anchor))
            msg = f"grow=True remembers the size of a function, and {kind} allows no weak reference"
            raise ArgumentError(msg, "pass a function: ds.shrink_batch(lambda size: fn(size), start)") from None
        found = _REMEMBERED[key] = (alive, _Sizes(start))
    return found[1]


def shrink_batch(fn: Callable[[int], R], start: int, grow: bool = False, limit: int | None = None) -> tuple[R, int]:
    """Call ``fn(batch_size)``, and halve the size each time a device is full, until it fits.

    Args:
        fn: The function, called with a batch size, one or more times; it may raise any exception.
        start: The first size to try, at least 1.
        grow: Remember the size that fitted for the next call with the same function and the same ``start``, and try
            twice that size again. If it does not fit, the size that fitted is next, and the following 1, 2, 4, ... 64
            calls do not try a larger one. Make ``fn`` once, outside of the loop: each ``lambda`` is another function.
        limit: The largest size to try with ``grow``; None: no limit.

    Returns:
        The return value of ``fn``, and the size that fitted.

    Raises:
        OutOfMemoryError: Not even a size of 1 fits.
        ArgumentError: ``start`` or ``limit`` is not a size, ``start`` is above ``limit``, or a ``limit`` is given
            without ``grow``.

    Every error that `is_out_of_memory` recognizes counts. Cached memory is released before the next try.

    >>> import devshim as ds
    >>> free = 100
    >>> def step(size):
    ...     if size > free:
    ...         raise MemoryError
    ...     return f"trained on {size}"
    >>> ds.shrink_batch(step, 256)
    ('trained on 64', 64)
    >>> free = 1000
    >>> [ds.shrink_batch(step, 64, grow=True, limit=200)[1] for _ in range(4)]
    [64, 128, 200, 200]
    """
    tracing.refuse("shrink_batch", "let it call the compiled function: inside one nothing runs out of memory")
    first = _check(fn, start, grow, limit)
    if grow is False:
        return _shrink(fn, first, 0)
    sizes = _sizes_of(fn, first)
    tried = sizes.next(limit)
    result, size = _shrink(fn, tried, sizes.fitted)
    sizes.note(tried, size)
    return result, size


def _check(fn: Callable[[int], object], start: object, grow: object, limit: object) -> int:
    """Return the first size; refuse arguments that make no sense."""
    if not callable(fn):
        raise argument_hints.no_callable("shrink_batch", fn, (start,))
    size = arguments.integer("start", start)
    if size < 1:
        raise bad_argument("start", start, "at least 1", "ds.shrink_batch(fn, 64) begins with 64")
    if type(grow) is not bool:
        raise bad_argument("grow", grow, "True or False", "ds.shrink_batch(fn, 64, grow=True)")
    if limit is None:
        return size
    if not grow:
        msg = "limit is the largest size that grow=True tries, and grow is False"
        raise ArgumentError(msg, f"ds.shrink_batch(fn, {size}, grow=True, limit=...), or leave limit out")
    if arguments.integer("limit", limit) < size:
        raise bad_argument(
            "limit", limit, f"at least start, which is {size}", f"leave limit out, or pass {size} or more"
        )
    return size


def _shrink(fn: Callable[[int], R], size: int, fitted: int) -> tuple[R, int]:
    """Call a function with a size, and with smaller ones until one fits; ``fitted`` is a size that fitted before."""
    unrelated = _list_handled()
    while True:
        try:
            return fn(size), size
        except Exception as error:
            if not _is_full(error, unrelated):
                raise
            if size == 1:
                msg = "not even a batch of 1 fits on the device"
                raise OutOfMemoryError(msg, "use a smaller model or input, or another device") from error
        size = fitted if 0 < fitted < size else size // 2
        # Outside the handler, the failed call's frames are gone, and the tensors in them, unless a cycle has them: the
        # error that JAX shows has its own frame (0.7).
        gc.collect()
        for backend in registry.loaded_backends():
            memory.release_cache(backend)


def _list_handled() -> tuple[BaseException, ...]:
    """Return the errors that the caller is handling, which Python adds to each error that is raised meanwhile."""
    error = sys.exc_info()[1]
    return () if error is None else tuple(_iter_causes(error))
