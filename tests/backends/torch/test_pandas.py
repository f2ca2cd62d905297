"""Tables of pandas in trees: only columns of objects can have tensors, which do not move."""

from __future__ import annotations

import warnings

import pytest
import torch

import devshim as ds
from devshim.trees import not_moved

pandas = pytest.importorskip("pandas", reason="library: pandas is not installed")


@pytest.fixture(autouse=True)
def _cards(three_cards, monkeypatch):
    monkeypatch.setattr(not_moved, "_WARNED", set())


class Holder:
    def __init__(self, table):
        self.table = table


@pytest.mark.parametrize(
    "make",
    [
        lambda x: pandas.Series([1, x]),
        lambda x: pandas.DataFrame({"number": [1, 2], "tensor": [x, x]}),
        lambda x: pandas.DataFrame([[x, 1]], columns=["twice", "twice"]),
        lambda x: pandas.Series([[x], None]),
        lambda x: Holder(pandas.Series([x])),
    ],
    ids=["series", "table", "two columns of one name", "lists", "held"],
)
def test_tensors_in_a_table_that_do_not_move_cause_a_warning(make):
    with pytest.warns(ds.NotMovedWarning, match=r"(Series|DataFrame|Holder) at 'table'"):
        ds.place({"table": make(torch.ones(2)), "x": torch.ones(2)}, "gpu:1")


def test_a_table_without_tensors_passes_through():
    table = pandas.DataFrame({"number": [1.5, 2.5], "text": ["a", "b"], "object": [None, {}]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        placed = ds.place({"table": table, "series": table["number"], "x": torch.ones(2)}, "gpu:1")
    assert placed["table"] is table


def test_the_hint_is_a_line_that_works():
    x = torch.ones(2)
    with pytest.raises(ds.NotATensorError, match=r"ds\.place\(x\['a'\]\.tolist\(\), 'gpu:1'\)"):
        ds.place(pandas.DataFrame({"n": [1], "a": [x]}), "gpu:1")
    with pytest.raises(ds.NotATensorError, match=r"ds\.place\(x\.tolist\(\), 'gpu:1'\)"):
        ds.place(pandas.Series([x]), "gpu:1")
    (placed,) = ds.place(pandas.Series([x]).tolist(), "gpu:1")
    assert ds.device_of(placed) is ds.gpu(1)
    with pytest.raises(ds.NotATensorError, match=r"ds\.asarray\(x"):
        ds.place(pandas.Series([1.0]), "gpu:1")
