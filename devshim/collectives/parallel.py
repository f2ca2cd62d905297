"""`parallel`: call one function per device, all at the same time.

Requirements of this module:

* Each function runs on the device of its input, as with `devshim.run`, in its own thread, with a copy of the
  caller's context (current framework, default device, observers) and the framework's thread-local modes of the caller.
* Gradients of TensorFlow and traces of JAX do not see other threads: while one is recorded, the functions run one
  after the other, in the caller's thread, so that gradients flow through them.
* No thread is left running: in every case, including Ctrl-C, all are waited for.
* The error says which function failed, and where; it stays the same error object.
"""

from __future__ import annotations

import contextvars
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from devshim.errors import ArgumentError, DevshimError, messages
from devshim.errors.formatting import type_name
from devshim.registry import argument_hints, default_devices, registry, tracing
from devshim.runtime import running, scopes
from devshim.transfers import observing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from devshim.devices.device import Device

T = TypeVar("T")
R = TypeVar("R")

__all__ = ["parallel"]


def parallel(fns: Iterable[Callable[[T], R]], inputs: Iterable[T]) -> list[R]:
    """Call each function with its input on the input's device, all at the same time, each in its own thread.

    Args:
        fns: Callables of one argument: functions, or models such as `replicate` returns. They may use the same tensors
            if they only read them.
        inputs: One for each callable, a tensor or a tree of tensors on one device, such as `split` returns; it is
            passed unchanged. A function whose input has no tensors runs on the device of `on`.

    Returns:
        The return value of each, in the order of ``fns``.

    Raises:
        ArgumentError: ``fns`` or ``inputs`` is one function, tensor or dict instead of a list, their lengths
            differ, or one of ``fns`` is not callable; none was called.
        DeviceMismatchError: The tensors of one input are on different devices; none was called.
        BaseException: The error of a callable; of several, the first in the order of ``fns``, with a note on the
            others. It names the callable's number and its device. All callables have ended by then.

    Python code in the threads takes turns; the frameworks compute at the same time.

    While TensorFlow records gradients in the caller's thread (in a function of `value_and_grad`, under a
    ``tf.GradientTape``), or JAX traces there (``jax.grad``, ``jax.vmap``), the callables run in that thread, one after
    the other, because gradients would not flow from other threads. They must not wait for each other then.

    Examples:
        >>> import devshim as ds
        >>> ds.use("numpy")
        >>> ds.parallel([lambda x: x + 1, lambda x: x * 3], ds.split(ds.ones(4), ["cpu", "cpu"]))
        [array([2., 2.]), array([3., 3.])]
    """
    tracing.refuse("parallel", "compile each of the functions, and call ds.parallel with them outside")
    wrong = argument_hints.no_pairs(fns, inputs)
    if wrong is not None:
        raise wrong
    calls = _make_calls(list(fns), list(inputs))
    shown = observing.explainer()
    in_threads = all(backend.autograd_crosses_threads() for backend in registry.imported_backends())
    if shown is not None:
        started = "threading.Thread(target=f, args=(x,))" if in_threads else "f(x)"
        shown.line(f"{'threads' if in_threads else 'results'} = [{started} for f, x in zip(fns, inputs)]")
    try:
        (_run_in_threads if in_threads else _run_in_turn)(calls)
    finally:
        for line in (line for call in calls for line in call.lines):
            if shown is not None:
                shown.line(line)
    failed = [call for call in calls if call.error is not None]
    if failed:
        error = failed[0].named_error(failed[1:])
        calls.clear()
        failed.clear()
        try:
            raise error
        finally:
            del error  # otherwise the error refers to this frame, and the frame to the error
    return [call.result for call in calls]


def _run_in_threads(calls: list[_Call]) -> None:
    """Run all calls at the same time, and wait for them."""
    threads = [threading.Thread(target=call.work, name=f"devshim-parallel-{i}") for i, call in enumerate(calls)]
    started = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    finally:
        _join(started)


def _run_in_turn(calls: list[_Call]) -> None:
    """Run the calls one after the other in this thread, where autograd records them; Ctrl-C ends this."""
    for call in calls:
        call.work()
        if isinstance(call.error, KeyboardInterrupt):
            raise call.error


