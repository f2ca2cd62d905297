"""A pytest plugin for the tests of POT and TensorLy: it selects a framework and a mode, and records each outcome.

The modes are those of `MODES`. Without devshim, this plugin does not import it. POT's source distribution lacks the
``conftest.py`` of its tests, so their fixture ``nx`` and their two decorators are here.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import suite_files

MODES = {
    "without": "devshim is not imported",
    "simulated": "two simulated GPUs exist, and everything is on the CPU",
    "gpu": "what the tests create is on gpu:1, and the project has its own device code",
    "ported": "the same, with the device code of examples/ports",
    "default": "gpu:1 is the default device, and nothing is placed",
    "native": "`devshim run` starts the tests, so that the framework's own names mean simulated GPUs",
}
OWN_NAMES = {
    "pot": {"numpy": "numpy", "torch": "torch", "jax": "jax", "tensorflow": "tf"},
    "tensorly": {
        "numpy": "numpy",
        "torch": "pytorch",
        "jax": "jax",
        "tensorflow": "tensorflow",
        "paddle": "paddle",
    },
}
"""Project -> name of a framework -> the name that the project gives it."""
PACKAGES = {"pot": "ot", "tensorly": "tensorly"}
BETWEEN = {"backend", "testing"}
"""Files and folders of the projects that are never the cause of a failure."""
SKIP = "suite_skip"
CONFIG: list[pytest.Config] = []
"""The configuration of this run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the runner."""
    for name in ("project", "framework", "mode", "outcomes", "right"):
        parser.addoption(f"--suite-{name}")
    parser.addoption("--suite-each", type=int)


def pytest_configure(config: pytest.Config) -> None:
    """Simulate GPUs and change the project's backends, as the mode asks, before the tests are imported."""
    config.addinivalue_line("markers", f"{SKIP}(names, values, reason, getter): skip these values of parameters")
    pytest.skip_arg, pytest.skip_backend = skip_arg, skip_backend  # type: ignore[attr-defined]
    project, framework, mode = (config.getoption(f"--suite-{name}") for name in ("project", "framework", "mode"))
    CONFIG[:] = [config]
    if mode not in ("without", "native"):
        import devshim as ds

        ds.use(framework)
        ds.simulate(gpus=2)
        if mode == "default":
            ds.set_device("gpu:1")
    if framework == "tensorflow":
        from tensorflow.python.ops.numpy_ops import np_config

        np_config.enable_numpy_behavior()
    if mode in ("gpu", "ported"):
        import suite_inputs

        suite_inputs.install(project, OWN_NAMES[project][framework], ported=mode == "ported")


# ---------------------------------------------------------------------- what POT's own conftest.py has
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of POT that takes ``nx`` with the backend of this framework."""
    if "nx" in metafunc.fixturenames and metafunc.config.getoption("--suite-project") == "pot":
        from ot.backend import get_backend_list

        name = OWN_NAMES["pot"][metafunc.config.getoption("--suite-framework")]
        backends = [each for each in get_backend_list() if str(each) == name]
        if metafunc.config.getoption("--suite-mode") in ("gpu", "ported"):
            import suite_inputs

            backends = [suite_inputs.with_inputs_on_gpu(each) for each in backends]
        metafunc.parametrize("nx", backends, ids=str)


def skip_arg(names: Any, values: Any, reason: str = "", getter: Callable[[Any], Any] = lambda x: x) -> Any:
    """Return a decorator that skips a test if these parameters have these values."""
    if isinstance(names, str):
        names, values = (names,), (values,)
    return getattr(pytest.mark, SKIP)(names, values, reason, getter)


def skip_backend(name: str, reason: str = "") -> Any:
    """Return a decorator that skips a test on a backend."""
    return skip_arg("nx", name, reason, str)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the tests that the two decorators name."""
    for mark in item.iter_markers(SKIP):
        names, values, reason, getter = mark.args
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if all(name in params and getter(params[name]) == value for name, value in zip(names, values, strict=True)):
            pytest.skip(reason)


