"""The root of the repository holds what a stranger expects there, and nothing that a run left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".md", ".py", ".toml", ".cff", ".yaml"}
"""The suffixes of files that belong in the root; no result of a run has one of them."""
PLAIN = {"LICENSE", ".editorconfig", ".gitignore", ".python-version"}


def strays(tracked: list[str]) -> list[str]:
    """Return the files of the root, of all that git tracks, that have no business there."""
    files = [name for name in tracked if "/" not in name]
    return [name for name in files if name not in PLAIN and Path(name).suffix not in SUFFIXES]


def test_no_result_of_a_run_is_in_the_root() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is a copy of the sources without git")
    assert strays(listed.stdout.split("\n")[:-1]) == []


def test_a_stray_file_is_noticed() -> None:
    assert strays(["README.md", "plain.json", "docs/ports.json", "LICENSE"]) == ["plain.json"]
