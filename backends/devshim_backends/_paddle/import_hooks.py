"""Import PaddlePaddle beside the other frameworks, and without noise.

Requirements this module answers:

* Each of Paddle and TensorFlow carries its own protobuf.  TensorFlow 2.20 and 2.21 imported first, ``import paddle``
  (2.6, 3.0, 3.2, 3.3) binds to theirs and ends the process with a segmentation fault (PaddlePaddle/Paddle#78259 is
  of that family).  Loaded with RTLD_DEEPBIND, Paddle prefers its own symbols: all of these pairs import, and train.
  Only then: deep binding also hides a preloaded allocator or sanitizer from Paddle.
* The other order is TensorFlow's to mend, in its own ``importing.py``.
* ``paddle.jit.to_static`` rewrites what it traces: the source of every function called (``full_graph=True``), or its
  bytecode.  It gets early returns (2.6 to 3.3) and keyword-only arguments (2.6, 3.0) wrong, so it is told, before
  it traces anything, to call devshim as it is.
* The compiler of bytecode (3.x) follows what it is not told to break off at, and fails with an error of its own where
  it loses its way: in classes that hash by what their ``__init__`` sets, in iterators of tensors, in ``pathlib``.
* Simulated GPUs are a plug-in, which Paddle looks for while it is imported: see ``plugin.py``.
* Paddle's import warns of a missing ``ccache``, which is an error where a program treats warnings as errors.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["around", "by_adapter", "clashes", "keep_compilers_out", "simulating"]

_by_adapter = False

_LOST_IN = ("Placement", "all_reduce_", "backends", "gather", "save")
"""What the compiler of bytecode is to call as it is (Paddle 3.3)."""


@contextmanager
def around() -> Iterator[None]:
    """Run Paddle's own import inside this; the flags for loading libraries are as before afterwards."""
    global _by_adapter
    _by_adapter = "devshim_backends._paddle.backend" in sys.modules
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No ccache found", UserWarning)
        before = sys.getdlopenflags()
        if _binds_deeply():
            sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
        try:
            yield
        finally:
            sys.setdlopenflags(before)
    keep_compilers_out(sys.modules["paddle"])


@contextmanager
def simulating() -> Iterator[None]:
    """Run Paddle's own import inside this, too, where GPUs are to be simulated."""
    from devshim_backends._paddle.simulation import plugin  # compiles, which is for those alone who simulate

    with plugin.announced(Path(sys.modules["paddle"].__path__[0])):
        yield


def by_adapter() -> bool:
    """Return whether it was devshim's own adapter that imported Paddle, and no program that had it before."""
    return _by_adapter


def keep_compilers_out(paddle: Any) -> None:
    """Have Paddle's ``to_static`` call what a user calls of devshim's, and not rewrite it."""
    # Paddle 2.6 asks the package for its members when it first traces, 3.x takes all that is in the package's folder.
    paddle.jit.ignore_module([import_module("devshim")])
    skip = getattr(paddle.base.core, "eval_frame_skip_file_prefix", None)
    if skip is not None:
        homes = (import_module("devshim").__file__, import_module("devshim_backends").__file__)
        paths = str(import_module("pathlib").__file__).removesuffix("__init__.py")  # a package as of Python 3.13
        skip((*(os.path.dirname(str(home)) for home in homes), paths))
        _break_off(import_module("paddle.jit.dy2static.program_translator").SymbolicStaticFunction)


def _break_off(compiled: Any) -> None:
    """Have the compiler of bytecode break off at some functions, when it is first used: its import takes 0.15 s."""
    own = compiled._perform_call
    if own.__module__ == __name__:
        return

    def perform(self: Any, *args: Any, **kwargs: Any) -> Any:
        compiled._perform_call = own
        settings: Any = import_module("paddle.jit.sot.utils.paddle_api_config")
        if hasattr(settings, "add_break_graph_function"):  # as of 3.0
            for name in _LOST_IN:
                settings.add_break_graph_function(getattr(import_module("devshim"), name))
        return own(self, *args, **kwargs)

    compiled._perform_call = perform


def clashes() -> tuple[str, ...]:
    """Return what is known to go wrong beside the frameworks this process has imported, a sentence each."""
    if sys.platform != "linux" or sys.modules.get("tensorflow") is None or _binds_deeply():
        return ()
    return ("importing PaddlePaddle after TensorFlow can end the process: this system's C library cannot bind deeply",)


def _binds_deeply() -> bool:
    """Whether Paddle is to be loaded with its own symbols first: beside TensorFlow, where the C library is glibc."""
    return sys.modules.get("tensorflow") is not None and hasattr(os, "RTLD_DEEPBIND")
