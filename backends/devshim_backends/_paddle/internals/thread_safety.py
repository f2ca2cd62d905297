"""Keeping the threads of `ds.parallel` out of code of PaddlePaddle that works in only one thread at a time.

While a call of `ds.parallel` runs, each of its threads is inside a `ParallelThread`. The first one replaces four
functions of Paddle, and the last one restores them:

* ``paddle.grad``: threads take turns. Paddle (seen on 3.3.1) keeps its state in one object per process,
  ``egr::GeneralGrad``, which every call fills, walks and clears with the GIL released. Two threads in it at the same
  time crash the process. `paddle.autograd`'s ``jacobian`` and ``hessian`` use the same function; `Tensor.backward` does
  not.
* Compiling, by either compiler: refused. Paddle builds programs in one object per process. Two threads that compile
  at the same time crash the process, and operations that another thread computes eagerly meanwhile end up in the
  program.
* Running a function that was compiled as one program (``full_graph=True``): only the first thread that runs it may do
  so. It keeps its values in one scope, so two threads get each other's numbers, hang, or crash the process. Turns
  would not help, because a backward pass reads the scope later. Functions from the bytecode compiler
  (``full_graph=False``) were run in three threads, 200 times each, without a failure.
"""

from __future__ import annotations

import threading
from functools import wraps
from importlib import import_module
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from paddle.base import core
from paddle.jit.dy2static import partial_program, pir_partial_program
from paddle.jit.dy2static.program_translator import ProgramCache

from devshim.errors import UnsupportedError

_PROGRAM_CLASSES = {partial_program.PartialProgramLayer, pir_partial_program.PartialProgramLayer}

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["GRAD_LOCK", "ParallelThread"]

GRAD_LOCK = RLock()
"""Held by the thread whose turn it is; a hook or `PyLayer` may ask for a gradient during a turn."""

_STATE_LOCK = Lock()
_running = 0
"""The number of running threads of `ds.parallel`."""
_program_owners: WeakKeyDictionary[Any, threading.Thread] = WeakKeyDictionary()
"""Compiled program -> the only thread that may run it."""
_replaced: list[tuple[Any, str, Any]] = []
"""The functions that are replaced now: owner, name, and the replacement, which knows the original."""


def _serialize(original: Any) -> Any:
    @wraps(original)
    def run_partial_grad(*args: Any, **kwargs: Any) -> Any:
        with GRAD_LOCK:
            return original(*args, **kwargs)

    return run_partial_grad


def _refuse_in_threads(original: Any) -> Any:
    @wraps(original)
    def refuse(cache: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return original(cache, *args, **kwargs)
        msg = (
            "PaddlePaddle can compile in only one thread of a process, and this function was to be compiled in a "
            "thread of ds.parallel"
        )
        raise UnsupportedError(
            msg,
            "call the compiled function once before ds.parallel, with an input of the same dtype and shape",
        )

    return refuse


def _refuse_second_thread(original: Any) -> Any:
    @wraps(original)
    def run_program(program: Any, *args: Any, **kwargs: Any) -> Any:
        thread = threading.current_thread()
        with _STATE_LOCK:
            owner = _program_owners.setdefault(program, thread)
        if owner is thread:
            return original(program, *args, **kwargs)
        msg = (
            "two threads of ds.parallel called one function that PaddlePaddle compiled as one program "
            "(full_graph=True), and they would get each other's values"
        )
        raise UnsupportedError(
            msg,
            "compile one for each thread: steps = [paddle.jit.to_static(fn, full_graph=True) for _ in inputs], call "
            "each once, then ds.parallel(steps, inputs)",
        )

    return run_program


class ParallelThread:
    """A context for one thread of `ds.parallel`."""

    __slots__ = ()

    def __enter__(self) -> None:
        global _running
        with _STATE_LOCK:
            _running += 1
            if _running == 1:
                _replace(core.eager, "run_partial_grad", _serialize)
                _replace(ProgramCache, "_build_once", _refuse_in_threads)
                for cls in _PROGRAM_CLASSES:
                    _replace(cls, "__call__", _refuse_second_thread)
                # Imported here, and not with the adapter: that takes 50 ms, more than the rest of the first call.
                cache = import_module("paddle.jit.sot.opcode_translator.executor.executor_cache")
                _replace(cache.OpcodeExecutorCache, "translate", _refuse_in_threads)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        global _running
        with _STATE_LOCK:
            _running -= 1
            if not _running:
                _program_owners.clear()
            while not _running and _replaced:
                owner, name, replacement = _replaced.pop()
                if getattr(owner, name) is replacement:  # otherwise other code has replaced it since
                    setattr(owner, name, replacement.__wrapped__)


def _replace(owner: Any, name: str, wrap: Any) -> None:
    replacement = wrap(getattr(owner, name))
    setattr(owner, name, replacement)
    _replaced.append((owner, name, replacement))
