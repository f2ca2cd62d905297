"""Progress bars of long copies: in a terminal, drawn by rich; in a notebook, one output that is updated.

Requirements of this module:

* Short copies cost nothing: a bar is opened for `LIMIT` bytes or more, and only if `is_wanted` returns True.
* A bar never disturbs a program: it goes to standard error, if that is a terminal, or to the cell; it is removed at the
  end, even after an error and after Ctrl-C; and there is one at a time, of the outermost call. A bar that cannot be
  drawn is left out.
* ``DEVSHIM_PROGRESS=0`` switches all of them off.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LIMIT", "SHOWN", "Bar", "advance", "bar", "in_notebook", "is_wanted"]

LIMIT = 1 << 30
"""Bytes: smaller copies have no bar."""
_EVERY = 0.2
"""The seconds between two updates in a notebook."""
_ONE_AT_A_TIME = Lock()
"""The lock of the bar that is shown: another copy that wants one meanwhile gets none."""

_answer: tuple[object, bool] = (object(), False)
"""The `sys.stderr` for which the answer of `is_wanted` is stored, and the answer."""
SHOWN: Bar | None = None
"""The bar that is shown."""


def is_wanted() -> bool:
    """Return True if a bar could be shown: in a terminal or a notebook, unless the environment switches bars off.

    The answer is stored until the program replaces `sys.stderr`: every copy of a tree asks.
    """
    global _answer
    if _answer[0] is not sys.stderr:
        off = os.environ.get("DEVSHIM_PROGRESS") == "0"
        _answer = (sys.stderr, not off and (in_notebook() or _is_terminal()))
    return _answer[1]


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except Exception:  # it is None, closed, or an object of the program's own
        return False


def in_notebook() -> bool:
    """Return True in a Jupyter kernel: its shell displays outputs, and has a kernel."""
    ipython = sys.modules.get("IPython")
    try:
        return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
    except Exception:  # it is still being imported
        return False


def bar(what: str, nbytes: int, position: Callable[[], int] | None = None) -> AbstractContextManager[object]:
    """Return a ``with`` block with a bar for a copy; without one if the copy is small, or a bar is shown already.

    Args:
        what: What is done: ``copy``, ``save``, ``load`` or ``convert``.
        nbytes: The bytes of the whole copy.
        position: Returns how many bytes have been copied, for a copy that does not call `advance`.
    """
    if nbytes < LIMIT or not is_wanted() or not _ONE_AT_A_TIME.acquire(blocking=False):
        return nullcontext()
    try:
        return Bar(what, nbytes, position)
    except BaseException:
        _ONE_AT_A_TIME.release()
        raise


def advance(what: str, nbytes: int) -> None:
    """Move the bar of this thread by ``nbytes``, if it is shown and has that name."""
    shown = SHOWN
    if shown is not None and shown.what == what and shown.thread == get_ident():
        shown.advance(nbytes)


class Bar:
    """The bar that is shown; it owns `_ONE_AT_A_TIME` from the start to the end of its block."""

    def __init__(self, what: str, nbytes: int, position: Callable[[], int] | None) -> None:
        self.what = what
        self.thread: int = get_ident()
        self._drawn: Any = _NotebookBar(what, nbytes) if in_notebook() else _TerminalBar(what, nbytes, position)
        self._done = 0

    def __enter__(self) -> Bar:
        global SHOWN
        try:
            self._drawn.start()
            SHOWN = self
        except BaseException as error:
            self.__exit__()
            if not isinstance(error, Exception):
                raise
        return self

    def advance(self, nbytes: int) -> None:
        """Move the bar."""
        self._done += nbytes
        with suppress(Exception):
            self._drawn.move(self._done)

    def __exit__(self, *failure: object) -> None:
        global SHOWN
        drawn, self._drawn = self._drawn, None
        if drawn is None:
            return
        SHOWN = None
        try:
            with suppress(Exception):
                drawn.stop()
        finally:
            _ONE_AT_A_TIME.release()


class _TerminalBar:
    """A bar of rich, which a thread of rich redraws ten times a second."""

    def __init__(self, what: str, nbytes: int, position: Callable[[], int] | None) -> None:
        from rich import progress
        from rich.console import Console

        class Moving(progress.ProgressColumn):
            """Reads the position of a copy that reports none."""

            def render(self, task: progress.Task) -> str:
                if position is not None:
                    with suppress(Exception):
                        terminal_bar.move(position())
                return ""

        terminal_bar = self
        columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.DownloadColumn(True))
        shown = (*columns, progress.TransferSpeedColumn(), progress.TimeRemainingColumn(), Moving())
        console = Console(file=sys.stderr, force_jupyter=False)
        self._progress = progress.Progress(*shown, console=console, transient=True, redirect_stdout=False)
        self._task = self._progress.add_task(f"devshim: {what}", total=nbytes)

    def start(self) -> None:
        try:
            self._progress.start()
        except BaseException:
            self._progress.stop()  # shows the cursor again
            raise

    def move(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def stop(self) -> None:
        self._progress.stop()


class _NotebookBar:
    """An output of the cell that is updated, and emptied at the end; it needs no widgets."""

    def __init__(self, what: str, nbytes: int) -> None:
        self._what, self._total = what, nbytes
        self._handle: Any = None
        self._last = 0.0

    def start(self) -> None:
        from IPython.display import display

        self._handle = display(self._content(0), raw=True, display_id=True)

    def move(self, done: int) -> None:
        if time.monotonic() - self._last > _EVERY:
            self._last = time.monotonic()
            self._handle.update(self._content(done), raw=True)

    def stop(self) -> None:
        self._handle.update({"text/plain": "", "text/html": ""}, raw=True)

    def _content(self, done: int) -> dict[str, str]:
        from devshim import _html

        text = f"{_html.size(done)} of {_html.size(self._total)}"
        html = _html.block(_html.bars([(f"devshim: {self._what}", done, text)], self._total))
        return {"text/plain": f"devshim: {self._what} {text}", "text/html": html}
