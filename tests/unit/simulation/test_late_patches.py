"""Tests of patches of a module that is imported later."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from devshim.simulation.late_patches import LatePatches

NAME = "module_that_is_patched_late"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write a module that is not imported yet."""
    (tmp_path / f"{NAME}.py").write_text("answer = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(NAME, None)


def make(needed: str = "answer") -> LatePatches:
    return LatePatches(NAME, needed, lambda patches, module: patches.replace(module, "answer", 2))


def imported() -> ModuleType:
    return import_module(NAME)


@pytest.mark.usefixtures("library")
def test_the_module_is_patched_when_it_is_imported() -> None:
    patches = make()
    patches.install()
    assert NAME not in sys.modules
    assert imported().answer == 2
    patches.undo()
    assert imported().answer == 1
    patches.install()
    patches.install()
    assert imported().answer == 2
    patches.undo()
    assert imported().answer == 1


@pytest.mark.usefixtures("library")
def test_an_import_after_the_end_finds_the_module_as_it_is() -> None:
    patches = make()
    patches.install()
    patches.undo()
    assert imported().answer == 1
    patches.install()
    assert imported().answer == 2
    patches.undo()


@pytest.mark.usefixtures("library")
def test_a_module_without_the_attribute_is_left_alone() -> None:
    patches = make("question")
    patches.install()
    assert imported().answer == 1
    patches.undo()
