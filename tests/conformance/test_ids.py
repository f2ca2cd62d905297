"""Tests have the same ids in every process, on which pytest-xdist and selection by name rely."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KIT = ["-p", "devshim.testing.plugin", "tests/backends/numpy/test_conformance.py", "--devshim-gpus=2"]
REST = ["tests/cli", "tests/examples", "tests/conformance", "tests/unit"]


def collecting(arguments: list[str], seed: str, allocator: str) -> subprocess.Popen[str]:
    """Start a process that lists the tests, with a different hash seed and different addresses."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DEVSHIM_", "PYTEST_"))}
    environ = kept | {"PYTHONHASHSEED": seed, "PYTHONMALLOC": allocator}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.Popen(command, env=environ, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def named(process: subprocess.Popen[str]) -> list[str]:
    """Return the names that it prints."""
    printed = process.communicate(timeout=300)[0]
    assert process.returncode == 0, printed[-2000:]
    return [line for line in printed.splitlines() if "::" in line]


def addresses(names: list[str]) -> list[str]:
    """Return the names that contain an address."""
    return [name for name in names if re.search(r"\bat 0x[0-9a-f]{6}", name)]


@pytest.mark.parametrize("arguments", [KIT, REST], ids=["kit", "rest"])
def test_tests_have_the_same_names_in_every_process(arguments: list[str]) -> None:
    first, second = (
        named(each) for each in [collecting(arguments, "1", "malloc"), collecting(arguments, "2", "pymalloc")]
    )
    assert len(first) > 1000
    assert addresses(first) == []
    assert first == second


def test_an_address_is_seen() -> None:
    assert addresses(["a[<object object at 0x7f8952051ed0>]", "b[0x10]"]) == ["a[<object object at 0x7f8952051ed0>]"]
