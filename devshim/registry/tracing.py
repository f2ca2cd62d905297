"""What cannot be done inside a compiled function: it is refused there, with what to do outside.

Requirements this module answers:

* A compiler that runs Python while it traces would do it once, then, and never again: a file is written, a seed set, a
  device asked once, whatever the function does later.  That is silence, so it is refused: `refuse`.
* A compiler that reads code instead of running it (torch.compile) cannot follow what is not tensors: locks, threads,
  files, context variables.  With ``fullgraph=True`` the caller meets the same `TracingError`; without it the compiler
  breaks off at the refusal, and the call does what it does eagerly: `refuse_where_read`.
* What is wrong outside is the same error inside: a device that is not there, tensors that are not where they should be.
"""

from __future__ import annotations

from devshim.registry import registry

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from devshim.contract.backend import Backend


@registry.settled_when_compiled
def refuse(call: str, instead: str) -> None:
    """Raise `TracingError` where a framework that is loaded is compiling the calling code.

    Args:
        call: The devshim call, such as ``"memory"``.
        instead: What to do outside, as an imperative clause.
    """
    for backend in registry.loaded():
        if backend.tracing():
            _raise(backend, call, instead)


@registry.settled_when_compiled
def refuse_where_read(call: str, instead: str) -> None:
    """Do the same where the compiler reads code: what others do while they trace is right, or refused elsewhere."""
    for backend in registry.loaded():
        if backend.reads_code and backend.tracing():
            _raise(backend, call, instead)


@registry.settled_when_compiled
def refuse_default_where_read() -> None:
    """Raise `TracingError` likewise where what is created would follow an `on` that the compiler cannot see."""
    from devshim.errors import TracingError

    for backend in registry.loaded():
        if backend.reads_code and backend.tracing():
            told = f"a function that {backend.title} is compiling cannot know the default device set outside of it"
            instead = "name the device, for example device=ds.device_of(x), or enter ds.on inside the function"
            raise backend.untraceable(TracingError(told, instead))


def _raise(backend: Backend, call: str, instead: str) -> None:
    from devshim.errors import messages

    raise backend.untraceable(messages.tracing(backend, call, instead))
