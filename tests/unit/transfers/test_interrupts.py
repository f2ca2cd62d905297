"""Tests of a block that Ctrl-C does not interrupt: the interrupt arrives right after it, at the current handler."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from devshim.transfers.interrupts import defer_sigint


@pytest.fixture(autouse=True)
def _python_handles_it() -> Iterator[None]:
    """Install Python's handler, because pytest in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end() -> None:
    ended = []

    def work() -> None:
        with defer_sigint():
            with defer_sigint():
                signal.raise_signal(signal.SIGINT)
                ended.append("inner")
            ended.append("outer")
        ended.append("after")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert ended == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


CODE = """
import signal
from devshim.transfers.interrupts import defer_sigint
signal.signal(signal.SIGINT, signal.{handler})
with defer_sigint():
    signal.raise_signal(signal.SIGINT)
    print("inside")
print("after")
"""


@pytest.mark.parametrize(
    ("handler", "code", "reported"), [("SIG_DFL", -signal.SIGINT, "inside\n"), ("SIG_IGN", 0, "inside\nafter\n")]
)
def test_so_it_does_where_nothing_of_pythons_handles_it(handler: str, code: int, reported: str) -> None:
    command = [sys.executable, "-u", "-c", CODE.format(handler=handler)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, reported), done.stderr
