"""The pytest plugin that runs the examples of README.md and docs/ on the installed framework.

``pytest README.md docs`` uses it. Each page runs exactly as printed, in a separate process, on each framework that it
names (see tests/pages/page.py). The blocks of README.md run separately, each in its own process. A page of
``docs/frameworks/`` is about one framework.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
RUNNER = ROOT / "tests" / "pages" / "page.py"
PAGES = ("README.md", "docs/*.md", "docs/*/*.md")
FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle", "jax")


def has_nvidia_gpus() -> bool:
    """Return True if this machine has the NVIDIA driver."""
    return Path("/dev/nvidiactl").exists()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if any(file_path in ROOT.glob(pattern) for pattern in PAGES):
        return Page.from_parent(parent, path=file_path)
    return None


class Page(pytest.File):
    """A page, or each block of README.md, on each installed framework that it names."""

    def collect(self) -> Iterator[Pasted]:
        page = runpy.run_path(str(RUNNER))
        text = self.path.read_text(encoding="utf-8")
        alone = [block.code for block in page["blocks"](text)] if self.path == ROOT / "README.md" else []
        here = [name for name in FRAMEWORKS if find_spec(name) is not None] or ["numpy"]
        for number, code in enumerate(alone, 1) if alone else ((None, text),):
            for name in page["frameworks"](code):
                if name in here:
                    block = () if number is None else (str(number),)
                    yield Pasted.from_parent(self, name="-".join((name, *block)), arguments=(name, *block))


class Pasted(pytest.Item):
    """One page, or one block, on one framework."""

    def __init__(self, *, arguments: tuple[str, ...], **more: object) -> None:
        super().__init__(**more)
        self._command = [sys.executable, "-W", "error:::__main__", str(RUNNER), str(self.path), *arguments]

    def runtest(self) -> None:
        hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""} if has_nvidia_gpus() else None  # a page simulates its own
        done = subprocess.run(self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=hidden)
        if done.returncode:
            msg = f"exit status {done.returncode}\n{done.stdout}"
            raise PageError(msg)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        return f"{' '.join(self._command)}\n{excinfo.value}"

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.path.name} on {self.name}"


class PageError(Exception):
    """The error when a page does not run exactly as printed."""
