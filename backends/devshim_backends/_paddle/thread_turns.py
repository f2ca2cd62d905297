"""Running parts of PaddlePaddle in one thread at a time while `ds.parallel` runs.

PaddlePaddle (seen on 3.3.1) keeps the state of `paddle.grad` in one object per process, ``egr::GeneralGrad``, which
every call fills, walks and clears with the GIL released.  Two threads in it at once end the process.
`paddle.autograd`'s ``jacobian`` and ``hessian`` use the same function; `Tensor.backward` does not, and needs no turns.

Paddle also builds programs in one object per process: two threads that compile a function at once end the process, and
operations that another thread computes eagerly meanwhile end up in the program.  A function that was compiled as a
whole keeps its values in one scope: two threads that run it at once get each other's numbers, hang, or crash the
process, with and without gradients.  Turns would not help, because a backward pass reads the scope later.  Functions
from the bytecode compiler (``full_graph=False``) were run in three threads, 200 times each, without a failure.

`ds.parallel` starts threads, so it makes them take turns in `paddle.grad`, refuses to compile, and reserves a whole
program for the first thread that runs it.  The functions are replaced while a call of `ds.parallel` runs, and restored
when the last one has ended.
"""

from __future__ import annotations

import threading
from functools import wraps
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from paddle.base import core
from paddle.jit.dy2static import partial_program
from paddle.jit.dy2static.program_translator import ProgramCache

from devshim.errors import UnsupportedError

try:
    from paddle.jit.sot.opcode_translator.executor.executor_cache import OpcodeExecutorCache
except ImportError:  # Paddle 2.6 has it elsewhere
    OpcodeExecutorCache = None

try:
    from paddle.jit.dy2static import pir_partial_program
except ImportError:  # Paddle 2.6 has only the older one
    pir_partial_program = partial_program

_PROGRAMS = {partial_program.PartialProgramLayer, pir_partial_program.PartialProgramLayer}

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["TakingTurns"]

_TURN = RLock()
"""Held by the thread whose turn it is; a hook or `PyLayer` may ask for a gradient during a turn."""

_COUNTING = Lock()
_inside = 0
"""The number of running threads of `ds.parallel`."""
_owners: WeakKeyDictionary[Any, threading.Thread] = WeakKeyDictionary()
"""The thread that each whole program belongs to."""
_replaced: list[tuple[Any, str, Any]] = []
"""The functions that are replaced now: owner, name, and the replacement, which knows the original."""


def _in_turn(theirs: Any) -> Any:
    @wraps(theirs)
    def run_partial_grad(*args: Any, **kwargs: Any) -> Any:
        with _TURN:
            return theirs(*args, **kwargs)

    return run_partial_grad


def _refusing(theirs: Any) -> Any:
    @wraps(theirs)
    def refuse(cache: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return theirs(cache, *args, **kwargs)
        raise UnsupportedError(
            "PaddlePaddle was asked to compile a function in a thread while ds.parallel runs, and can compile in one "
            "thread of a process only",
            "call the compiled function once before ds.parallel, with an input of the same dtype and shape",
        )

    return refuse


def _of_one_thread(theirs: Any) -> Any:
    @wraps(theirs)
    def run_whole_program(program: Any, *args: Any, **kwargs: Any) -> Any:
        here = threading.current_thread()
        with _COUNTING:
            owner = _owners.setdefault(program, here)
        if owner is here:
            return theirs(program, *args, **kwargs)
        raise UnsupportedError(
            "PaddlePaddle was asked to run one function that was compiled as a whole in two threads of ds.parallel, "
            "which would get each other's values",
            "compile one for each thread: steps = [paddle.jit.to_static(fn, full_graph=True) for _ in inputs], call "
            "each once, then ds.parallel(steps, inputs)",
        )

    return run_whole_program


class TakingTurns:
    """A context for one thread of `ds.parallel`."""

    __slots__ = ()

    def __enter__(self) -> None:
        global _inside
        with _COUNTING:
            _inside += 1
            if _inside == 1:
                _replace(core.eager, "run_partial_grad", _in_turn)
                _replace(ProgramCache, "_build_once", _refusing)
                for program in _PROGRAMS:
                    _replace(program, "__call__", _of_one_thread)
                if OpcodeExecutorCache is not None:
                    _replace(OpcodeExecutorCache, "translate", _refusing)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        global _inside
        with _COUNTING:
            _inside -= 1
            if not _inside:
                _owners.clear()
            while not _inside and _replaced:
                owner, name, ours = _replaced.pop()
                if getattr(owner, name) is ours:  # otherwise other code has replaced it since
                    setattr(owner, name, ours.__wrapped__)


def _replace(owner: Any, name: str, wrap: Any) -> None:
    ours = wrap(getattr(owner, name))
    setattr(owner, name, ours)
    _replaced.append((owner, name, ours))
