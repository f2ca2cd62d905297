"""Scopes that give each thread its own default device in PaddlePaddle.

Requirements that this module meets:

* Paddle has one default device for the whole process: ``paddle.device.set_device`` in one thread changes where the
  creation functions of all others put their results (3.0 to 3.3). A scope is for the thread or task that enters it.
  The process-wide device is never written, so nothing has to be restored and no other thread is affected.
* Inside a scope ``paddle.zeros``, ``paddle.to_tensor`` and new layers use the scope's device, and
  ``paddle.get_device()`` returns it; ``paddle.set_device`` and ``paddle.device.device_guard`` affect only the scope.
* Outside scopes Paddle behaves as it does without devshim.

How it works: Paddle's Python layer reads the default place with one function and sets it with another. At the first
scope both functions get code that consults a context variable first. The function objects stay the same, because
modules have imported them by name.

A place that came from a scope is recognized when it is passed back to the setter, in any thread: Paddle's
``DataLoader`` takes the caller's place to its worker threads and sets it there.

On real cards the C++ layer computes on the *process-wide* card, not where the arguments are
(PaddlePaddle/Paddle#51706). So while a scope is open, that card is the scope's for all threads; Paddle does not
support two threads on two CUDA cards at the same time. Plug-in devices follow the data. A copy from a card to the
host works only from that process-wide card (``phi::Copy`` in tensor_utils.cc): `cuda_scope` opens a scope of the
tensor's card.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from threading import Lock
from types import FunctionType
from typing import TYPE_CHECKING, Any

import paddle
from paddle import _C_ops

from devshim.contract.backend import Backend
from devshim.devices.device import CPU, Device
from devshim_backends._paddle import devices
from devshim_backends._paddle.devices import is_custom, make_place
from devshim_backends._paddle.internals import cuda_context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

framework = paddle.base.framework

_SCOPE_PLACE: ContextVar[Any] = ContextVar("devshim_paddle_place", default=None)
"""The place of the innermost scope of this thread or task, or None."""

_LOCK = Lock()
_SCOPE_PLACES: dict[Device, Any] = {}
"""The places that scopes use; they are distinguished from the user's own by identity."""

_OPEN_GPU_SCOPES: list[tuple[object, Any]] = []
"""The open scopes on real cards, of all threads, innermost last, with their places."""

_installed = False
_NO_SCOPE: AbstractContextManager[object] = nullcontext()


class PaddleScopes(Backend):
    """The mixin for scopes."""

    def scope(self, device: Device) -> AbstractContextManager[object]:
        if device is CPU and devices.only_host and paddle.in_dynamic_mode():
            return _NO_SCOPE  # Paddle has no other device; a program may run elsewhere
        if self.compiling():
            hint = "open it around the compiled call, or compile with full_graph=False"
            devices.device_when_tracing(self, "on", hint)
        return open_scope(device)

    def compiling(self) -> bool:
        return not paddle.in_dynamic_mode()

    def tracing(self) -> bool:
        return self.compiling() and bool(framework.global_var._in_to_static_mode_)


def open_scope(device: Device) -> AbstractContextManager[object]:
    """Return a context in which a device is Paddle's default for this thread or task."""
    return _HostScope() if device is CPU else _Scope(device)


def cuda_scope(place: Any) -> AbstractContextManager[object]:
    """Return a scope of the CUDA card of a tensor's place, for operators and copies, or a null context."""
    if not place.is_gpu_place():
        return nullcontext()
    return _CudaScope(Device("gpu", place.gpu_device_id()))


class _HostScope:
    """A context in which the host is Paddle's default device, for this thread or task; it can be entered once."""

    __slots__ = ("_outer_place",)

    def __enter__(self) -> object:
        self._outer_place = _SCOPE_PLACE.get()
        _SCOPE_PLACE.set(_SCOPE_PLACES.get(CPU) or _get_scope_place(CPU))
        return self

    def __exit__(self, *failure: object) -> None:
        _SCOPE_PLACE.set(self._outer_place)


