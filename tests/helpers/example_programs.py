"""The programs in examples/, as modules: they are not a package, so tests and benchmarks import their files."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

__all__ = ["load_example", "loaded_example"]


def load_example(name: str) -> ModuleType:
    """Return examples/NAME.py as a new module."""
    with loaded_example(name) as module:
        return module


@contextmanager
def loaded_example(name: str) -> Iterator[ModuleType]:
    """Yield examples/NAME.py as a new module that Python finds by its name, which its dataclasses need."""
    (path,) = (each for folder in Path(__file__).parents for each in folder.glob(f"examples/{name}.py"))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[name]
