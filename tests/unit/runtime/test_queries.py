"""Tests of queries: the dtypes that a device can hold."""

from __future__ import annotations

from typing import Any

import pytest

import devshim as ds
from devshim.devices.dtypes import DTYPES
from devshim.errors import messages
from devshim.runtime import queries


def test_a_dtype_that_the_framework_lacks_is_not_listed(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def dtype(self: Any, name: str) -> str:
        if name == "complex64":
            raise messages.no_dtype(self, name)
        return name

    monkeypatch.setattr(type(fake), "dtype", dtype)
    monkeypatch.setattr(queries, "_DTYPES", {})
    ds.use("fakeframe")
    assert ds.describe("gpu:0").dtypes == tuple(name for name in DTYPES if name != "complex64")
