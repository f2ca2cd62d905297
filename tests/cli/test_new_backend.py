"""Tests of `devshim new-backend`: what it writes is complete, and the README's adapter fits into it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devshim.adapters import Backend
from devshim.cli import new_backend

if TYPE_CHECKING:
    from conftest import Invoke

README = Path(__file__).resolve().parents[2] / "backends" / "README.md"
REGISTRATION = "[devshim.backends]\n{name} = {target}\n"


def install(folder: Path, name: str) -> None:
    """Register the distribution as pip would, without building it."""
    project = (folder / "pyproject.toml").read_text()
    (distribution,) = re.findall(r'^name = "(.+)"$', project, re.MULTILINE)
    (target,) = re.findall(rf'^{name} = "(.+)"$', project, re.MULTILINE)
    info = folder / f"{distribution.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(REGISTRATION.format(name=name, target=target))


def pytest_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        f"import sys, pytest; sys.path.insert(0, {str(folder)!r}); sys.exit(pytest.main())",
    ]
    run = [*command, "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_the_class_has_every_abstract_method(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    result = invoke("new-backend", "my_lib", "--folder", folder)
    assert result.exit_code == 0, result.output
    assert str(folder) in result.output
    source = (folder / "my_lib_devshim.py").read_text()
    (cls,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    methods = [node for node in cls.body if isinstance(node, ast.FunctionDef)]
    assert cls.name == "MyLibBackend"
    assert {node.name for node in methods} == Backend.__abstractmethods__
    assert [node.name for node in methods] == [name for name in vars(Backend) if name in Backend.__abstractmethods__]
    assert all((ast.get_docstring(node) or "").endswith(".") for node in methods)
    assert all(node.returns is not None for node in methods)


def test_by_default_the_folder_has_the_name_of_the_distribution(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("new-backend", "my_lib").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["devshim-my-lib"]
    assert invoke("new-backend", "my_lib").exit_code == 2  # it does not overwrite anything


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("torch", "has a backend for torch already"),
        ("my-lib", "is not an import name"),
        ("a.b", "is not an import name"),
        ("class", "is not an import name"),
        ("array", "part of the standard library"),
        ("devshim", "is part of devshim"),
    ],
)
def test_other_names_are_refused(name: str, problem: str, tmp_path: Path) -> None:
    assert problem in (new_backend.problem_with(name, tmp_path / "new") or "")


@pytest.mark.slow
def test_the_kit_fails_until_the_methods_are_written_and_passes_then(tmp_path: Path) -> None:
    pytest.importorskip("array_api_strict")
    folder = tmp_path / "new"
    assert new_backend.main("array_api_strict", folder) == 0
    install(folder, "array_api_strict")
    words = ("-m", "not gpu and not fresh", "-k", "test_devices or test_zeros or test_place")
    unwritten = pytest_in(folder, *words)
    assert unwritten.returncode == 1, unwritten.stdout
    assert "write ArrayApiStrictBackend." in unwritten.stdout

    (adapter, tests) = (
        re.findall(rf"```python\n# {name}\n(.*?)```", README.read_text(), re.DOTALL)[0]
        for name in ("strict_devshim.py", "test_strict.py")
    )
    (folder / "array_api_strict_devshim.py").write_text(adapter.replace("StrictBackend", "ArrayApiStrictBackend"))
    (folder / "tests/test_conformance.py").write_text(tests)
    written = pytest_in(folder, *words)
    assert written.returncode == 0, written.stdout
    assert " passed" in written.stdout
