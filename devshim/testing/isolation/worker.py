"""The process that runs one backend's tests: pytest with the run's own arguments, which runs the tests it is sent.

Nothing is selected here: the main process has already applied `-k`, `-m`, `--lf` and similar options, and sends the
names of the tests. No file is written here either: reports go to the main process, which writes the requested ones.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devshim import use
from devshim.testing.isolation import protocol

if TYPE_CHECKING:
    import warnings
    from collections.abc import Generator
    from typing import TextIO

__all__ = ["NAME", "main"]

NAME = "devshim-child"
"""The name under which `Child` is registered."""

_OPTIONS_OF_THE_MAIN_PROCESS: dict[str, Any] = {
    "keyword": "",
    "markexpr": "",
    "deselect": None,
    "maxfail": 0,
    "xmlpath": None,
    "no_header": True,
    "no_summary": True,
    **dict.fromkeys(("lf", "failedfirst", "newfirst", "stepwise", "stepwise_skip"), False),
    "numprocesses": None,
    "maxprocesses": None,
    "dist": "no",
    "tx": [],
}
"""Options that only the main process uses: pytest's own, and those of pytest-xdist."""


class Child:
    """The plugin that makes pytest run the tests that the other end of the channel requests."""

    __name__ = NAME  # pytest registers it by this name, and `devshim.pytest_plugin` detects it by it

    def __init__(self, connection: Connection, backend: str, wanted: list[str], basetemp: str | None) -> None:
        self._connection = connection
        self._backend = backend
        self._wanted = wanted
        self._basetemp = basetemp
        self._config: pytest.Config
        self._stdout: TextIO
        self._files: set[Path] = set()
        self._collection_errors: list[str] = []

    # ------------------------------------------------------------------ like the run, except for its own decisions
    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Generator[None, pytest.Config, pytest.Config]:
        """Take the run's options, except those that only the main process uses."""
        config = yield
        for name, value in _OPTIONS_OF_THE_MAIN_PROCESS.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        config.option.devshim_backends = [self._backend]
        if self._basetemp is not None:
            config.option.basetemp = self._basetemp
        return config

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Store the test files, and silence the terminal reporter, which is created next: the main process reports."""
        self._config = config
        self._files = {config.rootpath / name.partition("::")[0] for name in self._wanted}
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until pytest has finished
        config.add_cleanup(nowhere.close)
        self._stdout, sys.stdout = sys.stdout, nowhere

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Restore standard output: every plugin is configured."""
        sys.stdout = self._stdout

    # ------------------------------------------------------------------ which tests
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Import only files that contain a test of this process."""
        return True if collection_path.is_file() and collection_path not in self._files else None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Store why something could not be collected."""
        if report.failed:
            self._collection_errors.append(report.longreprtext)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """Keep the requested tests in the requested order, even if other plugins would remove them."""
        found = {item.nodeid: item for item in items}
        yield
        items[:] = [found[name] for name in self._wanted if name in found]

    # ------------------------------------------------------------------ running them
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests that the other end names, until it sends the end."""
        items = {item.nodeid: item for item in session.items}
        protocol.send(self._connection, "ready", list(items), self._collection_errors)
        while True:
            message = protocol.receive(self._connection)
            if message is None or message[0] == "end":
                return True
            _, name, following = message
            session.config.hook.pytest_runtest_protocol(item=items[name], nextitem=items.get(following))
            protocol.send(self._connection, "done", session.shouldstop)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report to the main process."""
        to_plain = self._config.hook.pytest_report_to_serializable
        protocol.send(self._connection, "report", to_plain(config=self._config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        """Send a warning to the main process."""
        kind = warning_message.category
        protocol.send(
            self._connection,
            "warning",
            (f"{kind.__module__}.{kind.__qualname__}", str(warning_message.message)),
            (warning_message.filename, warning_message.lineno),
            (when, nodeid, location),
        )

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Report that a test ends the run (`pytest.exit`).

        After Ctrl-C the other end already knows, and may be closed.
        """
        if isinstance(excinfo.value, pytest.exit.Exception):
            protocol.send(self._connection, "exit", excinfo.value.msg, excinfo.value.returncode)

    def pytest_internalerror(self, excrepr: object) -> None:
        """Report an error in pytest itself, or in a plugin."""
        protocol.send(self._connection, "error", str(excrepr))


def main(descriptor: int) -> None:
    """Run as the child of a run; ``descriptor`` is this process's end of the channel."""
    os.set_inheritable(descriptor, False)  # processes that a test starts must not keep the channel open
    connection = Connection(descriptor)
    message = protocol.receive(connection)
    assert message is not None
    arguments, plugins, backend, *rest = message
    use(backend)  # from here on, any import of the framework gets its simulated GPUs before it starts
    child = Child(connection, backend, *rest)
    sys.exit(pytest.main(_with_filter(arguments), plugins=[*plugins, child]))


def _with_filter(arguments: list[str]) -> list[str]:
    """Return the run's arguments, plus a filter for the warning that devshim was imported before pytest."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    filtered = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
    return [*arguments[:at], "-W", filtered, *arguments[at:]]
