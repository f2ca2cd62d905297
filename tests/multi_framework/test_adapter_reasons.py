"""The reasons why an adapter lacks a file are true of the installed frameworks, as far as their code can show it.

CuPy is not installed here: it needs CUDA.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from adapter_files import NAMES, NO_KERAS, NO_REGISTRY

REGISTERS = re.compile(r"^ *def register_(pytree|keypaths|dataclass)\w*\(", re.MULTILINE)


def folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def registries(package: str) -> list[str]:
    """Return the files of a package with functions that register containers."""
    files = folder(package).rglob("*.py")
    return [path.name for path in files if REGISTERS.search(path.read_text(encoding="utf-8", errors="replace"))]


def adapters(reason: str) -> list[str]:
    """Return the adapters with a reason."""
    return sorted({name for about in NAMES.values() for name, why in about.without.items() if why == reason})


@pytest.mark.parametrize("name", [name for name in adapters(NO_REGISTRY) if name != "cupy"])
def test_a_framework_has_no_registry_of_containers(name: str) -> None:
    assert registries(name) == []


def test_a_registry_is_found() -> None:
    assert "tree_util.py" in registries("jax")
    assert "_pytree.py" in registries("torch")


@pytest.mark.parametrize("name", adapters(NO_KERAS))
def test_keras_has_no_backend_for_a_framework(name: str) -> None:
    backends = folder("keras") / "src/backend"
    assert (backends / "jax").is_dir()
    assert not (backends / name).exists()
