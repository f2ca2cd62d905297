"""`explain`: record and print the native line of the framework for each devshim call.

While no `explain` is open, a call only reads `devshim.transfers.observing.ACTIVE`. While one is open,
`ACTIVE.explain` is an `Explainer`, and each call passes to it what it is about to do. So the modules of the layers
below do not import this one.

A tensor in a tree is named by its keys, ``x['weight']``. For a large tree, the first tensors get a line each, and one
more line says how many others there are.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock
from contextvars import ContextVar

from devshim.errors import ArgumentError, messages
from devshim.monitoring.native_lines import Snippet
from devshim.registry import tracing
from devshim.transfers import observing
from devshim.trees import key_paths
from devshim.trees.flatten import flatten

TYPE_CHECKING: bool = False
if TYPE_CHECKING:
    from typing import Any

    from devshim.contract.backend import Backend
    from devshim.contract.models import Leaf
    from devshim.devices.device import Device
    from devshim.models.moving import Where
    from devshim.trees.flatten import Flattened

LINES = 8
"""The number of tensors of one tree that get a line each."""
_MODEL_LEAVES = ("parameter", "buffer")
"""The kinds of leaves that a model has and an optimizer does not have."""

_open = 0
_COUNTING = allocate_lock()
_LISTENING: ContextVar[tuple[explain, ...]] = ContextVar("devshim_explain", default=())


class Lines(list[str]):
    """The lines of an `explain`, which a notebook displays as source code."""

    def _repr_html_(self) -> str:
        from devshim import _html

        return _html.block(_html.code("\n".join(self)) if self else "no native lines")


class explain:
    """A ``with`` block that records, and prints, the native line for each devshim call.

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
        self._opened: list[None] = []  # one item for each open block, in any thread

    def __enter__(self) -> list[str]:
        tracing.refuse("explain", "enter it around the call of the compiled function")
        _LISTENING.set((*_LISTENING.get(), self))
        self._opened.append(None)
        _count(1)
        return self._lines

    def __exit__(self, *failure: object) -> None:
        if not self._opened:
            raise messages.not_entered("explain")
        self._opened.pop()
        listening = list(_LISTENING.get())
        if self in listening:  # missing if an asynchronous generator is closed in another context
            listening.reverse()
            listening.remove(self)
            _LISTENING.set(tuple(reversed(listening)))
        _count(-1)

    def __repr__(self) -> str:
        state = "open" if any(self is each for each in _LISTENING.get()) else "closed"
        return f"<explain: {state}, {'1 line' if len(self._lines) == 1 else f'{len(self._lines)} lines'}>"

    def _record_call(self, snippet: Snippet) -> None:
        self._record_line(snippet.text)

    def _record_line(self, line: str) -> None:
        self._lines.append(line)
        if self._file is not None:
            print(line, file=sys.stdout if self._file is ... else self._file)


def _count(change: int) -> None:
    """Count the blocks that are open in any thread, after one was opened or closed."""
    global _open
    with _COUNTING:
        _open += change
        observing.activate(explain=_LISTENERS if _open else None)


