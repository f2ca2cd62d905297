"""Tests of the examples on the CuPy page, on the stub."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAM = """
import runpy, sys
site, runner, page = sys.argv[1:]
sys.path.insert(0, site)
import stub_driver
stub_driver.install()
runpy.run_path(runner)["run"](__import__("pathlib").Path(page), "cupy")
"""


def test_the_examples_run() -> None:
    runner, page = ROOT / "tests" / "pages" / "page.py", ROOT / "docs" / "frameworks" / "cupy.md"
    command = [sys.executable, "-c", PROGRAM, str(HERE / "site"), str(runner), str(page)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
