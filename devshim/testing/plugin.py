"""The pytest plugin of the kit: it selects the devices and the tests, and counts the outcomes per feature.

Load it with ``-p devshim.testing.plugin``, or with ``pytest_plugins = ["devshim.testing.plugin"]`` in a conftest; it is
not loaded automatically. ``--devshim-gpus=N`` runs on N simulated GPUs, with ``--devshim-native-names`` under the
framework's own names, and ``-m gpu`` on real ones; without them, tests that need a GPU are not collected.
``--devshim-results=FILE`` writes what ran.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from devshim.registry import discovery, registry
from devshim.registry.versions import version_of
from devshim.testing import Conformance
from devshim.testing.base import GAP, HARDWARE, Kit

OUTCOMES = ("passed", "failed", "gap", "hardware")
_REPORT = pytest.StashKey[dict[str, dict[str, dict[str, int]]]]()
_UNASKED = pytest.StashKey[set[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--devshim-gpus``, ``--devshim-stress`` and ``--devshim-results``."""
    group = parser.getgroup("devshim", "devshim's conformance kit")
    group.addoption("--devshim-gpus", type=int, default=None, metavar="N", help="run on N simulated GPUs (0: on none)")
    group.addoption("--devshim-stress", type=float, default=1, metavar="S", help="seconds for tests of many threads")
    group.addoption("--devshim-results", metavar="FILE", help="write what ran, per backend and feature, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks, and request simulated GPUs before any framework is imported."""
    config.addinivalue_line(
        "markers", "feature(*names): the features of devshim.contract.backend.FEATURES a test is about"
    )
    config.addinivalue_line("markers", "hook(*names): hooks the adapter's subclass must write for this test")
    config.addinivalue_line("markers", "cards(n): needs this many simulated GPUs, usually more than two")
    config.addinivalue_line("markers", "fresh: works in its own process, and the same for any --devshim-gpus")
    config.addinivalue_line("markers", "gpu: needs a real GPU")
    if config.getoption("--devshim-results") and getattr(config.option, "numprocesses", None):
        msg = "--devshim-results counts in one process: leave out -n, or the results"
        raise pytest.UsageError(msg)
    config.stash[_REPORT] = {}
    config.stash[_UNASKED] = set[str]()
    asked = config.getoption("--devshim-gpus")
    if asked is not None:
        os.environ["DEVSHIM_SIMULATE_GPUS"] = str(asked)
    if config.getoption("devshim_native_names", False):  # of `devshim.pytest_plugin`
        os.environ["DEVSHIM_SIMULATE_NATIVE_NAMES"] = "1"
    if simulated_gpu_count(config):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # simulated GPUs cannot be used together with real ones


def simulated_gpu_count(config: pytest.Config) -> int:
    """Return the number of simulated GPUs of this run."""
    asked = config.getoption("--devshim-gpus")
    return int(os.environ.get("DEVSHIM_SIMULATE_GPUS") or 0) if asked is None else int(asked)


def _gaps(name: str) -> set[str]:
    try:
        return set(registry.gaps(name))
    except Exception:  # missing or broken: each of its tests reports it
        return set()


# ---------------------------------------------------------------------- selecting devices
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the fixtures of the kit with their devices."""
    if metafunc.cls is None or not issubclass(metafunc.cls, Kit):
        return
    gpus, wrap = simulated_gpu_count(metafunc.config), _plain
    if gpus and "simulate" in _gaps(metafunc.cls.backend):
        gpus, wrap = 0, _gap
    elif not gpus:
        gpus, wrap = 2, _real
    last = f"gpu:{max(gpus - 1, 1 if wrap is _real or wrap is _gap else 0)}"
    every: list[Any] = ["cpu"] if wrap is _gap else ["cpu", *(wrap(f"gpu:{i}") for i in range(gpus))]
    away = [wrap(("cpu", last)), wrap((last, "cpu")), *([wrap(("gpu:0", last))] if gpus > 1 else [])]
    if "optimizer_name" in metafunc.fixturenames:
        del away[1]  # tests of each optimizer move there and back, which covers both directions
    stay = [("cpu", "cpu"), wrap((last, last))]
    for name, params in {
        "device": every,
        "other_device": [wrap(last)],
        "away": away[:1] if wrap is _gap else away,
        "journey": stay[:1] if wrap is _gap else [*stay, *away],
    }.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, params, indirect=True, ids=_id)
    if "optimizer_name" in metafunc.fixturenames:
        metafunc.parametrize("optimizer_name", _optimizers(metafunc.cls))


def _optimizers(cls: type[Kit]) -> list[str]:
    """Return the optimizers of a `Kit` subclass; if its framework is missing, its tests report that."""
    if cls.optimizers is Kit.optimizers or not discovery.is_installed(cls.backend):
        return ["any"]
    registry.load(cls.backend)  # so that its simulated GPUs exist before it starts
    return sorted(cls().optimizers())


def _plain(value: Any) -> Any:
    return value


def _gap(value: Any) -> Any:
    return pytest.param(value, marks=pytest.mark.feature("simulate"))


def _real(value: Any) -> Any:
    return pytest.param(value, marks=pytest.mark.gpu)


def _id(value: Any) -> str:
    return ">".join(value) if isinstance(value, tuple) else str(value)


# ---------------------------------------------------------------------- selecting tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests whose hooks are not written, whose GPUs are not requested, or whose framework is not installed.

    A test whose file was named on the command line stays, even if its framework is not installed.
    """
    out = [item for item in items if _is_left_out(config, item)]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in set(out)]


