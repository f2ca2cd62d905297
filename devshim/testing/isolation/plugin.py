"""The main process's side of isolation: a plugin that sends each backend's tests to that backend's process.

It reports the outcomes that the process sends back.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from devshim.testing.isolation.process import Died, Process, Room
from devshim.testing.isolation.reports import Reported

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GPUS", "ROOM", "Isolation"]

ROOM = pytest.StashKey[tuple[Room, str]]()
"""On an item: the `Room` of its process, and its name before other plugins add to it."""
GPUS = pytest.StashKey[int]()
"""On an item: how many simulated GPUs it is known to need."""
_SPARE = 8
"""The number of simulated GPUs that every process provides, for tests that request them while they run."""


class Isolation:
    """The plugin that runs isolated tests; it is registered only if there are some."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._config = session.config
        self._processes: dict[Room, Process] = {}
        self._hopeless: dict[Room, str] = {}
        self._successors: dict[pytest.Item, str | None] = {}
        self._notes: list[str] = []

    # ------------------------------------------------------------------ pytest's hooks
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a test in the process of its `Room`."""
        if ROOM not in item.stash:
            return None
        reported, hook = Reported(item), item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        self._run(item, self._following(item, nextitem), reported)
        # Tear down the fixtures that earlier tests have set up in this process and the next one does not need. pytest
        # has no other name for this half of a test's teardown.
        reported.torn_down(lambda: item.session._setupstate.teardown_exact(nextitem))
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> bool | None:
        """Leave a test's timeout (pytest-timeout) to its own process, which can report what it was doing."""
        return True if ROOM in item.stash else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End the remaining processes."""
        for room in list(self._processes):
            self._end(room)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Report the processes that did not end normally."""
        for note in self._notes:
            terminalreporter.write_line(f"devshim: {note}", yellow=True)

    # ------------------------------------------------------------------ one test
    def _run(self, item: pytest.Item, following: str | None, reported: Reported) -> None:
        room, name = item.stash[ROOM]
        try:
            process = self._process(room, reported)
            if process is None:
                reported.failed(self._hopeless[room])
            elif name not in process.found:
                reported.failed("\n".join([f"The process of {room} does not find this test.", *process.problems]))
            else:
                self._follow(process.run(name, following), reported)
        except Died as death:
            self._processes.pop(room, None)
            reported.failed(f"The process of {room} {death.how} while it ran {item.nodeid}.", death.output)
        except pytest.exit.Exception:
            raise
        except BaseException:  # Ctrl-C, and anything that other plugins raise while this process waits
            self._kill(room)
            raise
        if following is None and not _is_shared(self._config):
            self._end(room)

    def _process(self, room: Room, reported: Reported) -> Process | None:
        """Return the process of a `Room`, started if necessary; None if it cannot be started."""
        if room in self._processes or room in self._hopeless:
            return self._processes.get(room)
        items = [item for item in self._session.items if _room(item) == room]
        gpus = max(_SPARE, *(item.stash.get(GPUS, 0) for item in items))
        try:
            process = Process(self._config, room, [item.stash[ROOM][1] for item in items], gpus)
            self._processes[room] = process
            self._follow(process.begin(), reported)
        except Died as death:
            self._processes.pop(room, None)
            self._hopeless[room] = f"The process of {room} {death.how} before it ran a test.\n\n{death.output}".rstrip()
        return self._processes.get(room)

    def _follow(self, messages: Iterator[tuple[Any, ...]], reported: Reported) -> None:
        """Handle the messages of a process."""
        for kind, *content in messages:
            if kind == "report":
                reported.passed_on(content[0])
            elif kind == "warning":
                self._warn(*content)
            elif kind == "done" and content[0]:
                self._session.shouldstop = content[0]
            elif kind == "exit":
                pytest.exit(*content)

    def _warn(self, kind: tuple[str, str], place: tuple[str, int], rest: tuple[str, str, Any]) -> None:
        """Record a warning with a new class of the same name: the original class may not be importable here."""
        module, _, name = kind[0].rpartition(".")
        category = type(name, (Warning,), {"__module__": module})
        message = warnings.WarningMessage(category(kind[1]), category, *place)
        when, nodeid, location = rest
        self._config.hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
        )

    # ------------------------------------------------------------------ which test comes next
    def _following(self, item: pytest.Item, nextitem: pytest.Item | None) -> str | None:
        """Return the name of the next test of the same `Room`: its process keeps the fixtures that both need."""
        if nextitem is None:
            return None
        if _is_shared(self._config):  # a worker does not know yet which tests come after the next one
            return nextitem.stash[ROOM][1] if _room(nextitem) == _room(item) else None
        if not self._successors:
            last: dict[Room | None, str | None] = {}
            for each in reversed(self._session.items):
                self._successors[each] = last.get(_room(each))
                last[_room(each)] = each.stash.get(ROOM, (None, None))[1]
        return self._successors[item]

    # ------------------------------------------------------------------ the end of a process
    def _end(self, room: Room) -> None:
        process = self._processes.pop(room, None)
        how = None if process is None else process.end()
        if how is not None:
            self._notes.append(f"the process of {room} {how} after its last test")

    def _kill(self, room: Room) -> None:
        process = self._processes.pop(room, None)
        if process is not None:
            process.kill()


def _room(item: pytest.Item) -> Room | None:
    return item.stash[ROOM][0] if ROOM in item.stash else None


def _is_shared(config: pytest.Config) -> bool:
    """Return True in a worker of pytest-xdist, which receives its tests a few at a time."""
    return hasattr(config, "workerinput")
