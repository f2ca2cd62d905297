"""One backend's process as the main process sees it: started, sent one test after another, and ended.

The main process waits at the same time for a message, for the process's death and for its own reason to stop. pytest
captures what tests print; anything else that the process prints goes to a file, whose end is reported if the process
dies.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devshim.testing.isolation.protocol import Channel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

__all__ = ["Died", "Process", "Room"]

PATIENCE = 60
"""The seconds that a process may take to end once it has nothing to do."""
_LOOK = 0.5
_TAIL = 6000

_BOOT = "import sys; sys.path[:] = {path!r}; from devshim.testing.isolation.worker import main; main({descriptor})"


@dataclass(frozen=True)
class Room:
    """The tests that one process runs.

    Attributes:
        backend: The backend whose tests it runs.
        simulated: True for tests on simulated GPUs, which have a separate process that hides real GPUs.
    """

    backend: str
    simulated: bool

    def __str__(self) -> str:
        return f"{self.backend} with simulated GPUs" if self.simulated else self.backend

    def environment(self, gpus: int) -> dict[str, str]:
        """Return the environment variables of such a process, with this many simulated GPUs."""
        found = {**os.environ, "DEVSHIM_BACKEND": self.backend}
        if self.simulated:
            # Set from the start: Paddle and TensorFlow must know it before they are imported or started.
            found |= {"DEVSHIM_SIMULATE_GPUS": str(gpus), "CUDA_VISIBLE_DEVICES": ""}
        return found


class Died(Exception):
    """The error when a process has ended.

    Attributes:
        how: How it ended, as the end of a sentence.
        output: The last part of its output.
    """

    def __init__(self, how: str, output: str) -> None:
        super().__init__(how)
        self.how = how
        self.output = output


class Process:
    """A process that runs the tests of a `Room`.

    Args:
        config: The configuration of the run.
        room: Which tests the process runs.
        wanted: The tests that it will be asked to run.
        gpus: How many simulated GPUs it provides.
    """

    def __init__(self, config: pytest.Config, room: Room, wanted: Sequence[str], gpus: int) -> None:
        self.room = room
        self.found: frozenset[str] = frozenset()
        self.problems: list[str] = []
        self._output = None if _shows_output(config) else tempfile.TemporaryFile()  # noqa: SIM115  # until `end`
        ours, its = socket.socketpair()
        self._channel = Channel(ours)
        with its, _input_given_back(config) if self._output is None else nullcontext():
            self._process = subprocess.Popen(
                [sys.executable, *_flags(), "-c", _BOOT.format(path=sys.path, descriptor=its.fileno())],
                stdin=None if self._output is None else subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                cwd=config.invocation_params.dir,
                env=room.environment(gpus),
                pass_fds=[its.fileno()],
            )
        invoked = config.invocation_params
        arguments = [os.fspath(word) for word in invoked.args]
        named = [plugin for plugin in invoked.plugins or () if isinstance(plugin, str)]
        try:
            self._channel.send(arguments, named, room.backend, list(wanted), _basetemp(config, room))
        except OSError:
            raise self._died() from None

    def messages(self) -> Iterator[tuple[Any, ...]]:
        """Yield the process's messages until it has finished its task; raises `Died`."""
        while True:
            try:
                message = self._channel.receive(_LOOK)
            except EOFError:
                raise self._died() from None
            if message is None:
                # A process that a test has started may keep the channel open after the death of this one.
                if self._process.poll() is not None:
                    raise self._died()
                continue
            yield message
            if message[0] in ("ready", "done"):
                return

    def begin(self) -> Iterator[tuple[Any, ...]]:
        """Yield its messages while it collects tests; raises `Died`."""
        for message in self.messages():
            if message[0] == "ready":
                self.found, self.problems = frozenset(message[1]), message[2]
            else:
                yield message

    def run(self, name: str, following: str | None) -> Iterator[tuple[Any, ...]]:
        """Yield its messages while it runs a test, given the name of the next one; raises `Died`."""
        try:
            self._channel.send("run", name, following)
        except OSError:
            raise self._died() from None
        yield from self.messages()

    def end(self) -> str | None:
        """Let it run the remaining teardown and end; return how it failed to end, or None."""
        try:
            self._channel.send("end")
            code: int | None = self._process.wait(PATIENCE)
        except (OSError, subprocess.TimeoutExpired):
            code = self._process.poll()
        how = f"did not end within {PATIENCE} seconds" if code is None else _told(code) if code < 0 else None
        self.kill()
        return how

    def kill(self) -> None:
        """Kill it."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._channel.close()
        if self._output is not None:
            self._output.close()

    def _died(self) -> Died:
        try:
            code: int | None = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        how = "closed its channel, and goes on" if code is None else _told(code)
        output = self._printed()
        self.kill()
        return Died(how, output)

    def _printed(self) -> str:
        if self._output is None:
            return ""
        self._output.seek(max(self._output.seek(0, os.SEEK_END) - _TAIL, 0))
        return self._output.read().decode(errors="replace")


def _told(code: int) -> str:
    """Return how a process ended, from its exit status."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"


def _shows_output(config: pytest.Config) -> bool:
    """Return True if the process shares this one's terminal: output is not captured, or a debugger is requested."""
    option = config.option
    return bool(option.capture == "no" or option.usepdb or option.trace)


@contextmanager
def _input_given_back(config: pytest.Config) -> Iterator[None]:
    """Restore this process's own standard input, which pytest replaces during capture, for the block."""
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    try:
        yield
    finally:
        capture.resume_global_capture()
        capture.suspend_global_capture()  # the state between the steps of a test


def _basetemp(config: pytest.Config, room: Room) -> str | None:
    """Return a folder beside the one given for ``tmp_path``, which pytest empties when it starts."""
    given = config.option.basetemp
    return None if given is None else f"{os.path.abspath(given)}-{room.backend}{'-simulated' * room.simulated}"


def _flags() -> list[str]:
    """Return the interpreter's own options, which the process shares."""
    named = [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items()]
    return [*named, *(f"-W{option}" for option in sys.warnoptions), *["-O"] * sys.flags.optimize]