def _is_left_out(config: pytest.Config, item: pytest.Item) -> bool:
    if item.get_closest_marker("gpu") is not None and "gpu" not in (config.getoption("markexpr") or ""):
        return True
    needed = item.get_closest_marker("cards")
    if needed is not None and simulated_gpu_count(config) < needed.args[0]:
        return True
    cls = getattr(item, "cls", None)
    if cls is None or not issubclass(cls, Kit):
        return False
    if any(getattr(cls, name) is getattr(Kit, name) for mark in item.iter_markers("hook") for name in mark.args):
        return True
    if _is_named(config, item.path) or discovery.is_installed(cls.backend):
        return False
    config.stash[_UNASKED].add(cls.backend)
    return True


def _is_named(config: pytest.Config, path: Path) -> bool:
    """Return True if a test's own file was named on the command line, which requests its framework."""
    return any(arg.partition("::")[0].endswith(path.name) for arg in config.args)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report which frameworks were not tested."""
    names = config.stash[_UNASKED]
    if names:
        terminalreporter.write_line(f"not installed and not named, so not tested: {', '.join(sorted(names))}")


# ---------------------------------------------------------------------- counting outcomes
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip that no declaration explains into a failure, and count outcomes per feature."""
    report = yield
    cls = getattr(item, "cls", None)
    if cls is None or not issubclass(cls, Kit):
        return report
    reason = str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
    if report.skipped and not reason.startswith((GAP, HARDWARE)):
        report.outcome = "failed"
        report.longrepr = f"a skip is a failure where the backend was asked for: {reason}"
    if report.failed or report.skipped or report.when == "call":
        skipped = "gap" if reason.startswith(GAP) else "hardware"
        outcome = skipped if report.skipped else report.outcome
        names = {name for mark in item.iter_markers("feature") for name in mark.args}
        _count(item.config, cls.backend, names, outcome, reason)
    return report


def _count(config: pytest.Config, backend: str, names: Iterable[str], outcome: str, reason: str) -> None:
    counted = config.stash[_REPORT].setdefault(backend, {})
    for name in names:
        if outcome == "gap" and not reason.startswith(f"{GAP}{name} "):
            continue  # the gap belongs to another feature
        counted.setdefault(name, dict.fromkeys(OUTCOMES, 0))[outcome] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the results."""
    target = session.config.getoption("--devshim-results")
    if not target:
        return
    found = [
        {
            "backend": backend,
            "version": version_of(backend),
            "devices": _devices(session.config, backend),
            "features": {name: {key: n for key, n in features[name].items() if n} for name in sorted(features)},
        }
        for backend, features in sorted(session.config.stash[_REPORT].items())
    ]
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _devices(config: pytest.Config, backend: str) -> str:
    if simulated_gpu_count(config) and "simulate" not in _gaps(backend):
        return f"{simulated_gpu_count(config)} simulated GPUs"
    return "real GPUs" if "gpu" in (config.getoption("markexpr") or "") else "CPU"


__all__ = ["Conformance"]