class Explainer:
    """Receives what each call does, and makes lines of it; a subclass decides what happens to a call and a line."""

    def call(self, *call: Any, **names: Any) -> None:
        """Receive one call, with the arguments of `Snippet`: backend, call, device, args, dtype."""
        raise NotImplementedError

    def line(self, text: str) -> None:
        """Receive a line that no template has."""

    def keep(self) -> list[str]:
        """Return a list that receives this context's lines from now on, to be given to `line` later."""
        return []

    def placement(self, call: str, flat: Flattened, where: Where) -> None:
        """Show the lines for a placement (``call`` is ``"place"`` or ``"copy"``) of a tree.

        Args:
            call: The call whose line a tensor gets.
            flat: A tree of tensors, models and optimizers.
            where: The device of a leaf, as for `devshim.models.moving.ModelMove`.
        """
        for _, cell, x, backend in flat.leaves[:LINES]:
            device = where(key_paths.path_text(cell), "", not backend.shape(x))
            self.call(backend, call, device, x=_source_text("x", cell))
        self._count_others(len(flat.tensors), "tensors")
        for _, cell, obj, backend in flat.models:
            self._place_object(call, key_paths.path_text(cell), cell, obj, backend, where)

    def tree(self, call: str, tree: Any, device: Device | None = None, **names: str) -> None:
        """Show one line for each tensor of a tree, and for each model and optimizer in it.

        The line of a model is that of ``call`` followed by ``_model``, of an optimizer by ``_optimizer``, if the
        backend has one.
        """
        flat = flatten(tree)
        for _, cell, _, backend in flat.leaves[:LINES]:
            self.call(backend, call, device, **{"x": _source_text("x", cell), **names})
        self._count_others(len(flat.tensors), "tensors")
        for _, cell, obj, backend in flat.models:
            kind = _kind(backend.leaves(obj))
            name = f"{call}_{kind}" if f"{call}_{kind}" in backend.snippets else call
            self.call(backend, name, device, **{"x": _source_text(kind, cell), **names})

    def file(self, call: str, tree: Any, path: Any, device: Device | None = None) -> None:
        """Show the lines for `save` or `load` of a tree: one for its tensors together, and one for each model."""
        flat = flatten(tree)
        first: dict[Backend, Device] = {}
        for x, backend in zip(flat.tensors, flat.backends, strict=True):
            if backend not in first:
                first[backend] = device if device is not None else backend.device_of(x)
        named = {"path": repr(str(path))}
        for backend, target in first.items():
            self.call(backend, call, target, **{"x": "tensors", **named})
        for _, cell, obj, backend in flat.models:
            kind = _kind(backend.leaves(obj))
            self.call(backend, f"{call}_{kind}", None, **{"x": _source_text(kind, cell), **named})

    def _place_object(self, call: str, prefix: str, cell: Any, obj: Any, backend: Backend, where: Where) -> None:
        """Show the placement of a model or optimizer; for a model over several devices, show each parameter."""
        leaves = [leaf for leaf in backend.leaves(obj) if leaf.kind != "gradient"]
        own = [leaf for leaf in leaves if leaf.kind in _MODEL_LEAVES]
        kind = _kind(leaves)
        name = _source_text(kind, cell)
        targets = {leaf.path: _target(where, prefix, leaf, backend) for leaf in own or leaves}
        if len(set(targets.values())) > 1 and kind == "model":
            for path, device in list(targets.items())[:LINES]:
                self.call(backend, "place_parameter", device, x=name, path=repr(path))
            self._count_others(len(targets), "parameters")
            return
        device = next(iter(targets.values())) if targets else where(prefix, "")
        self.call(backend, f"{call}_{kind}", device, x=name)

    def _count_others(self, count: int, what: str) -> None:
        """Show how many there are besides those that got a line."""
        if count > LINES:
            self.line(f"# and {count - LINES} more {what}")


class _Listeners(Explainer):
    """Every `explain` that is open in the thread or task of a call."""

    def call(self, *call: Any, **names: Any) -> None:
        listening = _LISTENING.get()
        if listening:
            snippet = Snippet(*call, names=names)
            for listener in listening:
                listener._record_call(snippet)

    def line(self, text: str) -> None:
        for listener in _LISTENING.get():
            listener._record_line(text)

    def keep(self) -> list[str]:
        listener = explain(file=None)
        _LISTENING.set((listener,) if _LISTENING.get() else ())
        return listener._lines


_LISTENERS = _Listeners()


def _target(where: Where, prefix: str, leaf: Leaf, backend: Backend) -> Device:
    """Return the target of a leaf; state that a placement does not name stays with its parameter."""
    try:
        return where(prefix, leaf.path, leaf.kind == "state")
    except ArgumentError:
        return backend.device_of(leaf.read())


def _kind(leaves: list[Leaf]) -> str:
    """Return ``"model"`` or ``"optimizer"``, depending on its leaves; an object that is not built yet is a model."""
    return "model" if not leaves or any(leaf.kind in _MODEL_LEAVES for leaf in leaves) else "optimizer"


def _source_text(name: str, cell: Any) -> str:
    """Return the source text of an object in a tree: the variable's name and the keys to it."""
    return name + "".join(f"[{key!r}]" for key in key_paths.key_path(cell))
