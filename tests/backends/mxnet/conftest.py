"""Fixtures of the tests of MXNet."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

import devshim as ds


@pytest.fixture
def old_calls() -> Iterator[None]:
    """Ignore the warnings that MXNet causes itself by calling functions that it has deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(as_in_context|Context class|ndarray.ctx)", DeprecationWarning)
        yield


def _semantics(numpy: bool) -> Iterator[None]:
    """Use the NumPy interface in Gluon and operators, or the older one; 2.0 starts with the NumPy interface."""
    npx, before = ds.framework("mxnet").npx, ds.framework("mxnet").util.is_np_array()
    npx.set_np() if numpy else npx.reset_np()
    yield
    npx.set_np() if before else npx.reset_np()


@pytest.fixture
def numpy_semantics() -> Iterator[None]:
    """Use the NumPy interface in Gluon and operators; 2.0 starts with it."""
    yield from _semantics(True)


@pytest.fixture
def older_semantics() -> Iterator[None]:
    """Use the older interface in Gluon and operators; 1.9 starts with it."""
    yield from _semantics(False)
