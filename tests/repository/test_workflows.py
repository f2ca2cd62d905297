"""The workflows call sessions of the noxfile that exist, and leave out none that `nox` runs by default, or is long."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import nox.registry
import pytest
import tomllib
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = {path.stem: YAML(typ="safe").load(path) for path in (ROOT / ".github/workflows").glob("*.yml")}
NOX = re.compile(r'nox -s "?([^"\n]+?)"?$', re.MULTILINE)
MAJOR = re.compile(r"@(v\d+|release/v\d+)$")
LONG = {"pythons", "world"}
"""Sessions that run for every change, but not by default: on two cores, CI has no time for them."""
WRITES = {"docs/publish": {"pages", "id-token"}, "release/publish": {"id-token"}}
"""Job -> the permissions that it has besides reading the repository."""


@pytest.fixture(scope="module")
def noxfile() -> ModuleType:
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sessions(noxfile: ModuleType) -> dict[str, bool]:
    """Return whether each session of the noxfile runs by default, a parametrized one for each of its parameters."""
    found = {}
    for name, function in nox.registry.get().items():
        for each in [f"({param})" for param in getattr(function, "parametrize", None) or ()] or [""]:
            found[name + each] = function.default
    return found


def jobs() -> dict[str, Mapping[str, Any]]:
    return {f"{name}/{job}": entry for name, each in WORKFLOWS.items() for job, entry in each["jobs"].items()}


def called(job: Mapping[str, Any]) -> set[str]:
    """Return the sessions that a job runs, one for each entry of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    values = {
        "${SESSION}": matrix.get("session", ()),
        "${FRAMEWORK}": [each["framework"] for each in matrix.get("include", ())],
    }
    found = set()
    for name in (name for step in job["steps"] for name in NOX.findall(step.get("run", ""))):
        variable = re.search(r"\$\{\w+\}", name)
        filled = [name] if variable is None else [name.replace(variable[0], value) for value in values[variable[0]]]
        found |= set(filled)
    return found


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_a_workflow_calls_sessions_that_exist(sessions: dict[str, bool]) -> None:
    everything = set().union(*(called(job) for job in jobs().values()))
    assert everything <= set(sessions)
    assert {"quick", "package", "docs", "downstream", "nightly(torch)"} <= everything


def test_the_matrix_is_what_nox_runs_by_default_and_the_long_sessions(sessions: dict[str, bool]) -> None:
    default = {name for name, chosen in sessions.items() if chosen} - {"environments"}  # each job has a machine
    assert not default & LONG
    assert called(jobs()["tests/nox"]) | called(jobs()["docs/build"]) == default | LONG


def test_all_environments_are_created_first(noxfile: ModuleType, sessions: dict[str, bool]) -> None:
    default = {name for name, chosen in sessions.items() if chosen}
    assert sorted(noxfile.FIRST) == sorted(default - {"environments", "package"})


def test_every_nightly_framework_has_a_job(sessions: dict[str, bool]) -> None:
    assert called(jobs()["nightly/nightly"]) == {name for name in sessions if name.startswith("nightly(")}


def test_every_framework_has_a_job_on_the_next_python(sessions: dict[str, bool]) -> None:
    assert called(jobs()["nightly/newest"]) == {name for name in sessions if name.startswith("newest(")}


def test_a_run_line_has_only_what_installs_nox_and_calls_it() -> None:
    for job in jobs().values():
        for step in job["steps"]:
            assert step.get("run", "nox").startswith(("nox", "pip install nox virtualenv"))


def test_permissions_are_minimal_and_runs_do_not_pile_up() -> None:
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}, name
        assert workflow["concurrency"]["group"], name
    for name, job in jobs().items():
        assert set(job.get("permissions", ())) == WRITES.get(name, set()), name
        assert job["timeout-minutes"] <= 60, name


def test_actions_are_pinned_to_a_major_version() -> None:
    used = {step["uses"] for job in jobs().values() for step in job["steps"] if "uses" in step}
    assert used
    assert not [each for each in used if not MAJOR.search(each)]


def test_pre_commit_has_the_versions_of_the_lint_group() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pinned = dict(each.split("==") for each in project["dependency-groups"]["lint"])
    hooks = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")["repos"]
    used = {repo["repo"].rpartition("/")[2]: repo["rev"].removeprefix("v") for repo in hooks if "rev" in repo}
    assert used == {
        "ruff-pre-commit": pinned["ruff"],
        "codespell": pinned["codespell"],
        "check-jsonschema": pinned["check-jsonschema"],
    }


def test_the_citation_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = YAML(typ="safe").load(ROOT / "CITATION.cff")
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
    source = (ROOT / "devshim" / "_version.py").read_text(encoding="utf-8")
    assert f'__version__ = "{project["version"]}"' in source.splitlines()
