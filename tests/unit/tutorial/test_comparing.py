"""Tests of the comparison of a page's frameworks: what counts as a difference, and which framework is the odd one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from devshim.tutorial.comparing import Report, compare, differences
from devshim.tutorial.page import Cell, Page
from devshim.tutorial.record import CellRecord, Record

TITLES = {"torch": "PyTorch", "jax": "JAX", "numpy": "NumPy", "paddle": "PaddlePaddle"}


def tensor(*numbers: float | str, dtype: str = "float32", device: str = "gpu:0", **more: Any) -> dict[str, Any]:
    shape = [len(numbers)]
    return {"kind": "tensor", "shape": shape, "dtype": dtype, "device": device, "numbers": list(numbers), **more}


def value(found: Any) -> CellRecord:
    return CellRecord("ok", value=found)


def printed(text: str) -> CellRecord:
    return CellRecord("ok", outputs=({"output_type": "stream", "name": "stdout", "text": text},))


def raised(name: str, text: str) -> CellRecord:
    return CellRecord("raised", outputs=({"output_type": "error", "ename": name, "evalue": text, "traceback": []},))


def report(cell: Cell, **ran: CellRecord) -> Report:
    page = Page(Path("page.md"), "Title", tuple(ran), 2, (cell,))
    records = {
        name: Record(name, TITLES[name], "1", "1", "3.11", 2, True, "", cells={cell.id: each})
        for name, each in ran.items()
    }
    return compare(page, records)


CELL = Cell("a", 1, "x")
BASE = tensor(1.0, 2.0)
TEXT = {"kind": "text", "value": "a"}
NONE = {"kind": "none"}


@pytest.mark.parametrize(
    ("first", "other", "found"),
    [
        (value(BASE), value(tensor(1.0, 2.5)), "the numbers of the value differ: 2.5, not 2.0 (1 of 2 differ)"),
        (value(BASE), value(tensor(1.0)), "the shape of the value is (1,), not (2,)"),
        (value(BASE), value(tensor(1.0, 2.0, dtype="float64")), "the dtype of the value is float64, not float32"),
        (value(BASE), value(tensor(1.0, 2.0, device="cpu")), "the device of the value is cpu, not gpu:0"),
        (value(BASE), value(tensor(1.0, "nan")), "the numbers of the value differ: nan, not 2.0 (1 of 2 differ)"),
        (value(tensor(1, digest="a")), value(tensor(1, digest="b")), "some numbers of the value differ"),
        (value(tensor(1.0, mean=2.0)), value(tensor(1.0, mean=3.0)), "the numbers of the value differ: mean 3.0"),
        (value(BASE), value(NONE), "the value is None, not a tensor"),
        (value(BASE), CellRecord("ok"), "the value is None, not a tensor"),
        (value({"kind": "number", "value": 1}), value({"kind": "number", "value": 2}), "the value is 2, not 1"),
        (value(TEXT), value({"kind": "text", "value": "b"}), "the value is 'b', not 'a'"),
        (
            value({"kind": "device", "value": "cpu"}),
            value({"kind": "device", "value": "gpu:0"}),
            "the value is gpu:0, not cpu",
        ),
        (
            value({"kind": "list", "items": [TEXT]}),
            value({"kind": "list", "items": []}),
            "the value has 0 items, not 1",
        ),
        (
            value({"kind": "dict", "items": {"w": {"kind": "tuple", "items": [BASE]}}}),
            value({"kind": "dict", "items": {"w": {"kind": "tuple", "items": [tensor(0.0, 0.0)]}}}),
            "the numbers of the value['w'][0] differ",
        ),
        (
            value({"kind": "dict", "items": {"w": TEXT}}),
            value({"kind": "dict", "items": {"b": TEXT}}),
            "the value has the keys 'b', not 'w'",
        ),
        (
            CellRecord("ok", names={"x": BASE}),
            CellRecord("ok", names={"x": tensor(1.0, 3.0)}),
            "the numbers of x differ",
        ),
        (printed("one\ntwo\n"), printed("one\n2\n"), "prints '2', not 'two' (line 2)"),
        (printed("gpu:0\n"), printed("gpu:1\n"), "prints 'gpu:1', not 'gpu:0'"),
        (printed("0.5\n"), printed("0.6\n"), "prints '0.6', not '0.5'"),
        (printed(""), printed("text\n"), "prints 'text', not ''"),
        (raised("ValueError", "no"), raised("TypeError", "no"), "raises 'TypeError: no', not 'ValueError: no'"),
        (raised("ValueError", "no"), CellRecord("ok"), "raises nothing, not 'ValueError: no'"),
        (CellRecord("ok"), raised("ValueError", "no"), "raises 'ValueError: no', the others raise nothing"),
    ],
)
def test_a_difference_is_found(first: CellRecord, other: CellRecord, found: str) -> None:
    assert any(each.startswith(found) for each in differences(first, other)), differences(first, other)
    assert differences(other, first), "it is found from either side"
    assert differences(first, first) == []


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (value(tensor(1.0, 2.0)), value(tensor(1.00001, 1.99999))),
        (value(tensor(0.0, 100.0)), value(tensor(1e-5, 100.0))),
        (value(tensor("nan", "inf")), value(tensor("nan", "inf"))),
        (value({"kind": "object", "type": "torch.nn.Linear"}), value({"kind": "object", "type": "keras.Dense"})),
        (printed("loss 0.30000001\n"), printed("loss 0.3\n")),
        (CellRecord("ok", names={"x": BASE}), CellRecord("ok", names={"y": BASE})),
    ],
)
def test_what_is_no_difference(first: CellRecord, other: CellRecord) -> None:
    assert differences(first, other) == []


def test_the_tolerance_is_an_option() -> None:
    near = value(tensor(1.0)), value(tensor(1.01))
    assert differences(*near)
    assert differences(*near, rtol=0.1) == []


def test_a_variable_that_is_shown_is_named_once() -> None:
    first, other = (CellRecord("ok", value=each, names={"x": each, "z": BASE}) for each in (BASE, tensor(1.0, 3.0)))
    assert differences(first, other) == ["the numbers of x differ: 3.0, not 2.0 (1 of 2 differ)"]
    assert len(differences(first, CellRecord("ok", value=TEXT, names=other.names))) == 2


def test_one_against_many_is_the_odd_one() -> None:
    cell = report(CELL, jax=value(tensor(5.0)), torch=value(BASE), numpy=value(BASE), paddle=value(BASE)).cells["a"]
    assert cell.groups == (("torch", "numpy", "paddle"), ("jax",))
    assert cell.odd == ("jax",)
    assert list(cell.differences) == ["jax"]
    assert cell.differences["jax"][0].startswith("the shape")
    assert not cell.agree


def test_two_against_two_have_no_odd_one() -> None:
    other = value(tensor(5.0))
    cell = report(CELL, torch=value(BASE), jax=other, numpy=value(BASE), paddle=other).cells["a"]
    assert (cell.groups, cell.odd) == ((("torch", "numpy"), ("jax", "paddle")), ())
    assert set(cell.differences) == {"jax", "paddle"}


def test_a_declared_difference_is_not_reported() -> None:
    ran = {"torch": value(BASE), "jax": value(tensor(0.0))}
    assert [each.cell for each in report(CELL, **ran).undeclared] == [CELL]
    allowed = report(Cell("a", 1, "x", tags=("differs",)), **ran)
    assert allowed.undeclared == []
    assert not allowed.cells["a"].agree


def test_a_frameworks_own_cell_is_not_compared() -> None:
    own = Cell("a", 1, "x", frameworks=("torch", "jax"))
    assert report(own, torch=value(BASE), jax=value(tensor(0.0))).cells == {}


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_framework_that_failed_is_left_out(status: str) -> None:
    cell = report(CELL, torch=value(BASE), jax=CellRecord(status)).cells["a"]
    assert cell.groups == (("torch",),)
    assert cell.agree


def test_errors_may_name_their_framework() -> None:
    named = {name: raised("DeviceNotFoundError", f"{TITLES[name]} has 2 GPUs") for name in ("torch", "jax")}
    assert report(CELL, **named).undeclared == []
    assert report(CELL, **{**named, "jax": raised("DeviceNotFoundError", "JAX has 3 GPUs")}).undeclared
