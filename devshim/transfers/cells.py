"""The name of a line of a notebook: ``In [8]:3``, as the notebook shows the cell, instead of a temporary file's name.

IPython compiles each cell under a separate file name: ``/tmp/ipykernel_71/2071649295.py`` in a Jupyter kernel,
``<ipython-input-8-...>`` in a terminal. Its compiler knows the number of the cell for that name. A cell that is
executed again has its latest number. IPython drops empty lines at the start of a cell, which the notebook shows, so
they are added to the number of the line.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["cell_suffix", "line_name", "name_cells"]

_NUMBER = re.compile(r"In ?\[(\d+)\]$")
_LINE = re.compile(r"(?P<file>[\w<>.-]+):(?P<line>\d+)(?= in )")


def line_name(file: str, line: int) -> str:
    """Return a line as ``file:line``, or as ``In [8]:3`` if the file is a cell of this process's notebook."""
    number = _cell(file)
    return f"{file}:{line}" if number is None else f"In [{number}]:{line + _count_empty_lines(number)}"


def cell_suffix(frame: FrameType) -> str:
    """Return ``" at In [8]:3"`` for a frame of a cell, and otherwise nothing: for a warning, which names the file."""
    file = frame.f_code.co_filename
    return "" if _cell(file) is None else f" at {line_name(file, frame.f_lineno)}"


def name_cells(text: str) -> str:
    """Return a text of another process, with ``In [8]:3 in job`` instead of ``2071649295.py:3 in job``.

    The other process has functions of this one's cells, and knows only their temporary files.
    """
    if "IPython" not in sys.modules:
        return text
    files = {os.path.basename(file): file for file in list(linecache.cache) if _cell(file) is not None}

    def named(found: re.Match[str]) -> str:
        file = files.get(found["file"])
        return found[0] if file is None else line_name(file, int(found["line"]))

    return _LINE.sub(named, text)


def _cell(file: str) -> str | None:
    """Return the number of the cell that is compiled under a file name, or None."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return None
    try:
        named = ipython.get_ipython().compile.format_code_name(file)
    except Exception:  # no shell runs, it is still being imported, or it has no such method (IPython 7)
        return None
    found = _NUMBER.match(named[1]) if isinstance(named, tuple) and len(named) == 2 else None
    return None if found is None or found[1] == "0" else found[1]


def _count_empty_lines(number: str) -> int:
    """Return how many empty lines the cell starts with."""
    try:
        typed = sys.modules["IPython"].get_ipython().history_manager.input_hist_raw[int(number)]
        return next((i for i, line in enumerate(typed.splitlines()) if line.strip()), 0)
    except Exception:  # its text is not kept
        return 0
