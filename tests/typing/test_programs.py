"""Tests that run mypy, pyright and jedi on a program that uses the installed devshim: ``pytest tests/typing``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jedi
import pytest

HERE = Path(__file__).parent
SITE = Path(sysconfig.get_path("purelib"))
PROGRAMS = ("right.py", "wrong.py")
Findings = dict[str, dict[int, str]]
"""Program -> line -> the message about it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a user's project, outside of this repository."""
    made = tmp_path_factory.mktemp("project")
    for name in PROGRAMS:
        shutil.copy(HERE / "programs" / name, made)
    (made / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "reportUnusedExpression": false}')
    return made


def output(folder: Path, *command: str) -> str:
    """Return what a checker prints; it finds the Python of this environment, and nothing of this repository."""
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    path = os.pathsep.join((str(Path(sys.executable).parent), outside["PATH"]))
    env = {**outside, "PATH": path, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # about a newer pyright
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert not done.stderr.strip(), done.stderr
    return done.stdout


def mypy(folder: Path) -> Findings:
    found: Findings = defaultdict(dict)
    command = (sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context")
    for line in output(folder, *command, f"--cache-dir={folder / 'cache'}", *PROGRAMS).splitlines():
        name, number, kind, text = line.split(":", 3)
        if kind.strip() == "error":
            found[name][int(number)] = text
    return found


def pyright(folder: Path) -> Findings:
    found: Findings = defaultdict(dict)
    reported = json.loads(output(folder, sys.executable, "-m", "pyright", "--outputjson", *PROGRAMS))
    for each in reported["generalDiagnostics"]:
        found[Path(each["file"]).name][each["range"]["start"]["line"] + 1] = each["message"]
    return found


@pytest.fixture(scope="module", params=[mypy, pyright], ids=lambda check: check.__name__)
def findings(request: pytest.FixtureRequest, folder: Path) -> Findings:
    check: Callable[[Path], Findings] = request.param
    return check(folder)


def test_the_package_that_is_examined_is_the_installed_one() -> None:
    assert (SITE / "devshim" / "__init__.pyi").read_text() == Path("devshim/__init__.pyi").read_text()
    assert (SITE / "devshim" / "py.typed").is_file()


def test_nothing_is_said_of_a_right_program(findings: Findings) -> None:
    assert not findings["right.py"]


def test_every_mistake_is_found_and_nothing_else(findings: Findings, folder: Path) -> None:
    lines = (folder / "wrong.py").read_text().splitlines()
    assert set(findings["wrong.py"]) == {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


def test_the_public_interface_has_a_type_throughout(folder: Path) -> None:
    """Pyright knows the type of every argument, result and attribute, except those of the commands and public tests.

    Their types matter only to their readers.
    """
    reported = json.loads(
        output(folder, sys.executable, "-m", "pyright", "--verifytypes", "devshim", "--ignoreexternal", "--outputjson")
    )
    symbols = reported["typeCompleteness"]["symbols"]
    apart = ("devshim.testing", "devshim.cli")
    assert len(symbols) > 500
    assert not [each for each in symbols if not each["isTypeKnown"] and not each["name"].startswith(apart)]


# ---------------------------------------------------------------------- jedi: Jupyter, vim, Emacs, Spyder
def script(folder: Path, source: str) -> tuple[jedi.Script, int, int]:
    """Return a program as an editor with only the installed packages sees it, and the end of its last line."""
    project = jedi.Project(folder, sys_path=[str(SITE), *(path for path in sys.path if "lib-dynload" in path)])
    lines = f"import devshim as ds\n{source}".split("\n")
    return jedi.Script("\n".join(lines), project=project), len(lines), len(lines[-1])


def completions(folder: Path, source: str) -> list[str]:
    editor, line, column = script(folder, source)
    return [each.name for each in editor.complete(line, column)]


def public() -> list[str]:
    reported: list[str] = json.loads(
        output(HERE, sys.executable, "-c", "import json, devshim; print(json.dumps(devshim.__all__))")
    )
    return reported


RANDOM = ["bernoulli", "Generator", "normal", "permutation", "randint", "seed", "uniform"]
"""The public names of `ds.random`, in the order of an editor."""


def test_an_editor_completes_every_public_name_and_them_first(folder: Path) -> None:
    found = completions(folder, "ds.")
    wanted = {name for name in public() if not name.startswith("_")}
    assert wanted <= set(found)
    private = [at for at, name in enumerate(found) if name.startswith("_")]
    assert max(map(found.index, wanted)) < min(private)
    assert not {"annotations", "TYPE_CHECKING", "Any"} & set(found)
    assert [name for name in completions(folder, "ds.random.") if name[0] != "_"] == RANDOM


def test_an_editor_explains_every_public_name(folder: Path) -> None:
    for name in public():
        if name.startswith("__"):
            continue
        editor, line, column = script(folder, f"ds.{name}")
        (found,) = editor.help(line, column)
        assert found.docstring(raw=True), name
        assert found.type in ("function", "class", "module"), name


@pytest.mark.parametrize(
    ("source", "has"),
    [
        ("ds.place('text', 'cpu').", "upper"),
        ("ds.split('text', ['cpu'])[0].", "upper"),
        ("ds.load('file', into='text').", "upper"),
        ("ds.device('cuda:1').", "native"),
        ("ds.describe('cpu').", "simulated"),
        ("ds.placement_of(None).", "to_json"),
        ("ds.simulate(2).", "memory"),
        ("with ds.transfers() as log:\n    log.", "to_chrome_trace"),
        ("ds.backends()['numpy'].", "version"),
        ("ds.to_numpy(None).", "reshape"),
    ],
)
def test_an_editor_knows_what_a_call_gives(folder: Path, source: str, has: str) -> None:
    assert has in completions(folder, source)


def test_an_editor_shows_the_arguments(folder: Path) -> None:
    editor, line, column = script(folder, "ds.place(")
    (signature,) = editor.get_signatures(line, column)
    assert [each.name for each in signature.params] == ["x", "device", "copy", "non_blocking"]


LIVE = """
import json, jedi, devshim as ds
names = {"ds": ds}
before = [each.name for each in jedi.Interpreter("ds.", [names]).complete()]
(explained,) = jedi.Interpreter("ds.place", [names]).help(1, 5)
print(json.dumps([before, explained.docstring(), dir(ds), dir(ds.random)]))
"""


def test_a_notebook_completes_and_explains(folder: Path) -> None:
    """There jedi inspects the module itself, of which nothing has been used yet."""
    reported: Any = json.loads(output(folder, sys.executable, "-c", LIVE))
    completed, explained, listed, of_random = reported
    assert set(public()) <= set(completed)
    assert "Return a tensor, or every tensor of a tree, on a device" in explained
    assert [name for name in listed if not name.startswith("__")] == [n for n in sorted(public()) if n[:2] != "__"]
    assert [name for name in of_random if not name.startswith("__")] == sorted(RANDOM)
