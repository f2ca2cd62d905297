"""Fixtures that run pytest in separate processes, in which toyframe is installed like a third party's framework."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

TOY = Path(__file__).parent / "toy"
POINTS = """
[devshim.backends]
toyframe = toyframe_adapter:ToyBackend
ghostframe = ghostframe_adapter:GhostBackend
[pytest11]
devshim = devshim.pytest_plugin
"""
INI = "[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the packages beside devshim, and of devshim metadata if only its source is there."""
    site = tmp_path_factory.mktemp("site")
    info = site / "toyframe-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toyframe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    return site


def _environment(installed: Path) -> dict[str, str]:
    paths = [str(installed), str(TOY), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DEVSHIM_", "PYTEST_"))}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


@pytest.fixture(scope="session")
def run_kit(installed: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs pytest with the kit's plugin in a new process, in which toyframe is installed."""
    (installed / "pytest.ini").write_text(INI)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "devshim.testing.plugin", "-p", "no:cacheprovider"]

    def run(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "-c", str(installed / "pytest.ini"), *map(str, arguments)],
            env={**_environment(installed), **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def project(
    pytester: pytest.Pytester, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pytest.RunResult]:
    """Return a function that runs pytest on a test file, as another project does that has devshim installed."""
    for name in [name for name in os.environ if name.startswith("DEVSHIM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", _environment(installed)["PYTHONPATH"])
    pytester.makeini(INI)

    def run(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=f"import os, signal, sys\nimport pytest\nimport devshim as ds\n{dedent(source)}")
        return pytester.runpytest_subprocess(*arguments, timeout=180)

    return run
