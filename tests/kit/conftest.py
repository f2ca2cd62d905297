"""The conformance kit run on toyframe, which is registered by an entry point as a third party's framework would be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TOY = Path(__file__).parent / "toy"
POINTS = "[devshim.backends]\ntoyframe = toyframe_adapter:ToyBackend\nghostframe = ghostframe_adapter:GhostBackend\n"


@pytest.fixture(scope="session")
def run_kit(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs pytest with the kit's plugin in a process of its own, where toyframe is installed."""
    site = tmp_path_factory.mktemp("site")
    info = site / "toyframe-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toyframe\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    (site / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")
    paths = [str(site), str(TOY), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "devshim.testing.plugin", "-p", "no:cacheprovider"]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DEVSHIM_", "PYTEST_"))}

    def run(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "-c", str(site / "pytest.ini"), *map(str, arguments)],
            env={**kept, "PYTHONPATH": os.pathsep.join(paths), **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    return run
