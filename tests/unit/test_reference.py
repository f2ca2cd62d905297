"""Tests of the API reference: each public name is on one page of docs/api, in its summary, and in docs/api.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import devshim as ds
from devshim import backend, random

(ROOT,) = [folder for folder in Path(__file__).parents if (folder / "docs" / "api.md").is_file()]
INDEX = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "api").glob("*.md"))}
DIRECTIVE = re.compile(
    r"^\.\. (?:currentmodule|(?:auto|py:)(?:function|class|exception|data)):: (\S+?)(?:\(.*)?$", re.MULTILINE
)
SUMMARY = re.compile(r"^\.\. autosummary::\n((?:   .*\n|\n)+)", re.MULTILINE)
NAMES = re.compile(r"^   (\w+)$", re.MULTILINE)


def documented(text: str) -> list[str]:
    """Return the full names that a page documents, in order."""
    module, names = "", []
    for found in DIRECTIVE.finditer(text):
        if "currentmodule" in found[0]:
            module = found[1]
        else:
            names.append(found[1] if found[1].startswith("devshim.") else f"{module}.{found[1]}")
    return names


ON = {topic: documented(text) for topic, text in TEXTS.items()}


def test_each_public_name_is_on_one_page() -> None:
    """If this fails for a new name, document it on its page in docs/api, and add it to the table in docs/api.md."""
    everywhere = [name for names in ON.values() for name in names]
    assert sorted(set(everywhere)) == sorted(everywhere)
    public = {f"devshim.{name}" for name in set(ds.__all__) - {"__version__", "random"}}
    public |= {f"devshim.random.{name}" for name in random.__all__}
    of_devshim = {name for name in everywhere if re.fullmatch(r"devshim\.(random\.)?\w+", name)}
    assert of_devshim == public
    assert {f"devshim.backend.{name}" for name in set(backend.__all__) - {"Tensor"}} <= set(everywhere)


@pytest.mark.parametrize("topic", sorted(TEXTS))
def test_a_page_summarises_its_names_and_the_index_has_them(topic: str) -> None:
    names = [name for name in ON[topic] if re.fullmatch(r"devshim\.(random\.)?\w+", name)]
    summary = SUMMARY.search(TEXTS[topic])
    assert (NAMES.findall(summary[1]) if summary else []) == [name.rpartition(".")[2] for name in names]
    (row,) = re.findall(rf"^\| \[.*\]\(api/{topic}\.md\) \|.*$", INDEX, re.MULTILINE)
    assert re.findall(r"\]\(#(\S+?)\)", row) == names
    assert f"\napi/{topic}\n" in INDEX
