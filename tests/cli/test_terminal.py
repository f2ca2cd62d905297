"""Tests of the same commands on a terminal: colours, lines, and nothing beyond the width."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def _on_terminal(words: list[str], width: int, cwd: Path, *, piped: bool = False) -> str:
    """Return what a command writes to a terminal of this width; if ``piped``, only to standard error."""
    here, there = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(width), "LINES": "50"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "devshim", *words],
        stdout=subprocess.DEVNULL if piped else there,
        stderr=there,
        cwd=cwd,
        env=environment,
    )
    os.close(there)
    drawn = b""
    while True:
        try:
            part = os.read(here, 65536)
        except OSError:  # Linux reports a closed other end in this way
            break
        if not part:
            break
        drawn += part
    os.close(here)
    assert process.wait(60) == 0
    return drawn.decode()


@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("words", [["tour", "--backend", "numpy"], ["devices", "--backend", "numpy"]])
def test_output_fits_the_width_of_the_terminal(words: list[str], width: int, tmp_path: Path) -> None:
    drawn = _on_terminal(words, width, tmp_path)
    assert "\x1b[" in drawn
    assert "\u2500" in drawn, "a table has drawn lines here"
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert max(len(line.split("\r")[-1]) for line in plain.split("\r\n")) <= width


def test_on_a_narrow_terminal_each_line_says_whose_it_is(tmp_path: Path) -> None:
    """Colours are not needed to distinguish devshim's lines from the framework's."""
    drawn = _on_terminal(["tour", "--backend", "numpy"], 80, tmp_path)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert "devshim: n = ds.device_count()" in plain
    assert "PyTorch: torch.cuda.device_count()" in plain
    assert "NumPy: np.array([1.0, 2.0, 3.0])" in plain


def test_the_table_says_simulated(tmp_path: Path) -> None:
    assert "2 simulated GPUs" in _on_terminal(["tour", "--backend", "numpy"], 100, tmp_path)


@pytest.mark.parametrize("piped", [False, True])
def test_a_spinner_shows_what_is_waited_for(piped: bool, tmp_path: Path) -> None:
    """Also if standard output is a pipe, as in `devshim devices | less`."""
    drawn = _on_terminal(["devices", "--backend", "numpy"], 80, tmp_path, piped=piped)
    assert "asking NumPy" in drawn
    assert any(frame in drawn for frame in "\u280b\u2819\u2839\u2838\u283c\u2834\u2826\u2827\u2807\u280f")
