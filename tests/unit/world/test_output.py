"""Tests of the lines of a rank's output, for all kinds of output."""

from __future__ import annotations

import os
import threading

import pytest

from devshim.world import output


def read(*pieces: bytes) -> list[str]:
    """Return the lines of pieces that are written one after the other."""
    reading, writing = os.pipe()

    def write() -> None:
        for piece in pieces:
            os.write(writing, piece)
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    found = list(output.lines(reading))
    writer.join()
    return found


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], []),
        ([b"a\nb\n"], ["a", "b"]),
        ([b"a\nb"], ["a", "b"]),
        ([b"\n\na\n"], ["", "", "a"]),
        ([b"a\r\nb\r\n"], ["a", "b"]),
        ([b"10%\r20%\r", b"30%\r", b"done\n"], ["done"]),
        ([b"10%\r20%\r"], ["20%"]),
        ([b"\xc3", b"\xa4\n"], ["\u00e4"]),
        ([b"\xff\x00\xfe\n"], ["\ufffd\x00\ufffd"]),
        ([b"\xc3"], ["\ufffd"]),
    ],
)
def test_lines(pieces: list[bytes], expected: list[str]) -> None:
    assert read(*pieces) == expected


def test_a_line_without_an_end_is_cut() -> None:
    found = read(b"x" * 100_000, b"y" * 100_000)
    assert max(map(len, found)) == output.LONGEST
    assert "".join(found) == "x" * 100_000 + "y" * 100_000


def test_a_last_line_is_not_lost_where_another_process_holds_the_pipe_open() -> None:
    reading, writing = os.pipe()
    ended = threading.Event()
    os.write(writing, b"a\nresult: 42")
    threading.Timer(0.1, ended.set).start()
    assert list(output.lines(reading, ended)) == ["a", "result: 42"]
    os.close(writing)
