"""Tests that the built sdist and wheel contain what they must, and nothing else."""

from __future__ import annotations

import re
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "devshim": ROOT / "devshim",
    "devshim_backends": ROOT / "backends" / "devshim_backends",
    "devshim/cli/chapters": ROOT / "examples" / "tour",
}


EXTRAS = {"numpy", "torch", "tensorflow", "paddle", "jax", "cupy", "mxnet", "plot", "ray", "tutorial"}


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    (found,) = dist.glob("*.whl")
    return zipfile.ZipFile(found)


@pytest.fixture(scope="module")
def sdist(dist: Path) -> set[str]:
    (found,) = dist.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        return {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()}


def sources() -> set[str]:
    """Return every file of the two packages and of the tour in this checkout, by its installed path."""
    found = set()
    for name, folder in PACKAGES.items():
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.add(f"{name}/{path.relative_to(folder).as_posix()}")
    return found


def test_the_wheel_holds_both_packages_whole_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert inside == sources()
    assert {"devshim/py.typed", "devshim/__init__.pyi", "devshim_backends/py.typed"} <= inside


def test_every_adapter_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    for name in ("torch", "tensorflow", "mxnet", "paddle", "jax", "cupy", "numpy"):
        assert f"devshim_backends/_{name}/backend.py" in wheel.namelist()


def test_the_metadata_is_what_pyproject_promises(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["Name"] == "devshim"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra", [])) == EXTRAS
    plain = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert {line.partition(">")[0] for line in plain} == {
        "array-api-compat",
        "click",
        "isal",
        "numpy",
        "nvidia-ml-py",
        "optree",
        "rich",
        "safetensors",
    }


def test_the_wheel_carries_the_licence_and_the_command(wheel: zipfile.ZipFile) -> None:
    (licence,) = (name for name in wheel.namelist() if name.endswith("licenses/LICENSE"))
    assert b"Apache License" in wheel.read(licence)
    (scripts,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    points = wheel.read(scripts).decode()
    assert "devshim = devshim.cli:main" in points
    assert "[pytest11]\ndevshim = devshim.pytest_plugin" in points


def test_the_sdist_can_be_built_tested_and_read(sdist: set[str]) -> None:
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "noxfile.py", "docs/index.md"} <= sdist
    assert {"SECURITY.md", "CITATION.cff", ".github/workflows/tests.yml"} <= sdist
    assert {"backends/README.md", "benchmarks/report.py", "examples/frobenius.py"} <= sdist
    assert any(name.startswith("tests/unit/test_") for name in sdist)
    assert not [name for name in sdist if "__pycache__" in name or name.endswith(".pyc")]


def test_the_readme_has_no_link_that_a_package_index_cannot_follow(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(wheel.read(name).decode())
    assert metadata["Description-Content-Type"] == "text/markdown"
    shown = metadata.get_payload()
    assert not re.findall(r"\]\((?!https?:|#)[^)]*\)", shown)


def test_the_readme_keeps_its_text_and_the_paths_of_its_links(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    shown = Parser().parsestr(wheel.read(name).decode()).get_payload()
    written = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"(?<!!)\[([^\]]+)\]\(((?!https?:|#)[^)]+)\)", written)  # pictures are left out
    assert links
    assert not [path for _, path in links if f"`{path}`" not in shown or not (ROOT / path.partition("#")[0]).exists()]
    blocks = re.findall(r"^```.*?^```$", written, re.MULTILINE | re.DOTALL)
    assert blocks
    assert not [block for block in blocks if block not in shown]
