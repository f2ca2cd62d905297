"""PaddlePaddle's default device, made one per thread.

Requirements this module answers:

* Paddle's default device is one for the whole process: ``paddle.device.set_device`` in a thread moves the creation
  functions of every other (2.6 to 3.3).  A scope is for the thread or task that enters it, and the process-wide
  device is never written, so there is nothing to restore and nobody else sees it.
* Inside a scope ``paddle.zeros``, ``paddle.to_tensor`` and new layers land on the scope's device, and
  ``paddle.get_device()`` names it; ``paddle.set_device`` and ``paddle.device.device_guard`` act on the scope alone.
* Outside scopes Paddle behaves as if devshim were not there.

How: Paddle's Python layer asks one function for the default place and tells another one.  At the first scope both
are given code that asks a context variable first; the functions themselves stay the same objects, because modules
hold them by name.

A place that came out of a scope is recognised when it comes back through the setter, in whatever thread: Paddle's
``DataLoader`` carries the caller's place into its worker threads and sets it there.

On real cards the C++ layer computes on the *process-wide* card, not where the arguments are
(PaddlePaddle/Paddle#51706), so while a scope is open that card is the scope's, for all threads; two threads on
two CUDA cards at once are beyond Paddle.  Plug-ins' devices follow the data.  A copy from a card to the host works
from that process-wide card alone (``phi::Copy`` in tensor_utils.cc): `beside` opens a scope of the tensor's.
"""

from __future__ import annotations

from contextlib import nullcontext
from contextvars import ContextVar
from threading import Lock
from types import FunctionType
from typing import TYPE_CHECKING, Any

import paddle
from paddle import _C_ops

from devshim.contract.backend import Backend
from devshim.devices.device import CPU, Device
from devshim.errors import messages
from devshim_backends._paddle import current_card
from devshim_backends._paddle.devices import is_custom, make_place

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

framework = paddle.base.framework

_HERE: ContextVar[Any] = ContextVar("devshim_paddle_place", default=None)
"""The place of the innermost scope of this thread or task, or None."""

_LOCK = Lock()
_OURS: dict[Device, Any] = {}
"""The places that scopes hand out: told from the user's own by identity."""

_CARDS: list[tuple[object, Any]] = []
"""The open scopes on real cards, of all threads, innermost last, with their places."""

_attached = False


class PaddleScopes(Backend):
    """The room of scopes."""

    def scope(self, device: Device) -> AbstractContextManager[object]:
        if self.compiling() and any(self.count(kind) for kind in self.kinds()):
            raise messages.tracing(self, "on", "open it around the compiled call, or compile with full_graph=False")
        return open_scope(device)

    def compiling(self) -> bool:
        return not paddle.in_dynamic_mode()

    def tracing(self) -> bool:
        return self.compiling() and bool(framework.global_var._in_to_static_mode_)


def open_scope(device: Device) -> AbstractContextManager[object]:
    """Return a context in which a device is Paddle's default one for this thread or task."""
    return _Scope(device)


def beside(place: Any) -> AbstractContextManager[object]:
    """Return a scope of the CUDA card that a tensor's place is, for operators and copies; for others, nothing."""
    if not place.is_gpu_place():
        return nullcontext()
    return _OnCard(Device("gpu", place.gpu_device_id()))


class _Scope:
    """A ``with`` block in which a device is Paddle's default one, for this thread or task; entered once."""

    def __init__(self, device: Device) -> None:
        self._place, self._index = _place_of(device), device.index
        self._is_card = device is not CPU and not is_custom(device)
        self._before: Any = None
        self._context: int | None = None

    def __enter__(self) -> object:
        self._before = _HERE.get()
        _HERE.set(self._place)
        if self._is_card:
            self._context = current_card.context()
            _compute_on(self, self._place)
        return self

    def __exit__(self, *failure: object) -> None:
        _HERE.set(self._before)
        if self._is_card:
            _compute_on(self, None)
            current_card.put_back(self._context)


class _OnCard(_Scope):
    """A scope of a CUDA card, which CUDA has for its current one, too."""

    def __enter__(self) -> object:
        entered = super().__enter__()
        if framework.core.get_cuda_current_device_id() != self._index:
            _C_ops.empty([0], paddle.float32, self._place)  # Paddle 2.6 copies from CUDA's card, which operators set
        return entered


def _place_of(device: Device) -> Any:
    found = _OURS.get(device)
    if found is None:
        with _LOCK:
            _attach()
            found = _OURS.setdefault(device, make_place(device))
    return found


def _compute_on(scope: object, place: Any) -> None:
    """Open (or, with None, close) a scope on a real card for Paddle's C++ layer."""
    tracer = framework.global_var._dygraph_tracer_
    with _LOCK:
        if place is not None:
            _CARDS.append((scope, place))
        else:
            _CARDS[:] = [entry for entry in _CARDS if entry[0] is not scope]
        if tracer is not None:
            tracer._expected_place = _CARDS[-1][1] if _CARDS else process_wide()


def is_chosen() -> bool:
    """Return whether a scope or ``paddle.set_device`` has chosen another default device than the host."""
    return _HERE.get() is not None or not isinstance(process_wide(), framework.core.CPUPlace)


def process_wide() -> Any:
    """Return the place that Paddle itself has for the whole process, whatever scopes are open."""
    look_up: Any = framework._current_expected_place_
    return look_up.__defaults__[1]() if _attached else look_up()


def set_process_wide(place: Any) -> None:
    """Give Paddle another place for the whole process, whatever scopes are open."""
    tell: Any = framework._set_expected_place
    (tell.__defaults__[2] if _attached else tell)(place)


def _attach() -> None:
    """Put the context variable before Paddle's process-wide place, once."""
    global _attached
    if not _attached:
        _divert(framework._current_expected_place_, _look_up, (_HERE,))
        _divert(framework._set_expected_place, _set, (_HERE, _OURS))
        _attached = True


def _divert(function: Any, code: Any, given: tuple[object, ...]) -> None:
    """Give one of Paddle's functions new code; what that needs, and the original, become argument defaults."""
    original = FunctionType(function.__code__, function.__globals__, function.__name__)
    # The defaults come first: the old code takes no notice of them, the new one cannot do without.
    function.__defaults__ = (*given, original)
    function.__code__ = code.__code__


def _look_up(here: Any = None, original: Any = None) -> Any:
    """What Paddle's ``_current_expected_place_`` does from then on. Its globals are Paddle's: it may use none."""
    place = here.get()
    return original() if place is None else place


def _set(place: Any, here: Any = None, ours: Any = None, original: Any = None) -> None:
    """What Paddle's ``_set_expected_place`` does from then on."""
    if here.get() is None and not any(place is own for own in ours.values()):
        original(place)
    else:
        here.set(place)
