"""Tests of a reader's first view: `help(ds)`, `dir(ds)`, and the docstring of every public name."""

from __future__ import annotations

import doctest
import inspect
import pydoc
import re
from collections.abc import Callable

import pytest
from docstrings import examples, failures

import devshim as ds

NAMES = [name for name in ds.__all__ if name != "__version__"]
NO_EXAMPLE = {"launch"}
"""The functions whose examples cannot run here: `ds.launch` needs Ray."""


def overview() -> dict[str, list[str]]:
    """Return subject -> names, as the package's docstring lists them."""
    found: dict[str, list[str]] = {}
    subject = ""
    for line in re.findall(r"^    (\S.*|\s+\S.*)$", str(ds.__doc__), re.MULTILINE):
        begun = re.match(r"(\S+(?: \S+)*)  +", line)
        subject = begun[1] if begun else subject
        names = line[begun.end() if begun else 0 :].partition(", and below it ")
        found.setdefault(subject, []).extend(" ".join(names).replace(", and below it", "").split())
    return found


def test_help_lists_every_public_name_by_its_subject_before_anything_else() -> None:
    listed = [name for names in overview().values() for name in names]
    assert sorted(listed) == sorted(NAMES)
    assert max(map(len, str(ds.__doc__).splitlines())) <= 120
    reported = pydoc.plain(pydoc.render_doc(ds))
    head = reported.partition("PACKAGE CONTENTS")[0]
    assert "tensors          place copy device_of" in head
    assert (
        "Return a tensor, or every tensor of a tree, on a device" in reported
    )  # the functions follow, with their own docstrings


def test_dir_is_what_is_public(python: Callable[..., str]) -> None:
    reported = python("""
        import devshim as ds
        assert {name for name in dir(ds) if name[:2] != "__"} == {*ds.__all__} - {"__version__"}
        assert {"__version__", "__doc__", "__file__", "__all__"} <= {*dir(ds)}
        before = dir(ds)
        ds.use("numpy"), ds.zeros(2)
        assert before == dir(ds)
        assert [name for name in dir(ds.random) if name[:2] != "__"] == ds.random.__all__
    """)
    assert reported == ""


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_says_what_it_is_and_where_it_is_from(name: str) -> None:
    found = getattr(ds, name)
    assert inspect.getdoc(found)
    assert found.__name__ in (name, "devshim.random")
    if name != "random":
        assert found.__module__ == "devshim"


def test_random_has_functions_that_say_where_they_are_from() -> None:
    for name in ds.random.__all__:
        assert getattr(ds.random, name).__module__ == "devshim.random"
        assert inspect.getdoc(getattr(ds.random, name))


def test_the_examples_in_docstrings_are_found() -> None:
    names = {test.name for test in examples("numpy")}
    assert {"devshim", "devshim.Device", "devshim.transfers", "devshim.MetricLog", "devshim.random"} <= names


def test_every_public_function_and_class_has_an_example() -> None:
    found = {name: getattr(ds, name) for name in NAMES}
    errors = {name for name, each in found.items() if isinstance(each, type) and issubclass(each, Exception)}
    without = {name for name, each in found.items() if ">>> " not in (inspect.getdoc(each) or "")}
    assert without - errors == NO_EXAMPLE


@pytest.mark.parametrize("test", examples("numpy"), ids=lambda test: test.name)
def test_an_example_in_a_docstring_runs_as_it_is_printed(test: doctest.DocTest) -> None:
    assert failures(test) == ""
