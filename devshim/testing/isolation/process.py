"""One backend's process as the main process sees it: started, sent one test after another, and ended.

The main process waits at the same time for a message, for the process's death and for its own reason to stop. pytest
captures what tests print; anything else that the process prints goes to a file, whose end is reported if the process
dies.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any

from devshim.registry import processes, simulation_request
from devshim.testing.isolation import protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

__all__ = ["IsolationGroup", "Process", "ProcessDied"]

PATIENCE = 60
"""The seconds that a process may take to end once it has nothing to do."""
_POLL_SECONDS = 0.5
_OUTPUT_CHARACTERS = 6000

_PROGRAM = "import sys; sys.path[:] = {path!r}; from devshim.testing.isolation.worker import main; main({descriptor})"


@dataclass(frozen=True)
class IsolationGroup:
    """The tests that one process runs.

    Attributes:
        backend: The backend whose tests it runs.
        simulated: True for tests on simulated GPUs, which have a separate process that hides real GPUs.
    """

    backend: str
    simulated: bool

    def __str__(self) -> str:
        return f"{self.backend} with simulated GPUs" if self.simulated else self.backend

    def environment(self, gpus: int, *, native_names: bool = False) -> dict[str, str]:
        """Return the environment variables of the process, with this many simulated GPUs.

        With native names, the process hides them if the variable does so here.
        """
        found = {**os.environ, "DEVSHIM_BACKEND": self.backend}
        if self.simulated:
            # Set from the start: Paddle and TensorFlow must know it before they are imported or started.
            all_hidden = native_names and not simulation_request.visible_count(gpus)
            found |= {"DEVSHIM_SIMULATE_GPUS": str(gpus), "CUDA_VISIBLE_DEVICES": "-1" if all_hidden else ""}
        return found


class ProcessDied(Exception):
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
    """A process that runs the tests of a `IsolationGroup`.

    Args:
        config: The configuration of the run.
        group: Which tests the process runs.
        wanted: The tests that it will be asked to run.
        gpus: How many simulated GPUs it provides.
    """

    def __init__(self, config: pytest.Config, group: IsolationGroup, wanted: Sequence[str], gpus: int) -> None:
        self.group = group
        self.found: frozenset[str] = frozenset()
        self.problems: list[str] = []
        self._output = None if _shows_output(config) else tempfile.TemporaryFile()  # noqa: SIM115  # until `end`
        self._connection, its = Pipe()
        with its, _real_standard_input(config) if self._output is None else nullcontext():
            program = _PROGRAM.format(path=sys.path, descriptor=its.fileno())
            self._process = subprocess.Popen(
                [sys.executable, *processes.interpreter_options(), "-c", program],
                stdin=None if self._output is None else subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                cwd=config.invocation_params.dir,
                env=group.environment(gpus, native_names=config.getoption("devshim_native_names")),
                pass_fds=[its.fileno()],
            )
        invoked = config.invocation_params
        arguments = [os.fspath(word) for word in invoked.args]
        named = [plugin for plugin in invoked.plugins or () if isinstance(plugin, str)]
        try:
            protocol.send(self._connection, arguments, named, group.backend, list(wanted), _basetemp(config, group))
        except OSError:
            raise self._process_died() from None

    def messages(self) -> Iterator[tuple[Any, ...]]:
        """Yield the process's messages until it has finished its task; raises `ProcessDied`."""
        while True:
            try:
                message = protocol.receive(self._connection, _POLL_SECONDS)
            except EOFError:
                raise self._process_died() from None
            if message is None:
                # A process that a test has started may keep the channel open after the death of this one.
                if self._process.poll() is not None:
                    raise self._process_died()
                continue
            yield message
            if message[0] in ("ready", "done"):
                return

    def begin(self) -> Iterator[tuple[Any, ...]]:
        """Yield its messages while it collects tests; raises `ProcessDied`."""
        for message in self.messages():
            if message[0] == "ready":
                self.found, self.problems = frozenset(message[1]), message[2]
            else:
                yield message

    def run(self, name: str, following: str | None) -> Iterator[tuple[Any, ...]]:
        """Yield its messages while it runs a test, given the name of the next one; raises `ProcessDied`."""
        try:
            protocol.send(self._connection, "run", name, following)
        except OSError:
            raise self._process_died() from None
        yield from self.messages()

    def end(self) -> str | None:
        """Let it run the remaining teardown and end; return how it failed to end, or None."""
        try:
            protocol.send(self._connection, "end")
            code: int | None = self._process.wait(PATIENCE)
        except (OSError, subprocess.TimeoutExpired):
            code = self._process.poll()
        how = (
            f"did not end within {PATIENCE} seconds"
            if code is None
            else processes.describe_exit(code)
            if code < 0
            else None
        )
        self.kill()
        return how

    def kill(self) -> None:
        """Kill it."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._connection.close()
        if self._output is not None:
            self._output.close()

    def _process_died(self) -> ProcessDied:
        try:
            code: int | None = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        how = "closed its channel, and goes on" if code is None else processes.describe_exit(code)
        output = self._read_output()
        self.kill()
        return ProcessDied(how, output)

    def _read_output(self) -> str:
        if self._output is None:
            return ""
        self._output.seek(max(self._output.seek(0, os.SEEK_END) - _OUTPUT_CHARACTERS, 0))
        return self._output.read().decode(errors="replace")


def _shows_output(config: pytest.Config) -> bool:
    """Return True if the process shares this one's terminal: output is not captured, or a debugger is requested."""
    option = config.option
    return bool(option.capture == "no" or option.usepdb or option.trace)


@contextmanager
def _real_standard_input(config: pytest.Config) -> Iterator[None]:
    """Restore this process's own standard input, which pytest replaces during capture, for the block."""
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    try:
        yield
    finally:
        capture.resume_global_capture()
        capture.suspend_global_capture()  # the state between the steps of a test


def _basetemp(config: pytest.Config, group: IsolationGroup) -> str | None:
    """Return a folder beside the one given for ``tmp_path``, which pytest empties when it starts."""
    given = config.option.basetemp
    return None if given is None else f"{os.path.abspath(given)}-{group.backend}{'-simulated' * group.simulated}"