class _Call:
    """One callable, its input, its device, and its result."""

    def __init__(self, number: int, fn: Callable[[Any], Any], given: Any, modes: list[Any]) -> None:
        self.number, self._fn, self._given, self._modes = number, fn, given, modes
        where = scopes.locate_arguments("parallel", (), {f"inputs[{number}]": given})
        self._located = where is not None
        self._device = default_devices.innermost() if where is None else where[1]
        self._context = contextvars.copy_context()
        # `explain` shows the lines in the order of the callables, not in the order in which the threads happen to run
        shown = observing.explainer()
        self.lines = [] if shown is None else self._context.run(shown.keep)
        self.result: Any = None
        self.error: BaseException | None = None

    def attribute_to(self, caller: FrameType) -> None:
        """Attribute copies made by framework code in this thread to the line that called `devshim.parallel`."""
        from devshim.transfers import observers

        self._context.run(observers.CALLER.set, caller)

    def work(self) -> None:
        """Call the function and store its result or error."""
        try:
            self.result = self._context.run(self._run)
        except BaseException as error:
            self.error = error
        finally:
            del self._fn, self._given, self._context

    def _run(self) -> Any:
        with ExitStack() as entered:
            for mode in self._modes:
                entered.enter_context(mode())
            if self._located:
                return running.run(self._fn, self._given)
            if self._device is not None:
                entered.enter_context(scopes.on(self._device))
            return self._fn(self._given)

    def named_error(self, others: list[_Call]) -> BaseException:
        """Return the error, with a text that says where it happened, and notes on other failures."""
        error = self.error
        assert error is not None
        _add(error, f"in {self}")
        for other in others:
            _note(error, f"also failed: {other}, with {type_name(other.error)}: {other.error}")
        return error

    def __str__(self) -> str:
        return f"callable {self.number} of ds.parallel{_on(self._device)}"


def _on(device: Device | None) -> str:
    return "" if device is None else f", on {device}"


def _make_calls(fns: list[Any], inputs: list[Any]) -> list[_Call]:
    if len(fns) != len(inputs):
        msg = (
            f"ds.parallel was given {len(fns)} callable{'' if len(fns) == 1 else 's'} and {len(inputs)} "
            f"input{'' if len(inputs) == 1 else 's'}"
        )
        raise ArgumentError(msg, "to call one function with each input: ds.parallel([fn] * len(inputs), inputs)")
    for i, fn in enumerate(fns):
        if not callable(fn):
            swapped = all(map(callable, inputs)) and not any(map(callable, fns))
            hint = "the arguments are swapped: ds.parallel(fns, inputs)" if swapped else "ds.parallel([fn], [x])"
            name = f"fns[{i}]"
            raise messages.bad_argument(name, fn, "a function of one argument", hint)
    modes = [backend.capture_thread_state() for backend in registry.imported_backends()]
    calls = [_Call(i, fn, given, modes) for i, (fn, given) in enumerate(zip(fns, inputs, strict=True))]
    active = observing.ACTIVE
    if active is not None and active.record is not None:
        from devshim.transfers import observers

        caller = observers.user_frame()
        for call in calls:
            call.attribute_to(caller)
    return calls


def _join(threads: list[threading.Thread]) -> None:
    """Wait for all threads; the first Ctrl-C is raised after that, a second one immediately."""
    waiting: BaseException | None = None
    for thread in threads:
        try:
            thread.join()
        except KeyboardInterrupt as error:
            waiting = error
            thread.join()
    if waiting is not None:
        raise waiting


def _add(error: BaseException, place: str) -> None:
    """Add to an error's text, or to its notes if its class makes the text itself."""
    if place in str(error):  # one object that is raised repeatedly
        return
    if isinstance(error, DevshimError):
        error.add_place(place)
        return
    args = error.args
    if not args:
        error.args = (place,)
    elif len(args) == 1 and isinstance(args[0], str):
        error.args = (f"{args[0]} ({place})",)
    elif isinstance(error, OSError) and isinstance(error.strerror, str):
        error.strerror = f"{error.strerror} ({place})"
    if place not in str(error):
        error.args = args
        _note(error, place)


def _note(error: BaseException, place: str) -> None:
    """Add a note as `BaseException.add_note` does; Python 3.10 lacks it, and stores but does not show the note."""
    error.__notes__ = [*getattr(error, "__notes__", []), place]
