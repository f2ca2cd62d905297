"""Tests of the docstring examples for PyTorch."""

from __future__ import annotations

import doctest
from collections.abc import Iterator

import pytest
from docstrings import examples, failures

import devshim as ds


@pytest.fixture(autouse=True)
def _no_gpus_are_left() -> Iterator[None]:
    """End the simulation that an example began: the patches of PyTorch would stay for the tests after it."""
    yield
    ds.simulate(gpus=0)


@pytest.mark.parametrize("test", examples("torch"), ids=lambda test: test.name)
def test_an_example_in_a_docstring_runs_as_it_is_printed(test: doctest.DocTest) -> None:
    assert failures(test) == ""


def test_the_example_of_explain_is_among_them() -> None:
    assert "devshim.explain" in {test.name for test in examples("torch")}
