"""A pytest plugin for GPUs that do not exist: it lists ``gpu``-marked tests that may fail because kernels do not run.

``-p needs_kernels`` reads ``needs_kernels.txt``, which lists such tests by name: with all its parameters, or with some.
A listed test must launch a kernel. Then it may fail; it passes if memory that no kernel has written happens to contain
the expected values. A listed test that launches no kernel, or no longer exists, fails the session, as do all failures
that are not listed.

``--write-needs-kernels`` adds the failing tests that have launched a kernel to the list: run it with one GPU and with
four, then check what was added, and why it fails.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).with_suffix(".txt")
HEADER = "# Written by pytest -p needs_kernels --write-needs-kernels: see needs_kernels.py.\n"
REASON = "kernels compute nothing on GPUs that do not exist"
STALE = f"{LIST.name} lists this test, but it launched no kernel: remove it there, or fix what failed before the kernel"


def kernels() -> int:
    """Return how many kernels this process has launched, including calls of cuBLAS and the others."""
    library = ctypes.CDLL("libcudart.so.13")
    library.fake_cuda_counts.restype = ctypes.c_char_p
    counts = json.loads(library.fake_cuda_counts())
    return int(counts.get("kernel", 0) + counts.get("library", 0))


def name_of(test: str, listed: Iterable[str]) -> str | None:
    """Return the entry that lists a test: its own, or one for all of its parameters."""
    return next((name for name in (test, test.partition("[")[0]) if name in listed), None)


class KernelList:
    """The content of the list, and the outcomes of its tests."""

    def __init__(self, write: bool) -> None:
        self.write = write
        lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
        self.names = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
        self.collected: set[str] = set()
        self.failed: set[str] = set()
        self.launched = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        self.collected = {item.nodeid for item in items}
        missing = self.names - {name_of(test, self.names) for test in self.collected}
        if missing and not config.option.keyword and not self.write:
            raise pytest.UsageError(f"{LIST.name} lists tests that do not exist: {', '.join(sorted(missing))}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        before = kernels()
        try:
            return (yield)
        finally:
            self.launched = kernels() - before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "call" and not report.skipped:
            self.judge(report)
        return report

    def judge(self, report: Any) -> None:
        """Change the report of a listed test; note a failure that should be listed."""
        if self.write and report.failed and self.launched:
            self.failed.add(report.nodeid)
        if self.write or name_of(report.nodeid, self.names) is None:
            return
        if self.launched and report.failed:
            report.outcome, report.wasxfail = "skipped", REASON
        elif not self.launched and report.passed:
            report.outcome, report.longrepr = "failed", STALE

    def pytest_sessionfinish(self) -> None:
        if self.write:
            LIST.write_text(HEADER + "".join(f"{line}\n" for line in sorted(self.lines())), encoding="utf-8")

    def lines(self) -> set[str]:
        """Return the list with the failures added, and one line for a test if all of its parameters are in it."""
        tests = {test for test in self.collected if name_of(test, self.names) is not None} | self.failed
        rest = {test.partition("[")[0] for test in self.collected - tests}
        return {test if test.partition("[")[0] in rest else test.partition("[")[0] for test in tests}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--write-needs-kernels``."""
    parser.addoption("--write-needs-kernels", action="store_true", help="write tests/fake_cuda/needs_kernels.txt")


def pytest_configure(config: pytest.Config) -> None:
    """Read the list."""
    config.pluginmanager.register(KernelList(config.getoption("--write-needs-kernels")), "needs-kernels-list")
