"""Importing PaddlePaddle together with the other frameworks, and without warnings.

Requirements that this module meets:

* Paddle and TensorFlow each contain their own protobuf. If TensorFlow 2.20 or 2.21 is imported first, ``import
  paddle`` (3.0, 3.2, 3.3) binds to TensorFlow's protobuf and crashes with a segmentation fault
  (PaddlePaddle/Paddle#78259 is of that family). Loaded with RTLD_DEEPBIND, Paddle prefers its own symbols: all of
  these pairs import, and train. The flag is used only in this case, because deep binding also hides a preloaded
  allocator or sanitizer from Paddle.
* In the opposite order, both work: TensorFlow 2.16 to 2.21 was tried after Paddle 3.0.
* ``paddle.jit.to_static`` rewrites what it traces: the source of every called function (``full_graph=True``), or its
  bytecode. It gets early returns (3.0 to 3.3) and keyword-only arguments (3.0) wrong. So it is instructed,
  before it traces anything, to call devshim's functions unchanged.
* The bytecode compiler (3.x) follows every call unless it is instructed to break the graph there, and fails with an
  error of its own on code that it does not support: classes whose hash depends on what their ``__init__`` sets,
  iterators of tensors, and ``pathlib``.
* Simulated GPUs are a plug-in, which Paddle looks for while it is imported: see ``simulation/internals/plugin.py``.
* The thread that imports Paddle owns the object whose end switches Paddle to static mode. If this is another thread
  than the main one, and ends, all threads are in static mode: operators return symbols, and some end the process. So
  the main thread owns the object.
* Paddle's import warns of a missing ``ccache``, which is an error if a program treats warnings as errors.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import warnings
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["clashes", "exclude_from_compilers", "import_context", "is_imported_by_adapter", "simulated_import_context"]

_by_adapter = False

_GRAPH_BREAKS = (
    *("Placement", "all_reduce_", "backends", "gather", "save", "set_visible_devices", "memory_policy", "simulate"),
    *("arange", "asarray", "empty", "eye", "framework", "from_numpy", "full", "linspace", "namespace"),
    *("ones", "zeros"),
    *(f"random.{name}" for name in ("bernoulli", "normal", "permutation", "randint", "seed", "uniform")),
    *(
        "device_count",
        "devices",
        "describe",
        "local_gpu",
        "require",
        "try_all_gpus",
        "try_gpu",
        "memory",
        "synchronize",
    ),
)
"""The functions that the bytecode compiler has to call unchanged (Paddle 3.3).

They read the environment or a library of the driver, or keep what they find for the next call: the compiler fails at
such code with an error of its own, although it would call the function unchanged for any other reason.
"""


@contextmanager
def import_context() -> Iterator[None]:
    """Run Paddle's own import inside this context; afterwards the flags for loading libraries are restored."""
    global _by_adapter
    _by_adapter = "devshim_backends._paddle.backend" in sys.modules
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No ccache found", UserWarning)
        before = sys.getdlopenflags()
        if _needs_deepbind():
            sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
        try:
            yield
        finally:
            sys.setdlopenflags(before)
    if threading.current_thread() is not threading.main_thread():
        _give_eager_mode_to_main_thread(sys.modules["paddle"].base.framework.global_var)
    exclude_from_compilers(sys.modules["paddle"])


def _give_eager_mode_to_main_thread(state: Any) -> None:
    """Let the main thread own what this thread owns in Paddle's state of threads, as if it had imported Paddle."""
    eager = state._functional_dygraph_context_manager
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(eager))  # freed at Python's end, it would print an error
    own = type(state).__init__

    def begin(self: Any) -> None:
        own(self)
        if threading.current_thread() is threading.main_thread():
            self._functional_dygraph_context_manager = eager

    type(state).__init__ = begin


@contextmanager
def simulated_import_context() -> Iterator[None]:
    """Run Paddle's own import inside this context as well if GPUs must be simulated."""
    from devshim_backends._paddle.simulation.internals import plugin

    with plugin.load_during_import(Path(sys.modules["paddle"].__path__[0])):
        yield


def is_imported_by_adapter() -> bool:
    """Return True if devshim's own adapter imported Paddle, and not the program before it."""
    return _by_adapter


def exclude_from_compilers(paddle: Any) -> None:
    """Make Paddle's ``to_static`` call the public functions of devshim unchanged instead of rewriting them."""
    paddle.jit.ignore_module([import_module("devshim")])  # for the compiler that rewrites source
    homes = (import_module("devshim").__file__, import_module("devshim_backends").__file__)
    paths = str(import_module("pathlib").__file__).removesuffix("__init__.py")  # a package as of Python 3.13
    nvml = find_spec("pynvml")  # NVIDIA's functions for the driver, which devshim calls
    others = (paths, *([str(nvml.origin)] if nvml is not None else []))
    paddle.base.core.eval_frame_skip_file_prefix((*(os.path.dirname(str(home)) for home in homes), *others))
    _break_graph(import_module("paddle.jit.dy2static.program_translator").SymbolicStaticFunction)


def _break_graph(compiled: Any) -> None:
    """Make the bytecode compiler break the graph at some functions, on its first use: its import takes 0.15 s."""
    own = compiled._perform_call
    if own.__module__ == __name__:
        return

    def perform(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled._perform_call = own
        _add_breaks()
        return own(self, *args, **kwargs)

    compiled._perform_call = perform
    if "paddle.jit.sot" in sys.modules:  # the first compilation has begun
        _add_breaks()


def _add_breaks() -> None:
    settings: Any = import_module("paddle.jit.sot.utils.paddle_api_config")
    if hasattr(settings, "add_break_graph_function"):  # 3.0 lacks it
        for name in _GRAPH_BREAKS:
            settings.add_break_graph_function(attrgetter(name)(import_module("devshim")))


def clashes() -> tuple[str, ...]:
    """Return the known conflicts with the frameworks that this process has imported, one sentence each."""
    if sys.platform != "linux" or sys.modules.get("tensorflow") is None or _needs_deepbind():
        return ()
    return ("importing PaddlePaddle after TensorFlow can end the process: this C library lacks RTLD_DEEPBIND",)


def _needs_deepbind() -> bool:
    """Return True if Paddle must be loaded with its own symbols first: with TensorFlow, if the C library is glibc."""
    return sys.modules.get("tensorflow") is not None and hasattr(os, "RTLD_DEEPBIND")
