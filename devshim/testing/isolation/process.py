"""One backend's process as the run sees it: started, asked for one test after another, and ended.

A message, the process's death and the run's own wish to stop are waited for at once. What the process prints apart
from its tests (pytest captures those) is kept in a file, and told where the process dies.
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
"""Seconds a process may take to end once it has nothing to do."""
_LOOK = 0.5
_TAIL = 6000

_BOOT = "import sys; sys.path[:] = {path!r}; from devshim.testing.isolation.worker import main; main({descriptor})"


@dataclass(frozen=True)
class Room:
    """What a process is for.

    Attributes:
        backend: The backend whose tests it runs.
        simulated: Whether these are tests on simulated GPUs: they have a process apart, in which real ones are hidden.
    """

    backend: str
    simulated: bool

    def __str__(self) -> str:
        return f"{self.backend} with simulated GPUs" if self.simulated else self.backend

    def environment(self, gpus: int) -> dict[str, str]:
        """Return the variables of such a process; room is made for so many simulated GPUs."""
        found = {**os.environ, "DEVSHIM_BACKEND": self.backend}
        if self.simulated:
            # From the start: Paddle and TensorFlow have to know before they are imported, or started.
            found |= {"DEVSHIM_SIMULATE_GPUS": str(gpus), "CUDA_VISIBLE_DEVICES": ""}
        return found


class Died(Exception):
    """The process is gone.

    Attributes:
        how: How it ended, as the end of a sentence.
        output: What it printed last.
    """

    def __init__(self, how: str, output: str) -> None:
        super().__init__(how)
        self.how = how
        self.output = output


class Process:
    """A process that runs a room's tests.

    Args:
        config: The run's.
        room: What the process is for.
        wanted: The tests it will be asked for.
        gpus: How many simulated GPUs it makes room for.
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
        """Yield what the process says until it has done what it was asked for; raises `Died`."""
        while True:
            try:
                message = self._channel.receive(_LOOK)
            except EOFError:
                raise self._died() from None
            if message is None:
                # A process that a test has started may hold the channel open beyond the death of this one.
                if self._process.poll() is not None:
                    raise self._died()
                continue
            yield message
            if message[0] in ("ready", "done"):
                return

    def begin(self) -> Iterator[tuple[Any, ...]]:
        """Yield what it says while it collects its tests; raises `Died`."""
        for message in self.messages():
            if message[0] == "ready":
                self.found, self.problems = frozenset(message[1]), message[2]
            else:
                yield message

    def run(self, name: str, following: str | None) -> Iterator[tuple[Any, ...]]:
        """Yield what it says while it runs a test, of which the next one is known; raises `Died`."""
        try:
            self._channel.send("run", name, following)
        except OSError:
            raise self._died() from None
        yield from self.messages()

    def end(self) -> str | None:
        """Let it tear down what is left and end; return how it failed to, or None."""
        try:
            self._channel.send("end")
            code: int | None = self._process.wait(PATIENCE)
        except (OSError, subprocess.TimeoutExpired):
            code = self._process.poll()
        how = f"did not end within {PATIENCE} seconds" if code is None else _told(code) if code < 0 else None
        self.kill()
        return how

    def kill(self) -> None:
        """End it now."""
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
    """How a process ended, by its exit status."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"


def _shows_output(config: pytest.Config) -> bool:
    """Whether the process shares this one's terminal: where output is not captured, or a debugger is wanted."""
    option = config.option
    return bool(option.capture == "no" or option.usepdb or option.trace)


@contextmanager
def _input_given_back(config: pytest.Config) -> Iterator[None]:
    """Have this process's own standard input in place, which pytest replaces while it captures."""
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    try:
        yield
    finally:
        capture.resume_global_capture()
        capture.suspend_global_capture()  # as it is between the steps of a test


def _basetemp(config: pytest.Config, room: Room) -> str | None:
    """A folder beside the one given for ``tmp_path``, which pytest empties when it starts."""
    given = config.option.basetemp
    return None if given is None else f"{os.path.abspath(given)}-{room.backend}{'-simulated' * room.simulated}"


def _flags() -> list[str]:
    """The interpreter's own options, which the process shares."""
    named = [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items()]
    return [*named, *(f"-W{option}" for option in sys.warnoptions), *["-O"] * sys.flags.optimize]