class _Scope:
    """A context in which a device is Paddle's default, for this thread or task; it can be entered once."""

    def __init__(self, device: Device) -> None:
        self._place, self._index = _get_scope_place(device), device.index
        self._is_real_gpu = device is not CPU and not is_custom(device)
        self._outer_place: Any = None
        self._context: int | None = None

    def __enter__(self) -> object:
        self._outer_place = _SCOPE_PLACE.get()
        _SCOPE_PLACE.set(self._place)
        if self._is_real_gpu:
            self._context = cuda_context.get_context()
            _set_computing_place(self, self._place)
        return self

    def __exit__(self, *failure: object) -> None:
        _SCOPE_PLACE.set(self._outer_place)
        if self._is_real_gpu:
            _set_computing_place(self, None)
            cuda_context.restore(self._context)


class _CudaScope(_Scope):
    """A scope of a CUDA card that is also CUDA's current card inside it."""

    def __enter__(self) -> object:
        entered = super().__enter__()
        if framework.core.get_cuda_current_device_id() != self._index:
            _C_ops.empty([0], paddle.float32, self._place)  # 2.6 copies from CUDA's current card, which operators set
        return entered


def _get_scope_place(device: Device) -> Any:
    """Return the place that all scopes of a device use."""
    found = _SCOPE_PLACES.get(device)
    if found is None:
        with _LOCK:
            _install()
            found = _SCOPE_PLACES.setdefault(device, make_place(device))
    return found


def _set_computing_place(scope: object, place: Any) -> None:
    """Open (or, with None, close) a scope on a real card for Paddle's C++ layer."""
    tracer = framework.global_var._dygraph_tracer_
    with _LOCK:
        if place is not None:
            _OPEN_GPU_SCOPES.append((scope, place))
        else:
            _OPEN_GPU_SCOPES[:] = [entry for entry in _OPEN_GPU_SCOPES if entry[0] is not scope]
        if tracer is not None:
            tracer._expected_place = _OPEN_GPU_SCOPES[-1][1] if _OPEN_GPU_SCOPES else process_wide_place()


@contextmanager
def host_program_scope(*, always: bool = False) -> Iterator[None]:
    """Let Paddle's C++ layer run a whole program on the host, if a scope of the host is open, or `always`."""
    tracer = framework.global_var._dygraph_tracer_
    scope_place = framework.core.CPUPlace() if always else _SCOPE_PLACE.get()
    if tracer is None or not isinstance(scope_place, framework.core.CPUPlace):
        yield
        return
    before = tracer._expected_place
    try:
        tracer._expected_place = scope_place
        yield
    finally:
        tracer._expected_place = before


def is_default_chosen() -> bool:
    """Return True if a scope or ``paddle.set_device`` has chosen a default device other than the host."""
    return _SCOPE_PLACE.get() is not None or not isinstance(process_wide_place(), framework.core.CPUPlace)


def process_wide_place() -> Any:
    """Return Paddle's own place for the whole process, regardless of open scopes."""
    get_place: Any = framework._current_expected_place_
    return get_place.__defaults__[1]() if _installed else get_place()


def set_process_wide_place(place: Any) -> None:
    """Set Paddle's own place for the whole process, regardless of open scopes."""
    set_place: Any = framework._set_expected_place
    (set_place.__defaults__[2] if _installed else set_place)(place)


def _install() -> None:
    """Make Paddle consult the context variable before its process-wide place; only the first call has an effect."""
    global _installed
    if not _installed:
        _replace_code(framework._current_expected_place_, _get_place, (_SCOPE_PLACE,))
        _replace_code(framework._set_expected_place, _set_place, (_SCOPE_PLACE, _SCOPE_PLACES))
        _installed = True


def _replace_code(function: Any, code: Any, injected: tuple[object, ...]) -> None:
    """Give a Paddle function new code; the objects that it needs, and the original, become argument defaults."""
    original = FunctionType(function.__code__, function.__globals__, function.__name__)
    # The defaults are set first: the old code ignores them, but the new code needs them.
    function.__defaults__ = (*injected, original)
    function.__code__ = code.__code__


def _get_place(scope_place: Any = None, original: Any = None) -> Any:
    """Return the place: new code for ``_current_expected_place_``, whose globals are Paddle's, so it must use none."""
    place = scope_place.get()
    return original() if place is None else place


def _set_place(place: Any, scope_place: Any = None, scope_places: Any = None, original: Any = None) -> None:
    """Set the place: new code for ``_set_expected_place``."""
    if scope_place.get() is None and not any(place is own for own in scope_places.values()):
        original(place)
    else:
        scope_place.set(place)
