"""Tests of the docstring examples for PyTorch."""

from __future__ import annotations

import doctest

import pytest
from docstrings import examples, failures


@pytest.mark.parametrize("test", examples("torch"), ids=lambda test: test.name)
def test_an_example_in_a_docstring_runs_as_it_is_printed(test: doctest.DocTest) -> None:
    assert failures(test) == ""


def test_the_example_of_explain_is_among_them() -> None:
    assert "devshim.explain" in {test.name for test in examples("torch")}
