"""Tests of the fast path of a copy to the host: it skips no check or observer, and changes no result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.registry import registry
from devshim.transfers import observing

WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "copy": lambda x, device: ds.copy(x, device),
    "place": lambda x, device: ds.place(x, device, copy=True),
    "place, spelled": lambda x, device: ds.place(x, str(device), copy=True),
    "place, in a hurry": lambda x, device: ds.place(x, device, copy=True, non_blocking=True),
}
COPIERS: Any = registry.load("numpy").fast_paths.host_copy
BASE = np.arange(24.0).reshape(2, 3, 4)
ARRAYS: dict[str, Callable[[], np.ndarray]] = {
    "in C order": lambda: BASE,
    "in Fortran's": lambda: np.asfortranarray(BASE),
    "axes exchanged": lambda: BASE.transpose(2, 0, 1),
    "backwards": lambda: BASE[:, ::-1],
    "every other": lambda: BASE[..., ::2],
    "repeated": lambda: np.broadcast_to(BASE[0], (5, 3, 4)),
    "a number": lambda: np.array(3.0),
    "empty": lambda: np.empty((3, 0)),
    "big-endian": lambda: BASE.astype(">f4"),
    "objects": lambda: np.array([1, None, "x"], dtype=object),
    "records": lambda: np.zeros(3, dtype=[("a", "i4"), ("b", "f8")]),
    "dates": lambda: np.array(["2026-11-21"], dtype="M8[D]"),
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of objects that took the fast path."""
    ds.copy(np.ones(1), "cpu")
    seen: list[Any] = []
    copier = COPIERS[np.ndarray]
    monkeypatch.setitem(COPIERS, np.ndarray, lambda x: (seen.append(x), copier(x))[1])
    return seen


@pytest.mark.parametrize("way", WAYS)
def test_the_fast_path_is_taken(way: str, taken: list[Any]) -> None:
    x = np.ones(3)
    assert WAYS[way](x, ds.cpu()) is not x
    assert [each is x for each in taken] == [True]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ARRAYS)
def test_both_ways_give_the_same(way: str, kind: str, taken: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    x = ARRAYS[kind]()
    x.flags.writeable = False
    short = WAYS[way](x, ds.cpu())
    assert len(taken) == 1
    monkeypatch.delitem(COPIERS, np.ndarray)
    long = WAYS[way](x, ds.cpu())
    assert len(taken) == 1
    for made in (short, long):
        assert type(made) is np.ndarray
        assert made.tobytes() == x.tobytes()
        assert (made.dtype, made.shape) == (x.dtype, x.shape)
        assert made.flags.owndata
        assert made.flags.writeable
        assert not np.shares_memory(made, x)
    assert short.strides == long.strides


@pytest.mark.parametrize("way", WAYS)
def test_a_ledger_records_it(way: str, taken: list[Any]) -> None:
    with ds.transfers() as log:
        WAYS[way](BASE, ds.cpu())
    assert [(each.source, each.target, each.bytes, each.tensors) for each in log.records] == [
        (ds.cpu(), ds.cpu(), BASE.nbytes, 1)
    ]
    assert log.records[0].site.startswith(f"{__file__}:")
    assert len(taken) == 1
    WAYS[way](BASE, ds.cpu())
    assert (log.count, len(taken)) == (1, 2)


@pytest.mark.parametrize("way", WAYS)
def test_a_guard_is_asked(way: str, taken: list[Any]) -> None:
    """An explicit copy is not refused by a guard, but the guard knows that it is one."""
    with ds.guard("error"):
        assert WAYS[way](BASE, ds.cpu()).tobytes() == BASE.tobytes()
    assert len(taken) == 1


@pytest.mark.parametrize("way", WAYS)
def test_its_line_is_explained(way: str, taken: list[Any]) -> None:
    with ds.explain(file=None) as lines:
        WAYS[way](BASE, ds.cpu())
    assert len(lines) == 1
    assert "copy" in lines[0]
    assert len(taken) == 1


@pytest.mark.parametrize("way", WAYS)
def test_faults_are_asked_for(way: str, taken: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fault(backend: Any, source: Any, target: Any, what: str) -> None:
        asked.append(what)
        if "bytes" in what:
            raise ZeroDivisionError

    monkeypatch.setattr(observing, "ACTIVE", observing.Active(None, fault, None))
    with pytest.raises(ZeroDivisionError):
        WAYS[way](BASE, ds.cpu())
    assert asked[-1] == f"a copy of {BASE.nbytes} bytes"
    assert taken == []


@pytest.mark.parametrize("way", WAYS)
def test_a_device_that_does_not_exist_is_refused(way: str, taken: list[Any]) -> None:
    with pytest.raises(ds.DeviceNotFoundError):
        WAYS[way](BASE, ds.gpu(7))
    assert taken == []


@pytest.mark.parametrize("way", WAYS)
def test_a_full_host_is_reported_as_always(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(x: Any) -> Any:
        raise MemoryError("no room")

    ds.copy(BASE, "cpu")
    monkeypatch.setitem(COPIERS, np.ndarray, full)
    with pytest.raises(ds.OutOfMemoryError, match="192 bytes") as caught:
        WAYS[way](BASE, ds.cpu())
    assert isinstance(caught.value.__cause__, MemoryError)


@pytest.mark.parametrize("way", WAYS)
def test_other_failures_are_their_own(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(x: Any) -> Any:
        raise ZeroDivisionError

    ds.copy(BASE, "cpu")
    monkeypatch.setitem(COPIERS, np.ndarray, fail)
    with pytest.raises(ZeroDivisionError):
        WAYS[way](BASE, ds.cpu())


@pytest.mark.parametrize("way", WAYS)
def test_what_the_short_way_is_not_for_goes_the_long_one(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ds.copy(BASE, "cpu")
    monkeypatch.setitem(COPIERS, np.ndarray, lambda x: None)
    made = WAYS[way](BASE, ds.cpu())
    assert made is not BASE
    assert made.tobytes() == BASE.tobytes()


@pytest.mark.parametrize("way", WAYS)
def test_subclasses_and_cards_keep_their_own_way(way: str, taken: list[Any], cards: list[ds.Device]) -> None:
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    made = WAYS[way](masked, ds.cpu())
    assert type(made) is np.ma.MaskedArray
    assert made.mask.tolist() == [False, True]
    on_card = WAYS[way](BASE, cards[1])
    assert ds.device_of(on_card) is cards[1]
    assert ds.device_of(WAYS[way](on_card, ds.cpu())) is ds.cpu()
    assert taken == []


@pytest.mark.parametrize("flag", [1, 0, "yes"])
def test_copy_is_none_true_or_false(flag: Any, taken: list[Any]) -> None:
    with pytest.raises(ds.ArgumentError):
        ds.place(BASE, ds.cpu(), copy=flag)
    assert taken == []


def test_never_a_copy_asks_for_the_device_first(taken: list[Any]) -> None:
    """For a missing device, that is the error; for an existing one, the error is that a copy would be needed."""
    with pytest.raises(ds.DeviceNotFoundError):
        ds.place(BASE, "gpu:0", copy=False)
    ds.simulate(1)
    with pytest.raises(ds.CopyNeededError):
        ds.place(BASE, "gpu:0", copy=False)
    assert ds.place(BASE, ds.cpu(), copy=False) is BASE
    assert taken == []
