"""Tests of progress bars: the limit is lowered, and standard error is a terminal that keeps what is written."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import devshim as ds
from devshim.registry import current
from devshim.transfers import progress

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


def stderr_is(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make something standard error, only for the module: pytest sets its own again before each phase of a test."""
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=file, modules=sys.modules))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal, and every copy of a kibibyte a long one."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(progress, "LIMIT", 1024)
    made = Terminal()
    stderr_is(made, monkeypatch)
    ds.simulate(2)
    return made


def tree() -> dict[str, Any]:
    return {str(i): ds.ones(1024, dtype="float32") for i in range(8)}


def drawn(terminal: Terminal, *names: str) -> None:
    """Check that bars of these names were drawn one after the other, and that nothing of them is left."""
    text = terminal.getvalue()
    at = [text.index(f"devshim: {name}") for name in names]
    assert at == sorted(at)
    assert text.count(HIDE) == text.count(SHOW) == len(names)
    assert text.endswith("\x1b[2K"), "the line is erased"
    assert progress.SHOWN is None


CALLS: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "place": (lambda path: ds.place(tree(), "gpu:1"), ["copy"]),
    "place a placement": (lambda path: ds.place(tree(), ds.Placement({"1": "gpu:1"}, default="gpu:0")), ["copy"]),
    "save": (lambda path: ds.save(tree(), path), ["save"]),
    "save from a GPU": (lambda path: ds.save({"a": ds.ones(1024, device="gpu:1")}, path), ["copy", "save"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_long_copy_has_a_bar_that_is_removed(terminal: Terminal, tmp_path: Path, name: str) -> None:
    call, names = CALLS[name]
    call(tmp_path / "file")
    drawn(terminal, *names)


@pytest.mark.parametrize("device", ["cpu", "gpu:1"])
def test_load_has_one_bar(terminal: Terminal, tmp_path: Path, device: str) -> None:
    ds.save(tree(), tmp_path / "file")
    terminal.truncate(0)
    loaded = ds.load(tmp_path / "file", device)
    drawn(terminal, "load")
    assert ds.placement_of(loaded).devices == {ds.device(device)}


def test_a_bar_reaches_its_end(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    moved: list[int] = []
    monkeypatch.setattr(progress._TerminalBar, "move", lambda self, done: moved.append(done))
    ds.place(tree(), "gpu:1")
    assert moved == [4096 * i for i in range(1, 8)], "each tensor, when the next one starts"
    ds.save(tree(), tmp_path / "file")
    moved.clear()
    ds.load(tmp_path / "file")
    assert moved == [4096 * i for i in range(1, 9)]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, ds.DevshimError])
def test_the_terminal_is_clean_after_an_error(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    values = tree()
    backend = type(current.current())

    def fails(self: Any, xs: Any, *rest: object) -> Any:
        for i, _ in enumerate(xs):
            if i == 3:
                raise kind("now")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "copy_many", fails)
        with pytest.raises((kind, ds.OutOfMemoryError)):
            ds.place(values, "gpu:1")
    drawn(terminal, "copy")
    ds.place(values, "gpu:1")
    assert terminal.getvalue().count(SHOW) == 2, "the next copy has a bar"


def test_short_copies_and_programs_without_a_terminal_have_none(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ds.place({"a": ds.ones(10)}, "gpu:1")
    assert terminal.getvalue() == ""
    for other in (io.StringIO(), None, object()):
        stderr_is(other, monkeypatch)
        assert not progress.is_wanted()
        ds.save(tree(), tmp_path / "file")
    assert terminal.getvalue() == ""


def test_progress_bars_can_be_switched_off(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEVSHIM_PROGRESS", "0")
    monkeypatch.setattr(progress, "_answer", (None, True))  # it is read when a program starts to copy
    ds.save(ds.place(tree(), "gpu:1"), tmp_path / "file")
    ds.load(tmp_path / "file")
    assert terminal.getvalue() == ""


def test_without_a_terminal_no_size_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ds.simulate(2)
    stderr_is(io.StringIO(), monkeypatch)
    monkeypatch.setattr(progress, "bar", lambda *given: pytest.fail("it asks"))
    ds.place(tree(), "gpu:1")


def test_two_threads_have_one_bar(terminal: Terminal) -> None:
    with progress.bar("copy", 2048):
        other = threading.Thread(target=ds.place, args=(tree(), "gpu:1"))
        other.start()
        other.join()
        assert progress.SHOWN is not None
        assert progress.SHOWN._done == 0
    drawn(terminal, "copy")


def test_a_bar_that_cannot_be_drawn_is_left_out(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: object) -> None:
        raise OSError(5, "the terminal is gone")

    monkeypatch.setattr(progress._TerminalBar, "start", fails)
    assert ds.placement_of(ds.place(tree(), "gpu:1")).devices == {ds.gpu(1)}
    monkeypatch.undo()
    assert progress._ONE_AT_A_TIME.acquire(blocking=False)
    progress._ONE_AT_A_TIME.release()
