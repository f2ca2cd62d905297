"""A pytest plugin that writes the outcome of each test in the form of `native_record`, one in a line.

A test that fails with a `ds.UnsupportedError`, anywhere in the chain of its errors or in the text of a child process,
is not simulated. So is a test that is skipped because simulated GPUs lack something that every real one has: `LACKING`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import suite_files

LACKING = re.compile(r"(?i)magma|cudnn|cusolver|cublas|cusparse|cuda graph|triton|requires cuda|no cuda|nvrtc")
"""Pattern of the reasons of skips that a real GPU would not skip."""
REFUSED = "UnsupportedError"
CONFIG: list[pytest.Config] = []
"""The configuration of this run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the runner."""
    parser.addoption("--native-outcomes", help="the file to which the outcomes are added")
    parser.addoption("--native-part", default="1/1", help="run only this part of the tests, such as 2/3")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the configuration."""
    CONFIG[:] = [config]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other parts, and those that ran in a process that died."""
    part, parts = map(int, config.getoption("--native-part").split("/"))
    ran = {entry.get("test") for entry in suite_files.read(outcomes_file(config))}
    items[:] = [each for each in items[part - 1 :: parts] if each.nodeid not in ran]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Record that a test starts, in case the process dies of it."""
    write(CONFIG[0], {"start": nodeid})


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Record the outcome of a test."""
    report: Any = yield
    if report.when == "call" or report.outcome != "passed":
        write(item.config, {"test": item.nodeid, **outcome(report, call)})
    return report


def outcome(report: Any, call: Any) -> dict[str, str]:
    """Return the outcome of a phase of a test, and its cause."""
    if report.passed or call.excinfo is None:
        return {"outcome": "passed", "cause": ""}
    if report.skipped:
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else call.excinfo.value)
        reason = reason.removeprefix("Skipped: ")
        return {"outcome": "not simulated" if LACKING.search(reason) else "skipped", "cause": reason}
    error = call.excinfo.value
    named = next((each for each in chain(error) if type(each).__name__.endswith(REFUSED)), None)
    text = f"{type(named or error).__name__}: {str(named or error).strip()}"
    refused = named is not None or f"{REFUSED}:" in text
    return {"outcome": "not simulated" if refused else "failed", "cause": text}


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that it was raised from or while handling."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record a file that cannot be imported."""
    if report.failed:
        write(CONFIG[0], {"test": report.nodeid, "outcome": "failed", "cause": str(report.longrepr).splitlines()[-1]})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the last record of a run."""
    if "devshim" not in sys.modules:
        raise AssertionError("no GPU was simulated: start pytest with devshim run")
    write(session.config, {"done": session.testscollected})


def outcomes_file(config: pytest.Config) -> Path:
    """Return the file of the outcomes."""
    return Path(config.getoption("--native-outcomes"))


def write(config: pytest.Config, entry: dict[str, Any]) -> None:
    """Append a record to the file of outcomes."""
    suite_files.append(outcomes_file(config), entry)
