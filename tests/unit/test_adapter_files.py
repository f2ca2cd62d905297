"""Tests of the names of the adapters' files: a name means the same in each adapter.

A file has a name from `NAMES`, or it is in a folder ``internals``, which contains code for only one framework. For
each name, an adapter has the file, or declares a gap in the file's feature, or has a reason in the table. A reason may
name files of the adapter, and in backquotes what is in them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from adapter_files import ADAPTERS, ALONE, KERAS, NAMES

from devshim.contract.capabilities import FEATURES
from devshim.registry import discovery


def files_of(adapter: Path, *, alone: bool) -> set[str]:
    """Return an adapter's files that are in a folder only for itself, or all others, relative to it."""
    paths = (path.relative_to(adapter) for path in adapter.rglob("*.py"))
    return {path.as_posix() for path in paths if (ALONE in path.parts) is alone and path.name != "__init__.py"}


def wrongly_apart(adapters: Iterable[set[str]]) -> list[str]:
    """Return the files for one framework that two adapters have, or that have a shared name for their place."""
    counts = Counter(file for files in adapters for file in files)
    return sorted(file for file, count in counts.items() if count > 1 or file.replace(f"{ALONE}/", "") in NAMES)


def without_a_name(found: Iterable[str]) -> list[str]:
    """Return the files that have no name from the table."""
    return sorted({*found} - NAMES.keys() - KERAS.keys())


def without_reason(name: str, found: Iterable[str], gaps: Iterable[str]) -> list[str]:
    """Return the names for which an adapter has no file, no gap and no reason, or more than one of these."""
    found, gaps = {*found}, {*gaps}
    return [
        file
        for file, about in NAMES.items()
        if (file in found) + (about.feature in gaps) + (name in about.without) != 1
    ]


def reasons_of(name: str) -> Iterator[str]:
    """Yield the reasons of an adapter for the files that it does not have."""
    return (about.without[name] for about in NAMES.values() if name in about.without)


def wrong_names(adapter: Path, reason: str) -> list[str]:
    """Return the files that a reason names and an adapter does not have, and what is not in any of its files."""
    files = re.findall(r"[\w/]+(?:\.py|\.cc|/)(?!\w)", reason)
    paths = {file: next((each for each in (adapter / file, ADAPTERS / file) if each.exists()), None) for file in files}
    found = [file for file, path in paths.items() if path is None]
    parts = [part for path in paths.values() if path for part in ([path] if path.is_file() else path.glob("*.py"))]
    text = "\n".join(part.read_text(encoding="utf-8") for part in parts)
    return found + [name for name in re.findall(r"`([^`]+)`", reason) if name not in text]


def gaps_of(name: str) -> set[str]:
    return {*import_module(f"devshim_backends._{name}.capabilities").GAPS}


@pytest.mark.parametrize("name", discovery.BUILTIN)
def test_a_file_has_a_shared_name_or_is_for_its_framework_alone(name: str) -> None:
    assert without_a_name(files_of(ADAPTERS / f"_{name}", alone=False)) == []


@pytest.mark.parametrize("name", discovery.BUILTIN)
def test_a_missing_file_is_a_missing_feature_or_has_a_reason(name: str) -> None:
    assert without_reason(name, files_of(ADAPTERS / f"_{name}", alone=False), gaps_of(name)) == []


@pytest.mark.parametrize("name", discovery.BUILTIN)
def test_a_reason_names_what_the_adapter_has(name: str) -> None:
    adapter = ADAPTERS / f"_{name}"
    found = {reason: wrong_names(adapter, reason) for reason in reasons_of(name)}
    assert {reason: wrong for reason, wrong in found.items() if wrong} == {}


def test_a_reason_that_names_what_is_not_there_is_found() -> None:
    adapter = ADAPTERS / "_jax"
    assert wrong_names(adapter, "`deepcopy` suffices: models/copies.py") == ["models/copies.py", "deepcopy"]
    assert wrong_names(adapter, "`JaxSimulation` in simulation/gone.cc or _keras/models.py") == [
        "simulation/gone.cc",
        "JaxSimulation",
    ]
    assert wrong_names(adapter, "`Leaf` in models/models.py, of ds.convert/jax") == []


def test_a_name_is_shared() -> None:
    homes = [files_of(ADAPTERS / f"_{name}", alone=False) for name in discovery.BUILTIN]
    homes.append({f"models/{path.name}" for path in (ADAPTERS / "_keras").glob("*.py")})
    homes.append({KERAS[file] for each in homes for file in each & KERAS.keys()})
    assert [name for name in NAMES if sum(name in each for each in homes) < 2] == []


def test_the_table_names_features_and_adapters_that_exist() -> None:
    assert {about.feature for about in NAMES.values()} <= {"", *FEATURES}
    assert {name for about in NAMES.values() for name in about.without} <= discovery.BUILTIN.keys()


@pytest.mark.parametrize("folder", sorted(ADAPTERS.glob(f"_*/**/{ALONE}")), ids=lambda path: path.parts[-3])
def test_a_folder_for_one_framework_says_so(folder: Path) -> None:
    assert "no other adapter" in (folder / "__init__.py").read_text(encoding="utf-8")


def test_a_file_for_one_framework_alone_is_in_one_adapter() -> None:
    files = [files_of(ADAPTERS / f"_{name}", alone=True) for name in discovery.BUILTIN]
    assert all(files[list(discovery.BUILTIN).index(name)] for name in ("torch", "tensorflow", "jax", "paddle", "mxnet"))
    assert wrongly_apart(files) == []


def test_a_file_that_two_adapters_have_apart_is_found() -> None:
    assert wrongly_apart([{"internals/clients.py"}, {"internals/clients.py", "internals/axes.py"}]) == [
        "internals/clients.py"
    ]
    assert wrongly_apart([{"simulation/internals/memory.py"}]) == ["simulation/internals/memory.py"]


def test_the_page_for_new_backends_lists_the_names() -> None:
    page = (Path(__file__).parents[2] / "backends/README.md").read_text(encoding="utf-8")
    listed = set()
    for folder, table in re.findall(r"\| file(?: in `([\w/]+)`)? \| contents \|\n(.*?)\n *\n", page, re.DOTALL):
        for cell in re.findall(r"^ *\| ([^|]+) \|", table, re.MULTILINE):
            listed |= {folder + name for name in re.findall(r"`([\w/]+\.py)`", cell)}
    assert listed == NAMES.keys()


def test_a_file_without_a_shared_name_is_found() -> None:
    assert without_a_name(["tensors.py", "host_arrays.py", "models/keras/models.py"]) == ["host_arrays.py"]


def test_a_missing_file_is_found() -> None:
    assert "tensors.py" in without_reason("jax", NAMES.keys() - {"tensors.py"}, [])
    assert "ranks.py" in without_reason("jax", NAMES.keys() - {"ranks.py"}, [])
    assert "ranks.py" not in without_reason("jax", NAMES.keys() - {"ranks.py"}, ["ranks"])
    assert "ranks.py" in without_reason("jax", NAMES.keys(), ["ranks"])
    assert "tracing.py" in without_reason("jax", NAMES.keys(), [])
