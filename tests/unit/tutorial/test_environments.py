"""Tests of finding the environments of frameworks, with Pythons that are shell scripts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import devshim as ds
from devshim.errors import DevshimError
from devshim.tutorial import environment_setup, environments
from devshim.tutorial.environments import Environment


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("DEVSHIM_TUTORIAL_CACHE", str(folder))
    return folder


def fake(folder: Path, version: str | None = "2.0", devshim: str | None = ds.__version__) -> Path:
    """Write an environment whose Python answers with these versions."""
    answer = {"python": "3.12.1", "tag": "cpython-312", "version": version, "devshim": devshim}
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n", encoding="utf-8")
    python.chmod(0o755)
    return python


def found(options: dict[str, str], start: Path, name: str = "torch") -> Environment | DevshimError:
    return environments.resolve([name], options, environments.read_configured(start))[name]


def test_the_command_line_comes_before_pyproject(tmp_path: Path) -> None:
    python, other = fake(tmp_path / "venv"), fake(tmp_path / "other", "3.0")
    (tmp_path / "pyproject.toml").write_text('[tool.devshim.tutorial.environments]\npytorch = "venv"\n', "utf-8")
    inside = tmp_path / "docs" / "tutorials"
    inside.mkdir(parents=True)
    expected = Environment("torch", python, "pyproject.toml", "2.0", "3.12.1", "cpython-312")
    assert found({}, inside) == expected
    named = found({"torch": str(other)}, inside)
    assert isinstance(named, Environment)
    assert (named.python, named.version, named.origin) == (other, "3.0", "--env")


def test_a_created_environment_comes_before_this_python(tmp_path: Path, cache: Path) -> None:
    here = found({}, tmp_path, "numpy")
    assert isinstance(here, Environment)
    assert (here.python, here.origin) == (Path(sys.executable), "here")
    for name, version in (("numpy-1", "0.0.1"), ("numpy-2", ds.__version__)):
        fake(cache / "environments" / name)
        (cache / "environments" / name / environment_setup.MADE).write_text(
            json.dumps({"devshim": version}), encoding="utf-8"
        )
    made = found({}, tmp_path, "numpy")
    assert isinstance(made, Environment)
    assert (made.python.parent.parent.name, made.origin) == ("numpy-2", "created")


@pytest.mark.parametrize(
    ("version", "devshim", "problem", "hint"),
    [
        (None, ds.__version__, "has no PyTorch", "pip install 'devshim[torch]'"),
        ("2.0", None, "has no devshim, and this is devshim", "pip install devshim=="),
        ("2.0", "0.0.1", "has devshim 0.0.1, and this is devshim", "pip install devshim=="),
    ],
)
def test_an_environment_needs_the_framework_and_this_devshim(
    version: str | None, devshim: str | None, problem: str, hint: str, tmp_path: Path
) -> None:
    python = fake(tmp_path / "venv", version, devshim)
    error = found({"torch": str(tmp_path / "venv")}, tmp_path)
    assert isinstance(error, DevshimError)
    assert str(python) in error.problem
    assert problem in error.problem
    assert hint in str(error.hint)


def test_what_is_missing_or_broken_is_an_error(tmp_path: Path) -> None:
    nowhere = found({"torch": str(tmp_path / "none")}, tmp_path)
    assert isinstance(nowhere, DevshimError)
    assert "has no Python" in nowhere.problem
    nothing = found({}, tmp_path, "cupy")
    assert isinstance(nothing, DevshimError)
    assert nothing.problem == "CuPy cannot run: there is no environment for it"
    assert "env create cupy" in str(nothing.hint)
    broken = fake(tmp_path / "venv")
    broken.write_text("#!/bin/sh\necho 'no library' >&2\nexit 3\n", encoding="utf-8")
    error = found({"torch": str(broken)}, tmp_path)
    assert isinstance(error, DevshimError)
    assert error.problem == f"{broken} does not run: no library"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[tool.devshim.tutorial.environments]\ntorch = 3", "torch must be the path of an environment, not 3"),
        ("[tool.devshim.tutorial.environments]\ntorhc = 'x'", "no backend is called 'torhc'"),
        ("[tool.devshim", "cannot be read"),
    ],
)
def test_a_wrong_table_is_an_error(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DevshimError, match=problem):
        environments.read_configured(tmp_path)


def test_options_name_environments() -> None:
    assert environments.read_options(["tf=a=b", "jax=here"]) == {"tensorflow": "a=b", "jax": "here"}
    for wrong in ("torch", "torch=", "=x"):
        with pytest.raises(DevshimError, match="does not name an environment"):
            environments.read_options([wrong])


def test_an_environment_that_cannot_be_made_is_removed(tmp_path: Path, cache: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nmkdir -p $3\necho 'no venv here'\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    with pytest.raises(DevshimError, match=r"-m venv .* failed: no venv here"):
        environment_setup.create("numpy", python=broken, notify=str)
    assert list((cache / "environments").iterdir()) == []
    with pytest.raises(DevshimError, match="is not a Python"):
        environment_setup.create("numpy", python=tmp_path / "none", notify=str)


def test_an_environment_is_made_once(tmp_path: Path, cache: Path) -> None:
    answer = json.dumps({"python": "3.12.1", "tag": "t", "version": "2.0", "devshim": ds.__version__})
    inner = f'#!/bin/sh\necho "$@" >> "{tmp_path}/log"\necho \'{answer}\'\n'
    script = f"#!/bin/sh\nmkdir -p $3/bin\ncat > $3/bin/python <<'EOF'\n{inner}EOF\nchmod +x $3/bin/python\n"
    base = tmp_path / "python"
    base.write_text(script, encoding="utf-8")
    base.chmod(0o755)
    notes: list[str] = []
    made = [environment_setup.create("numpy", ["pillow"], base, notes.append) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0].python.is_relative_to(cache / "environments")
    assert len(notes) == 2, "created and installed once"
    installed = [line for line in (tmp_path / "log").read_text(encoding="utf-8").splitlines() if "install" in line]
    assert len(installed) == 1
    assert installed[0].endswith("pillow")
    assert "[numpy]" in installed[0]
    again = environment_setup.create("numpy", ["pandas"], base, notes.append)
    assert again.python != made[0].python, "other packages are another environment"


def test_what_pip_does_is_passed_on(tmp_path: Path, cache: Path) -> None:
    answer = json.dumps({"python": "3.12.1", "tag": "t", "version": "2.0", "devshim": ds.__version__})
    said = (
        "Collecting numpy",
        "  Downloading https://host/numpy-2.4.6-cp312-linux.whl.metadata (62 kB)",
        "Downloading numpy-2.4.6-cp312-linux.whl (16.6 MB)",
        "Progress 8 of 16",
        "  Using cached rich-15.0.0-py3-none-any.whl",
        "Installing collected packages: numpy, rich",
    )
    prints = "".join(f"echo '{line}'\n" for line in said)
    inner = f"case $3 in --version) echo pip 24.1;; install) {prints};; *) echo '{answer}';; esac\n"
    script = f'mkdir -p $3/bin\ncat > $3/bin/python <<"EOF"\n#!/bin/sh\n{inner}EOF\nchmod +x $3/bin/python\n'
    base = tmp_path / "python"
    base.write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
    base.chmod(0o755)
    notes: list[str] = []
    moves: list[tuple[int, int]] = []
    environment_setup.create("numpy", (), base, notes.append, lambda *move: moves.append(move))
    assert notes[2:] == [
        "downloading numpy 2.4.6 (62 kB)",
        "downloading numpy 2.4.6 (16.6 MB)",
        "using cached rich 15.0.0",
        "installing 2 packages",
    ]
    assert moves == [(8, 16)]
