"""The pytest plugin that measures one framework in one process, prints each result with its target, and records it.

``pytest benchmarks --bench=torch``; the environment ``mxnet1`` or ``mxnet2`` says which MXNet is installed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.record import Record, facts, read, write
from benchmarks.session import Session
from benchmarks.table import show

ENVIRONMENT = pytest.StashKey[str]()
SESSION = pytest.StashKey[Session]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("bench", "devshim's benchmarks")
    group.addoption("--bench", default="numpy", metavar="ENVIRONMENT", help="the framework that is measured")
    group.addoption("--bench-rounds", type=int, default=41, metavar="N", help="turns of each comparison (default: 41)")
    group.addoption("--bench-json", type=Path, metavar="FILE", help="where the results go")
    group.addoption(
        "--bench-simulated",
        action="store_true",
        help="only what needs a second device, on simulated cards",
    )
    group.addoption("--bench-add", action="store_true", help="add the results to those in FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the framework before anything is imported."""
    config.addinivalue_line("markers", "simulated: needs a second device, and measures a simulated one")
    config.addinivalue_line("filterwarnings", "default")  # warnings of other libraries are not errors here
    for name in [name for name in os.environ if name.startswith("DEVSHIM_")]:
        del os.environ[name]
    if config.getoption("--bench-simulated"):
        os.environ["DEVSHIM_SIMULATE_GPUS"] = "2"
    config.stash[ENVIRONMENT] = config.getoption("--bench")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select or deselect the benchmarks of simulated GPUs, which run in their own process."""
    wanted = bool(config.getoption("--bench-simulated"))
    out = [item for item in items if (item.get_closest_marker("simulated") is not None) != wanted]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in set(out)]


@pytest.fixture(scope="session")
def session(request: pytest.FixtureRequest) -> Session:
    """Return the framework, its peers and their results so far."""
    found = Session(request.config.stash[ENVIRONMENT], request.config.getoption("--bench-rounds"))
    request.config.stash[SESSION] = found
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table of targets, and write the record."""
    session = config.stash.get(SESSION, None)
    if session is None:
        return
    record = session.record
    record.facts = facts()
    terminalreporter.write_line(show([record]))
    path: Path | None = config.getoption("--bench-json")
    if path is not None:
        if config.getoption("--bench-add") and path.exists():
            (earlier,) = read(path)
            record = Record(**{**vars(earlier), "rows": [*earlier.rows, *record.rows]})
        write([record], path)
