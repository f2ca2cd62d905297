"""Compilers: which one is reading the calling code, and the refusal of calls that cannot work there.

Requirements of this module:

* A compiler that runs Python while it traces would run a side effect once, at compile time, and never again: it would
  write a file, set a seed or ask for a device once, regardless of the function's later calls. That would be silently
  wrong, so it is an error: `refuse`.
* A compiler that reads code instead of running it (torch.compile) can follow only tensors: no locks, threads, files or
  context variables. With ``fullgraph=True`` the caller gets the same `TracingError`. Without it, the compiler breaks
  the graph at the error, and the call runs eagerly: `refuse_where_read`.
* An error outside a compiled function is the same error inside: a device that does not exist, or tensors that are not
  where they should be (`Backend.raise_error`).
* The neutral half asks here whether code is being read; it does not ask the adapters.
"""

from __future__ import annotations

from devshim._compiler_marks import constant_under_compile
from devshim.errors import TracingError, messages
from devshim.registry import compiler_start, registry

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from devshim.contract.backend import Backend

__all__ = ["COMPILERS", "compiler", "reading", "refuse", "refuse_default_where_read", "refuse_where_read"]

COMPILERS: list[Backend] = []
"""The loaded backends whose compiler reads code instead of running it."""


reading: Callable[[], bool] | None = None
"""Returns True while one of `COMPILERS` reads the calling code; None without any. Fast paths ask this in each call."""


def _add_compiler(backend: Backend) -> None:
    global reading
    if backend.traces_bytecode:
        COMPILERS.append(backend)
        reading = (backend.fast_paths.reading or backend.compiling) if len(COMPILERS) == 1 else _is_any_reading


def _is_any_reading() -> bool:
    return compiler() is not None


registry.on_load(_add_compiler)


def compiler() -> Backend | None:
    """Return the backend whose compiler is reading the calling code right now, or None."""
    for backend in COMPILERS:
        if backend.compiling():
            return backend
    return None


@constant_under_compile
def refuse(call: str, instead: str) -> None:
    """Raise `TracingError` if a loaded framework is compiling the calling code.

    Args:
        call: The devshim call, such as ``"memory"``.
        instead: What to do outside, as an imperative clause.
    """
    for backend in registry.loaded_backends():
        if backend.tracing():
            backend.raise_error(messages.tracing, (backend, call, instead))


@constant_under_compile
def refuse_where_read(call: str, instead: str) -> None:
    """Raise `TracingError` if a compiler that reads code is compiling the calling code.

    With other compilers the call works during tracing, or is refused elsewhere.
    """
    for backend in COMPILERS:
        if backend.tracing():
            backend.raise_error(messages.tracing, (backend, call, instead))


@constant_under_compile
def refuse_default_where_read() -> None:
    """Raise `TracingError` if a new tensor's device would depend on an `on` that a code-reading compiler cannot see."""
    for backend in COMPILERS:
        if backend.tracing():
            backend.raise_error(_unknown_default, (backend,))


def _unknown_default(backend: Backend) -> TracingError:
    return TracingError(
        f"a function that {backend.title} is compiling cannot know the default device set outside of it",
        "name the device, for example device=ds.device_of(x), or enter ds.on inside the function",
    )


compiler_start.watch_compilers()  # last: it may load an adapter, which imports this module
