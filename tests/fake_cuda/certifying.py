"""Helpers that run `devshim` as a command on GPUs that do not exist, and read the output of `devshim certify`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from devshim.certify.report import Report


def command(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a devshim command on a machine with two GPUs, or with the given settings."""
    environment = {**os.environ, "FAKE_CUDA_GPUS": "2", **settings}
    path = [str(Path(__file__).parent / "driver_file"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return subprocess.run(
        [sys.executable, "-m", "devshim", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )


def certify_claims(folder: Path, backend: str, only: str, **settings: str) -> dict[str, str]:
    """Return each claim's name with its result and note; the exit status must agree with them."""
    file = folder / "found.json"
    done = command("certify", "--backend", backend, "--quick", "--only", only, "--json", str(file), **settings)
    assert file.exists(), done.stdout + done.stderr
    report = Report.from_json(file.read_text(encoding="utf-8"))
    assert not report.simulated
    assert set(report.cards) == {"Fake card"}
    assert done.returncode == int(report.failed), done.stdout + done.stderr
    (framework,) = report.frameworks
    return {result.name: f"{result.status} {result.note}" for result in framework.results}
