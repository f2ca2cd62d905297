"""Run the cells of a script in this process, and record which devshim calls they make, where, and on which devices."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from devshim.errors import DevshimError
from devshim.monitoring.explain import Explainer
from devshim.transfers import observing
from devshim.tutorial.transpiler.calls import Ran, to_characters

__all__ = ["run_cells"]


def run_cells(sources: Sequence[str], path: Path) -> list[list[Ran]]:
    """Run cells one after the other in one module, as ``python path`` would, and return the calls of each.

    Raises:
        DevshimError: A cell raised an error.
    """
    recorder = _Recorder({f"{path}, cell {number}": source for number, source in enumerate(sources, 1)})
    module = ModuleType("__main__")
    module.__file__ = str(path)
    before = sys.modules["__main__"], sys.path[:]
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        sys.modules["__main__"] = module
        with recorder.listening():
            for name, source in recorder.sources.items():
                _run(name, source, module)
    finally:
        sys.modules["__main__"], sys.path[:] = before
    return list(recorder.calls.values())


def _run(name: str, source: str, module: ModuleType) -> None:
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in _frames(error) if frame.name == name]
        where = f"{name}, line {lines[-1]}" if lines else name
        msg = f"{where}: {type(error).__name__}: {error}"
        raise DevshimError(msg, "the script has to run: try it with --backend and another framework") from error


class _Frame:
    def __init__(self, name: str, lineno: int) -> None:
        self.name, self.lineno = name, lineno


def _frames(error: BaseException) -> Iterator[_Frame]:
    trace = error.__traceback__
    while trace is not None:
        yield _Frame(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next


class _Recorder(Explainer):
    """Records the calls that cells make.

    Args:
        sources: The cells, by the file name that their code has.
    """

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources
        self.calls: dict[str, list[Ran]] = {name: [] for name in sources}

    @contextmanager
    def listening(self) -> Iterator[None]:
        active = observing.ACTIVE
        before = None if active is None else active.explain
        observing.activate(explain=self)
        try:
            yield
        finally:
            observing.activate(explain=before)

    def call(self, backend: Any, call: str, device: Any = None, *rest: Any, **names: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename not in self.calls:
            frame = frame.f_back
        if frame is None:
            return
        name = frame.f_code.co_filename
        text = None if device is None else str(device)
        is_tree = "[" in str(names.get("x", ""))
        self.calls[name].append(_locate(frame, call, text, is_tree, self.sources[name].split("\n")))


def _locate(frame: FrameType, call: str, device: str | None, is_tree: bool, lines: list[str]) -> Ran:
    if sys.version_info >= (3, 11):
        span = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        if None not in span:
            line, last, column, end = (int(each or 0) for each in span)
            start = to_characters(lines[line - 1], column)
            return Ran(call, line, start, (last, to_characters(lines[last - 1], end)), device, is_tree)
    return Ran(call, frame.f_lineno, device=device, is_tree=is_tree)
