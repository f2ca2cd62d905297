"""Tests of whether a distribution may have entry points: what `importlib.metadata` finds is never missed."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from devshim.registry.installed_metadata import may_have_entry_points

GROUP = "devshim.tests_of_metadata"
POINTS = f"[{GROUP}]\ntoy = toy_adapter:Backend\n"


@pytest.mark.parametrize("folder", ["toy-1.0.dist-info", "toy-1.0.egg-info", "Toy-1.0.DIST-INFO"])
def test_folders_are_found(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / folder)
    assert not may_have_entry_points(GROUP)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [point.name for point in entry_points(group=GROUP)] == ["toy"]
    assert may_have_entry_points(GROUP)
    assert not may_have_entry_points(f"{GROUP}.other")


def test_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "toy-1.0.dist-info")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert may_have_entry_points(GROUP)


def test_an_egg_on_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "toy-1.0.egg" / "EGG-INFO")
    monkeypatch.syspath_prepend(str(tmp_path / "toy-1.0.egg"))
    assert [point.name for point in entry_points(group=GROUP)] == ["toy"]
    assert may_have_entry_points(GROUP)


def test_an_archive_is_left_to_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "toy.whl"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
        file.writestr("toy-1.0.dist-info/entry_points.txt", POINTS)
    monkeypatch.syspath_prepend(str(archive))
    assert [point.name for point in entry_points(group=GROUP)] == ["toy"]
    assert may_have_entry_points(GROUP)


def test_finders_of_others_are_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        @staticmethod
        def find_spec(*_: Any) -> None:
            return None

        @staticmethod
        def find_distributions(*_: Any) -> list[Any]:
            return []

    assert not may_have_entry_points(GROUP)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert may_have_entry_points(GROUP)


def test_paths_without_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy-1.0.dist-info").mkdir()
    (tmp_path / "old.egg-info").write_text("Name: old\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "missing")])
    assert not may_have_entry_points(GROUP)


def test_the_first_call_does_without_the_library(python: Callable[..., str]) -> None:
    """`importlib.metadata` takes as long to import as half of the first call; NumPy has not imported it."""
    python(
        """
        import sys
        import numpy
        before = "importlib.metadata" in sys.modules  # as when the coverage of processes is measured
        import devshim as ds
        ds.use("numpy")
        ds.ones(1)
        assert before or "importlib.metadata" not in sys.modules
        """
    )


def write(folder: Path) -> None:
    folder.mkdir(parents=True)
    name = "PKG-INFO" if folder.name.lower().endswith("egg-info") else "METADATA"
    (folder / name).write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(POINTS, encoding="utf-8")
