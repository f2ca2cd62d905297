"""Tests of the dtypes that have one name on every framework, and of the NumPy dtype for a name."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

import devshim as ds
from devshim.devices.dtypes import DTYPES, numpy_dtype, promoted
from devshim.transfers import dlpack


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bfloat16"])
def test_numpys_own(name: str) -> None:
    assert numpy_dtype(name) == name


def test_dlpack_has_a_form_for_each() -> None:
    assert set(dlpack.FORMS) == set(DTYPES)


def test_what_ml_dtypes_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    giving = ModuleType("ml_dtypes")
    giving.float8_made_up = np.int8  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ml_dtypes", giving)
    assert numpy_dtype("float8_made_up") == np.int8
    with pytest.raises(ds.ConversionError, match="'float8_unheard_of'"):
        numpy_dtype("float8_unheard_of")


def test_without_ml_dtypes_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ds.ConversionError, match="'float8_made_up'") as caught:
        numpy_dtype("float8_made_up")
    assert "pip install ml_dtypes" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "other", "common"),
    [
        ("float16", "float32", "float32"),
        ("float16", "bfloat16", "float32"),
        ("int8", "uint8", "int16"),
        ("uint32", "int32", "int64"),
        ("uint64", "int64", "float64"),
        ("bool", "uint8", "uint8"),
        ("int64", "float16", "float16"),
        ("float64", "complex64", "complex128"),
        ("int64", "complex64", "complex64"),
        ("bfloat16", "bfloat16", "bfloat16"),
    ],
)
def test_promotion_has_one_rule(name: str, other: str, common: str) -> None:
    assert promoted(name, other) == promoted(other, name) == common
