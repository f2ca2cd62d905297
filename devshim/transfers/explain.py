"""`explain`: record and print the native line of the framework that each devshim call stands for.

The adapters provide the templates (``snippets.py``), and this module fills in the arguments of the call. While no
`explain` is open, a call costs only one look at `devshim.transfers.observing.ACTIVE`.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock
from contextvars import ContextVar

from devshim.transfers import observing

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import Any

    from devshim.contract.backend import Backend
    from devshim.devices.device import Device

_open = 0
_COUNTING = allocate_lock()
_LISTENING: ContextVar[tuple[explain, ...]] = ContextVar("devshim_explain", default=())


class Lines(list[str]):
    """The lines of an `explain`, which a notebook displays as source code."""

    def _repr_html_(self) -> str:
        from devshim import _html

        return _html.block(_html.code("\n".join(self)) if self else "no native lines")


class explain:
    """A ``with`` block that records, and prints, the native line each devshim call stands for.

    Args:
        file: The file to print to, as for `print`; None records without printing. Standard output by default.

    ``with ds.explain() as lines`` gives a list of text that grows with each call of this thread or task. The line shown
    is the one for a real GPU; a simulated GPU takes a different one.

    >>> import devshim as ds
    >>> ds.use("torch")
    >>> ds.simulate(gpus=2)
    <2 simulated GPUs>
    >>> x = ds.ones(3)
    >>> with ds.explain(file=None) as lines:
    ...     y = ds.place(x, "gpu:1")
    >>> lines
    ['x.to("cuda:1")']
    """

    def __init__(self, file: Any = ...) -> None:
        self._file = file
        self._lines: list[str] = Lines()

    def __enter__(self) -> list[str]:
        from devshim.registry import tracing

        tracing.refuse("explain", "enter it around the call of the compiled function")
        _LISTENING.set((*_LISTENING.get(), self))
        _count(1)
        return self._lines

    def __exit__(self, *failure: object) -> None:
        listening = list(_LISTENING.get())
        if self in listening:  # missing if an asynchronous generator is closed in another context
            listening.reverse()
            listening.remove(self)
            _LISTENING.set(tuple(reversed(listening)))
        _count(-1)

    def __repr__(self) -> str:
        state = "open" if any(self is each for each in _LISTENING.get()) else "closed"
        return f"<explain: {state}, {'1 line' if len(self._lines) == 1 else f'{len(self._lines)} lines'}>"

    def _hear_call(self, snippet: Snippet) -> None:
        self._hear(snippet.text)

    def _hear(self, line: str) -> None:
        self._lines.append(line)
        if self._file is not None:
            print(line, file=sys.stdout if self._file is ... else self._file)


def _count(change: int) -> None:
    """Count the blocks that are open in any thread, after one was opened or closed."""
    global _open
    with _COUNTING:
        _open += change
        observing.activate(explain=_show_call if _open else None)


def is_open() -> bool:
    """Return True if an `explain` is open in any thread."""
    active = observing.ACTIVE
    return active is not None and active.explain is not None


def show_call(*call: Any, **names: str) -> None:
    """Show the native line of a call, with the arguments of `native_line`, if an `explain` is open."""
    active = observing.ACTIVE
    if active is not None and active.explain is not None:
        active.explain(*call, **names)


def _show_call(
    backend: Backend,
    call: str,
    device: Device | None = None,
    args: tuple[object, ...] = (),
    dtype: object = None,
    **names: str,
) -> None:
    listening = _LISTENING.get()
    if listening:
        snippet = Snippet(backend, call, device, args, dtype, names)
        for listener in listening:
            listener._hear_call(snippet)


def show(line: str) -> None:
    """Record a line in every `explain` that is open in this thread or task."""
    for listener in _LISTENING.get():
        listener._hear(line)


def keep() -> list[str]:
    """Return a list that receives this context's lines from now on, instead of the listeners: `show` them later."""
    listener = explain(file=None)
    _LISTENING.set((listener,) if _LISTENING.get() else ())
    return listener._lines


def native_line(
    backend: Backend,
    call: str,
    device: Device | None = None,
    args: tuple[object, ...] = (),
    dtype: object = None,
    **names: str,
) -> str:
    """Return the native line that stands for one devshim call on one backend.

    Args:
        backend: The backend.
        call: The devshim call, such as ``"place"``.
        device: The device it is about, if any.
        args: Its positional arguments, shown as source text; long ones are shortened.
        dtype: The array-API name of the requested dtype, or None.
        **names: Source text for further names of the template, such as ``x`` and ``path``.
    """
    return Snippet(backend, call, device, args, dtype, names).text


class Snippet:
    """The native line of one devshim call, and what it was made of; the arguments are those of `native_line`.

    Attributes:
        call: The devshim call.
        backend: The backend.
        device: The device it is about, or None.
        template: The adapter's template; None if the framework has no line for the call.
        sources: The source text of the positional arguments, for the template's ``{0}``, ``{1}``.
        names: The source text of the template's names.
    """

    __slots__ = ("backend", "call", "device", "names", "sources", "template")

    def __init__(
        self,
        backend: Backend,
        call: str,
        device: Device | None,
        args: tuple[object, ...],
        dtype: object,
        names: dict[str, str],
    ) -> None:
        self.backend: Backend = backend
        self.call: str = call
        self.device: Device | None = device
        self.template: str | None = backend.snippet(call)
        self.sources: list[str] = [_source(value) for value in args]
        named = backend.snippets.get("dtype", "{name!r}").format(name=dtype) if isinstance(dtype, str) else str(dtype)
        known = {
            "x": "x",
            "device": "" if device is None else backend.native_text(device),
            "index": str(0 if device is None else device.index),
            "args": ", ".join(self.sources),
            "dtype": "" if dtype is None else f", dtype={named}",
        }
        self.names: dict[str, str] = {**known, **names}

    @property
    def text(self) -> str:
        """The line."""
        line = self.template or f"# {self.backend.title} has no line of its own for ds.{self.call}"
        return line.format(*self.sources, **self.names)


def _source(value: object) -> str:
    if isinstance(value, (tuple, list)):  # an item may be a tensor or a model, whose repr is long and copies data
        items = [_source(each) for each in value[:30]]
        inside = ", ".join(items) + ("," if isinstance(value, tuple) and len(items) == 1 else "")
        text = f"[{inside}]" if isinstance(value, list) else f"({inside})"
    elif isinstance(value, (bool, int, float, complex, str, type(None))):
        text = repr(value)
    else:
        return "a" if hasattr(value, "shape") else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."
