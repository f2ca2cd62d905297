"""Errors of devshim inside ``torch.compile``: they leave a compiled function as they would leave any other.

Requirements of this module:

* Dynamo cannot trace the construction of devshim's errors. So it calls `raise_traced` while it traces, as a function
  of constants (text, numbers, tuples and functions), and the error is raised in a form that dynamo passes on.
* With ``fullgraph=True`` the caller gets the error. Without it, the graph breaks there, and the call runs eagerly.
"""

from __future__ import annotations

import sys
from functools import cache
from os.path import dirname
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from devshim.contract.backend import Backend
from devshim.devices import parsing
from devshim.devices.device import Device
from devshim.errors import messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from devshim.errors import DevshimError

_DEVSHIM_FOLDER = dirname(dirname(messages.__file__))
_ADAPTER: list[Backend] = []
THREAD: Any = torch._guards._TLS
_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack


def compiles_here() -> bool:
    """Return True if this thread's code is being compiled.

    PyTorch's `is_compiling` is also true in all other threads meanwhile (2.10 to 2.13), because it reads a flag of the
    process. While a compiler runs Python, its thread has a context or a mode. Code that dynamo reads gets True from
    `is_dynamo_compiling`.
    """
    return torch.compiler.is_dynamo_compiling() or (torch.compiler._is_compiling_flag and is_traced_here())


def is_traced_here() -> bool:
    """Return True if a compiler runs in this thread, as far as a context or a mode shows."""
    # What `TracingContext.try_get()` returns (2.13). A missing attribute of a thread-local object takes seven times as
    # long as a missing key of its dictionary, and `MetricLog.append` asks each time.
    return THREAD.__dict__.get("tracing_context") is not None or _modes() > 0


def note_adapter(adapter: Backend) -> None:
    """Store the one adapter, which dynamo cannot treat as a constant."""
    _ADAPTER[:] = [adapter]


def as_constant(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of an error as constants: a device as a list of its text, the adapter as an empty list."""
    found: list[Any] = []
    for arg in args:
        if isinstance(arg, tuple):
            found.append(as_constant(arg))
        elif isinstance(arg, Device):
            found.append([arg.text])
        else:
            found.append([] if isinstance(arg, Backend) else arg)
    return tuple(found)


def _from_constant(arg: Any) -> Any:
    if isinstance(arg, tuple):
        return tuple([_from_constant(each) for each in arg])
    if isinstance(arg, list):
        return parsing.device(arg[0]) if arg else _ADAPTER[0]
    return arg


def raise_traced(make: Callable[..., DevshimError], args: tuple[Any, ...]) -> NoReturn:
    """Raise the error that a function makes of the results of `as_constant`, as `Backend.raise_error` does."""
    error = make(*_from_constant(args))
    if torch._guards.TracingContext.try_get() is None:
        raise error
    _skip_traced_frames()
    raise _trace_error_class(type(error))(error.problem, error.hint)  # type: ignore[arg-type]


raise_traced._dynamo_marked_constant = True  # type: ignore[attr-defined]  # traced: see `devices.accelerator_count`


@cache
def _trace_error_class(kind: type[DevshimError]) -> type[DevshimError]:
    """Return a subclass of an error's class that dynamo also recognizes as its own error for code it cannot trace.

    Any other error that is raised while dynamo traces becomes an ``InternalTorchDynamoError``, or is lost, because
    dynamo cannot trace the construction of an exception whose class has an ``__init__`` (2.10 to 2.13). With
    ``fullgraph=True``, dynamo passes its own error on unchanged; without it, the error causes a graph break.
    """
    from torch._dynamo.exc import Unsupported

    class Untraceable(kind, Unsupported):  # type: ignore[misc, valid-type]  # both bases are unknown to mypy here
        def __init__(self, problem: str, hint: str | None = None) -> None:
            kind.__init__(self, problem, hint)
            message = str(self)
            Unsupported.__init__(self, message)
            self.args = (message,)

        def __reduce__(self) -> tuple[object, ...]:
            return (kind, (self.problem, self.hint))

    Untraceable.__name__ = Untraceable.__qualname__ = kind.__name__
    Untraceable.__module__ = kind.__module__
    return Untraceable


def _skip_traced_frames() -> None:
    """Make dynamo skip the devshim frames that it is tracing, and what they call.

    After devshim's error, dynamo breaks the graph and calls the outermost of these functions. Without this, it would
    then trace the functions inside it, and find threads and files again.
    """
    frame = sys._getframe()
    while frame is not None:
        code = getattr(frame.f_locals.get("self"), "f_code", None)  # "self" is an InstructionTranslator
        if isinstance(code, CodeType) and code.co_filename.startswith(_DEVSHIM_FOLDER):
            keep_untraced(code)
        frame = frame.f_back  # type: ignore[assignment]


def keep_untraced(code: CodeType) -> None:
    """Make dynamo call the functions of this code instead of tracing them, from now on."""
    dynamo = torch._C._dynamo.eval_frame
    skip = dynamo._FrameAction.SKIP
    dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(skip, skip))
