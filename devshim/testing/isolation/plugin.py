"""The main process's side of isolation: a plugin that sends each backend's tests to that backend's process.

It reports the outcomes that the process sends back.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from devshim.testing.isolation.process import IsolationGroup, Process, ProcessDied
from devshim.testing.isolation.reports import ForwardedReports

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GPUS", "GROUP", "Isolation"]

GROUP = pytest.StashKey[tuple[IsolationGroup, str]]()
"""On an item: the `IsolationGroup` of its process, and its name before other plugins add to it."""
GPUS = pytest.StashKey[int]()
"""On an item: how many simulated GPUs it is known to need."""
_SPARE = 8
"""The number of simulated GPUs that every process provides, for tests that request them while they run."""


class Isolation:
    """The plugin that runs isolated tests; it is registered only if there are some."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._config = session.config
        self._processes: dict[IsolationGroup, Process] = {}
        self._unstartable: dict[IsolationGroup, str] = {}
        self._successors: dict[pytest.Item, str | None] = {}
        self._notes: list[str] = []

    # ------------------------------------------------------------------ pytest's hooks
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a test in the process of its `IsolationGroup`."""
        if GROUP not in item.stash:
            return None
        reports, hook = ForwardedReports(item), item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        self._run(item, self._following(item, nextitem), reports)
        # Tear down the fixtures that earlier tests have set up in this process and the next one does not need. pytest
        # has no other name for this half of a test's teardown.
        reports.tear_down(lambda: item.session._setupstate.teardown_exact(nextitem))
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item) -> bool | None:
        """Leave a test's timeout (pytest-timeout) to its own process, which can report what it was doing."""
        return True if GROUP in item.stash else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End the remaining processes."""
        for group in list(self._processes):
            self._end(group)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Report the processes that did not end normally."""
        for note in self._notes:
            terminalreporter.write_line(f"devshim: {note}", yellow=True)

    # ------------------------------------------------------------------ one test
    def _run(self, item: pytest.Item, following: str | None, reports: ForwardedReports) -> None:
        group, name = item.stash[GROUP]
        try:
            process = self._process(group, reports)
            if process is None:
                reports.fail(self._unstartable[group])
            elif name not in process.found:
                reports.fail("\n".join([f"The process of {group} does not find this test.", *process.problems]))
            else:
                self._follow(process.run(name, following), reports)
        except ProcessDied as death:
            self._processes.pop(group, None)
            reports.fail(f"The process of {group} {death.how} while it ran {item.nodeid}.", death.output)
        except pytest.exit.Exception:
            raise
        except BaseException:  # Ctrl-C, and anything that other plugins raise while this process waits
            self._kill(group)
            raise
        if following is None and not _is_shared(self._config):
            self._end(group)

    def _process(self, group: IsolationGroup, reports: ForwardedReports) -> Process | None:
        """Return the process of a `IsolationGroup`, started if necessary; None if it cannot be started."""
        if group in self._processes or group in self._unstartable:
            return self._processes.get(group)
        items = [item for item in self._session.items if _group_of(item) == group]
        gpus = max(_SPARE, *(item.stash.get(GPUS, 0) for item in items))
        try:
            process = Process(self._config, group, [item.stash[GROUP][1] for item in items], gpus)
            self._processes[group] = process
            self._follow(process.begin(), reports)
        except ProcessDied as death:
            self._processes.pop(group, None)
            self._unstartable[group] = (
                f"The process of {group} {death.how} before it ran a test.\n\n{death.output}".rstrip()
            )
        return self._processes.get(group)

    def _follow(self, messages: Iterator[tuple[Any, ...]], reports: ForwardedReports) -> None:
        """Handle the messages of a process."""
        for kind, *content in messages:
            if kind == "report":
                reports.forward(content[0])
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
        """Return the name of the next test of the same group: its process keeps the fixtures that both need."""
        if nextitem is None:
            return None
        if _is_shared(self._config):  # a worker does not know yet which tests come after the next one
            return nextitem.stash[GROUP][1] if _group_of(nextitem) == _group_of(item) else None
        if not self._successors:
            last: dict[IsolationGroup | None, str | None] = {}
            for each in reversed(self._session.items):
                self._successors[each] = last.get(_group_of(each))
                last[_group_of(each)] = each.stash.get(GROUP, (None, None))[1]
        return self._successors[item]

    # ------------------------------------------------------------------ the end of a process
    def _end(self, group: IsolationGroup) -> None:
        process = self._processes.pop(group, None)
        how = None if process is None else process.end()
        if how is not None:
            self._notes.append(f"the process of {group} {how} after its last test")

    def _kill(self, group: IsolationGroup) -> None:
        process = self._processes.pop(group, None)
        if process is not None:
            process.kill()


def _group_of(item: pytest.Item) -> IsolationGroup | None:
    return item.stash[GROUP][0] if GROUP in item.stash else None


def _is_shared(config: pytest.Config) -> bool:
    """Return True in a worker of pytest-xdist, which receives its tests a few at a time."""
    return hasattr(config, "workerinput")
