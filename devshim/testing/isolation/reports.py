"""The reports of one isolated test: those that its process sends, and those made here if the process dies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ForwardedReports"]

_AFTER: dict[str | None, Literal["setup", "call", "teardown"]] = {None: "setup", "setup": "call"}


class ForwardedReports:
    """The reports of a test, passed on to the run's own hooks.

    Args:
        item: The test's item in this run.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._reached: str | None = None

    def forward(self, content: dict[str, Any]) -> None:
        """Report what the test's process has reported."""
        config = self._item.config
        report: pytest.TestReport = config.hook.pytest_report_from_serializable(config=config, data=content)
        report.nodeid = self._item.nodeid  # other plugins may have added to it: pytest-xdist does, to group tests
        self._reached = report.when
        self._item.ihook.pytest_runtest_logreport(report=report)

    def fail(self, why: str, output: str = "") -> None:
        """Report that the test has failed in the phase that it had reached."""
        report = pytest.TestReport(
            nodeid=self._item.nodeid,
            location=self._item.location,
            keywords=dict.fromkeys(self._item.keywords, 1),
            outcome="failed",
            longrepr=why,
            when=_AFTER.get(self._reached, "teardown"),
            sections=[("Output of the process", output)] if output.strip() else [],
        )
        self._item.ihook.pytest_runtest_logreport(report=report)

    def tear_down(self, teardown: Callable[[], None]) -> None:
        """Tear down what other tests have left in this process, and report a failure of that."""
        call = pytest.CallInfo.from_call(teardown, "teardown", reraise=pytest.exit.Exception)
        if call.excinfo is not None:
            hook = self._item.ihook
            hook.pytest_runtest_logreport(report=hook.pytest_runtest_makereport(item=self._item, call=call))
