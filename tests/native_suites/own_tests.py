"""The tests in a library's source distribution, under separate names, for a file of suites.

The distribution is downloaded with pip, in the version that is installed, into ``build/native-suites``.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
import unittest
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["own_tests"]

FOLDER = Path(__file__).parents[2] / "build" / "native-suites"


def own_tests(distribution: str, files: Iterable[str]) -> dict[str, Any]:
    """Return the test classes and functions of files of a library's source distribution, under separate names.

    Args:
        distribution: The name of the library in the package index.
        files: Paths in its tree, such as ``tests/test_hooks.py``.
    """
    tree = source(distribution)
    sys.path.insert(0, str(tree))
    found: dict[str, Any] = {}
    for each in files:
        path = tree / each
        stem = path.stem.removeprefix("test_")
        for name, test in tests(imported(path)):
            found[f"Test_{stem}_{name}" if isinstance(test, type) else f"test_{stem}_{name}"] = test
    return found


def source(distribution: str) -> Path:
    """Return the tree of the source distribution of the installed version."""
    name = f"{distribution.replace('-', '_')}-{version(distribution)}"
    tree = FOLDER / name
    if not tree.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        wanted = f"{distribution}=={version(distribution)}"
        subprocess.run([*pip, "--no-build-isolation", wanted, "--dest", str(FOLDER)], check=True)
        with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
            archive.extractall(FOLDER, filter="data")
    return tree


def imported(path: Path) -> ModuleType:
    """Return the module of a file, imported under a name that no package has."""
    name = f"own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tests(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the names of the tests that a module defines, and the tests."""
    for name, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        is_class = isinstance(value, type) and (issubclass(value, unittest.TestCase) or name.startswith("Test"))
        if is_class or (name.startswith("test_") and callable(value)):
            yield name, value
