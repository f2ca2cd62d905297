"""The kit covers every feature, loses no test, and treats all adapters the same."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from devshim import testing
from devshim.contract.backend import FEATURES
from devshim.registry import discovery, registry
from devshim.testing import Conformance
from devshim.testing.base import Kit
from devshim.testing.behaviours.capabilities import MODEL_LINES, SNIPPETS


def own_tests(cls: type) -> list[Any]:
    """Return the tests that a class itself defines."""
    return [value for name, value in vars(cls).items() if name.startswith("test_")]


def kit_classes() -> list[type]:
    """Return the classes of the kit that define tests."""
    return [cls for cls in Conformance.__mro__ if issubclass(cls, Kit)]


def marks(test: Any) -> list[Any]:
    """Return a test's marks, including those of its parameters."""
    own = list(getattr(test, "pytestmark", []))
    return own + [mark for each in own for arg in each.args for mark in _of_parameters(arg)]


def _of_parameters(values: Any) -> list[Any]:
    return [mark for value in (values if isinstance(values, list) else []) for mark in getattr(value, "marks", ())]


def test_every_feature_is_tested() -> None:
    found = {
        name
        for cls in kit_classes()
        for test in own_tests(cls)
        for mark in marks(test)
        if mark.name == "feature"
        for name in mark.args
    }
    assert found == set(FEATURES)


def test_no_test_hides_another() -> None:
    counted = Counter(test.__name__ for cls in kit_classes() for test in own_tests(cls))
    assert [name for name, times in counted.items() if times > 1] == []


def test_no_helper_replaces_one_of_another_class() -> None:
    """One class inherits from all classes of the kit. Fixtures may share a name, because they are equal."""
    counted = Counter(
        name
        for cls in kit_classes()[1:]
        if Kit in cls.__bases__
        for name, value in vars(cls).items()
        if isinstance(value, FunctionType) and not name.startswith("__")
    )
    assert [name for name, times in counted.items() if times > 1] == []


def test_every_test_says_what_is_promised() -> None:
    assert [test.__name__ for cls in kit_classes() for test in own_tests(cls) if not test.__doc__] == []


def test_pytest_rewrites_the_assertions_of_the_kit() -> None:
    root = Path(testing.__file__).parent
    asserting = {
        ".".join(("devshim.testing", *path.relative_to(root).with_suffix("").parts))
        for path in root.rglob("*.py")
        if path.parent.name != "isolation"  # its one assertion is for type checkers
        and any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert len(asserting) > 30
    assert [name for name in asserting if not name.startswith(testing.REWRITTEN)] == []


@pytest.mark.parametrize("name", discovery.BUILTIN)
def test_adapters_declare_alike(name: str) -> None:
    """Without importing a framework, gaps are in existing features, and every call has a native line."""
    gaps = registry.gaps(name)
    assert set(gaps) <= set(FEATURES)
    assert all(gap.kind in ("planned", "upstream", "never") and len(gap.reason.split()) > 2 for gap in gaps.values())
    lines = importlib.import_module(discovery.BUILTIN[name].partition(".backend:")[0] + ".snippets").SNIPPETS
    assert sorted(lines) == sorted((*SNIPPETS, *(() if "models" in gaps else MODEL_LINES)))


def test_a_subclass_names_its_backend() -> None:
    with pytest.raises(TypeError, match="must set 'backend'"):
        type("TestNothing", (Conformance,), {})
