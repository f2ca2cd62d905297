"""Fixtures of the tests of the command line."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from devshim.cli.app import app
from devshim.registry import simulation_request
from devshim.simulation import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Invoke = Callable[..., Any]
    Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _as_found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clear the environment's settings, and end what a command simulated in this process."""
    for name in (
        "DEVSHIM_BACKEND",
        "DEVSHIM_SIMULATE_GPUS",
        "DEVSHIM_SIMULATE_MEMORY",
        "DEVSHIM_SIMULATE_LIKE",
        "DEVSHIM_SIMULATE_ASYNC_COPIES",
        "DEVSHIM_PROGRESS",
        "DEVSHIM_SIMULATE_NATIVE_NAMES",
        "CUDA_VISIBLE_DEVICES",
        "FORCE_COLOR",
        "COLUMNS",
    ):
        monkeypatch.delenv(name, raising=False)
    yield
    simulate.simulate(0)
    simulation_request.asked = None


@dataclass(frozen=True)
class Result:
    """The output of a command, and its exit code."""

    exit_code: object
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both streams."""
        return self.stdout + self.stderr


@pytest.fixture
def invoke() -> Invoke:
    """Return a function that runs a command in this process."""

    def invokes(*words: object) -> Result:
        code: object = None
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
            try:
                app.main([str(word) for word in words], prog_name="devshim")
            except SystemExit as end:  # wrong usage, or help
                code = end.code
        return Result(code, out.getvalue(), errors.getvalue())

    return invokes


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs `python -m devshim` as a user does: in a new process, with a pipe for its output."""

    def runs(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "devshim", *map(str, words)]
        environment = {**os.environ, **variables}
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300, check=False
        )

    return runs


@pytest.fixture
def fake(tmp_path: Path) -> Callable[[str, str], dict[str, str]]:
    """Return a function that makes a package of a framework's name, and returns an environment that finds it first."""

    def makes(name: str, source: str) -> dict[str, str]:
        folder = tmp_path / "fakes" / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(source, encoding="utf-8")
        path = [str(folder.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {"PYTHONPATH": os.pathsep.join(path)}

    return makes