# ---------------------------------------------------------------------- selection and records
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out POT's tests that do not concern the framework; NumPy has all tests that name no other."""
    framework, mode = config.getoption("--suite-framework"), config.getoption("--suite-mode")
    path = Path(config.getoption("--suite-outcomes"))
    ran = {entry.get("test") for entry in suite_files.read(path)}  # in a process that died
    kept = items
    if config.getoption("--suite-project") == "pot":
        kept = [each for each in kept if concerns(each, framework, only_nx=mode in ("gpu", "ported"))]
    if mode != "without":
        right = set(json.loads(Path(config.getoption("--suite-right")).read_text(encoding="utf-8")))
        kept = [each for each in kept if each.nodeid in right]
    kept = some_of_each(kept, config.getoption("--suite-each"))
    kept = [each for each in kept if each.nodeid not in ran]
    items[:] = kept


def pytest_runtest_logstart(nodeid: str) -> None:
    """Record that a test starts, in case the process dies of it."""
    write(CONFIG[0], {"start": nodeid})


def some_of_each(items: list[Any], count: int) -> list[Any]:
    """Return at most this many of the parameter sets of each test function, evenly spaced, in test order."""
    grouped: dict[str, list[Any]] = {}
    for item in items:
        grouped.setdefault(item.nodeid.split("[")[0], []).append(item)
    kept = []
    for group in grouped.values():
        size = min(count, len(group))
        kept += [group[i * len(group) // size] for i in range(size)]
    return kept


def concerns(item: Any, framework: str, only_nx: bool) -> bool:
    """Return True if a test of POT takes a backend, or if its source names the framework."""
    if "nx" in getattr(item, "fixturenames", ()):
        return True
    if only_nx:
        return False
    source = inspect.getsource(item.function)
    named = {each for each, own in OWN_NAMES["pot"].items() if f"{own}." in source and each != "numpy"}
    return framework in named or (framework == "numpy" and not named)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Record the outcome of a test, and where it failed."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        entry = {"test": item.nodeid, "when": report.when, "outcome": report.outcome}
        if report.failed and call.excinfo is not None:
            entry |= cause(call.excinfo, PACKAGES[item.config.getoption("--suite-project")])
        write(item.config, entry)
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record a file that cannot be imported."""
    if report.failed:
        write(
            CONFIG[0],
            {"test": report.nodeid, "outcome": "failed", "error": "ImportError", "text": "", "site": "", "in": "test"},
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the last record of a run."""
    if session.config.getoption("--suite-mode") == "without" and "devshim" in sys.modules:
        raise AssertionError("devshim was imported in the run without it")
    write(session.config, {"done": session.testscollected})


def write(config: pytest.Config, entry: dict[str, Any]) -> None:
    """Append an entry to the file of outcomes."""
    suite_files.append(Path(config.getoption("--suite-outcomes")), entry)


def cause(excinfo: pytest.ExceptionInfo[BaseException], package: str) -> dict[str, str]:
    """Return the type and first line of an error, and the innermost line of the project or its tests.

    The project's backends, and its assertions, are left out: the line that calls them is of interest.
    """
    text = (str(excinfo.value).strip().splitlines() or [""])[0]
    found = {"error": excinfo.typename, "text": text[:160], "site": "", "in": "test"}
    for entry in reversed(excinfo.traceback):
        path = Path(str(entry.path))
        is_test = path.name.startswith("test_")
        if is_test or (package in path.parts and not BETWEEN & {path.stem, path.parent.name}):
            parts = path.parts[-2:] if is_test else path.parts[path.parts.index(package) :]
            found["site"] = f"{'/'.join(parts)}:{entry.lineno + 1} {entry.name}"
            found["in"] = "test" if is_test else "project"
            break
    return found
