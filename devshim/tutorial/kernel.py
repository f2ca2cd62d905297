"""The part inside the kernel: start the framework, and record what each cell does.

`start` runs in a set-up cell. From then on, each cell has one more output of the type `devshim.tutorial.record.MIME`
with its seconds, the value of its last expression, the tensors it assigned, and its devshim calls.
"""

from __future__ import annotations

import ast
import platform
import sys
import time
from typing import TYPE_CHECKING, Any

from devshim._version import __version__
from devshim.errors import DeviceNotFoundError
from devshim.monitoring.explain import explain
from devshim.registry import current
from devshim.registry.versions import version_of
from devshim.runtime import queries
from devshim.simulation.simulate import simulate
from devshim.tensors import creation
from devshim.tutorial.record import MIME
from devshim.tutorial.values import describe, describe_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from devshim.monitoring.native_lines import Snippet

__all__ = ["Recorder", "assigned_names", "start"]


def start(framework: str, gpus: int, real: bool = False, native_names: bool = False) -> None:
    """Start a framework in an IPython kernel, with simulated GPUs or real ones, and record every later cell.

    Raises:
        DeviceNotFoundError: Real GPUs were requested, and there are fewer.
    """
    current.use(framework)
    if gpus and not real:
        simulate(gpus, native_names=native_names)
    found = queries.devices("gpu")
    if len(found) < gpus:
        msg = f"the page needs {gpus} GPUs, and {framework} sees {len(found)}"
        raise DeviceNotFoundError(msg, "leave out --real to simulate them")
    for device in found:  # what a framework prints when it starts belongs to no cell
        creation.zeros((1,), device=device)
    shell = sys.modules["IPython"].get_ipython()
    shell.run_line_magic("xmode", "Plain")  # the default one needs a second to print the first error
    recorder = Recorder(shell)
    shell.events.register("pre_run_cell", recorder.before)
    shell.events.register("post_run_cell", recorder.after)
    shell.user_ns["ds"] = sys.modules["devshim"]
    facts = {"version": version_of(framework) or "", "devshim": __version__, "python": platform.python_version()}
    _send(shell, {**facts, "simulated": bool(gpus) and not real})


def _send(shell: Any, message: dict[str, Any]) -> None:
    shell.display_pub.publish(data={MIME: message})


class _Listener(explain):
    """Records the devshim calls of one cell, instead of printing them."""

    def __init__(self, shell: Any) -> None:
        super().__init__(file=None)
        self._shell = shell
        self._calls: dict[object, dict[str, Any]] = {}

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls, each place and line once, in the order of their first occurrence."""
        return list(self._calls.values())

    def _record_call(self, snippet: Snippet) -> None:
        device = snippet.device
        self._note(
            call=snippet.call,
            text=snippet.text,
            device=None if device is None else str(device),
            native=None if device is None else snippet.names["device"],
            index=None if device is None else device.index,
            template=snippet.template,
            names={**snippet.names, **{str(i): text for i, text in enumerate(snippet.sources)}},
        )

    def _record_line(self, line: str) -> None:
        self._note(call="", text=line)

    def _note(self, **call: Any) -> None:
        count, span = _place(self._shell)
        key = (call["call"], call["text"], count, span)
        if key in self._calls:
            self._calls[key]["times"] += 1
        else:
            self._calls[key] = {**call, "span": span, "execution_count": count, "times": 1}


def _place(shell: Any) -> tuple[int | None, tuple[int, ...] | None]:
    """Return the execution count of the cell whose code runs, and the place of the call in it."""
    for frame in _frames(sys._getframe(1)):
        if frame.f_globals is shell.user_ns:
            counts = getattr(shell.compile, "_filename_map", {})  # the file name of a cell -> its count
            count = counts.get(frame.f_code.co_filename)
            return count, None if count is None else _span(frame)
    return None, None


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _span(frame: FrameType) -> tuple[int, ...]:
    """Return line, end line, column and end column of the call that a frame is in; on Python 3.10 only the line."""
    if sys.version_info >= (3, 11):
        found = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        if None not in found:
            return tuple(found)  # type: ignore[arg-type]
    return (frame.f_lineno,)


class Recorder:
    """Records each cell of an IPython shell, by the events before and after it."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._listener: _Listener | None = None
        self._start = 0.0

    def before(self, info: Any) -> None:
        """Start to record; IPython calls this before a cell."""
        self._listener = _Listener(self._shell)
        self._listener.__enter__()
        self._start = time.perf_counter()

    def after(self, result: Any) -> None:
        """Send what was recorded; IPython calls this after a cell."""
        seconds = time.perf_counter() - self._start
        if self._listener is None:  # the cell in which the recording starts
            return
        self._listener.__exit__()
        space = self._shell.user_ns
        source = self._shell.transform_cell(result.info.raw_cell)
        tensors = {name: describe_tensors(space[name]) for name in assigned_names(source) if name in space}
        value = None if result.result is None else describe(result.result)
        message = {
            "seconds": round(seconds, 4),
            "value": value,
            "names": {name: found for name, found in tensors.items() if found is not None},
            "calls": self._listener.calls,
        }
        _send(self._shell, message)
        self._listener = None


def assigned_names(source: str) -> list[str]:
    """Return the names that code assigns outside functions and classes, in order; none if it cannot be parsed."""
    try:
        stack: list[ast.AST] = [ast.parse(source)]
    except SyntaxError:
        return []
    names: dict[str, None] = {}
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = None
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
        scopes = (*inner, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
        if not isinstance(node, scopes):
            stack += reversed(list(ast.iter_child_nodes(node)))
    return [name for name in names if not name.startswith("_")]
