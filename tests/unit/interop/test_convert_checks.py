"""Tests that a conversion makes each of its checks, and makes it once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.registry import registry
from devshim.transfers import observing

X = np.arange(4.0)


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[Any]:
    """Count the calls of a method while a test runs."""
    calls: list[Any] = []
    original: Callable[..., Any] = getattr(owner, name)

    def call(*args: Any) -> Any:
        calls.append(args)
        return original(*args)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_the_device_is_looked_up_once(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted(monkeypatch, fake, "count")
    assert ds.device_of(ds.convert(X, "fakeframe", "gpu:1")) is ds.gpu(1)
    assert counts == [("gpu",)]


def test_a_tensor_of_the_same_framework_is_checked_once(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = ds.convert(X, "fakeframe", "gpu:1")
    counts = counted(monkeypatch, fake, "count")
    assert ds.convert(x, "fakeframe", "gpu:1") is x
    assert ds.device_of(ds.convert(x, "fakeframe", "gpu:0")) is ds.gpu(0)
    assert counts == [("gpu",)]


def test_the_owner_of_a_tensor_is_looked_up_once(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ds.convert(X, "fakeframe")
    calls = counted(monkeypatch, registry, "backend_for")
    ds.convert(X, "fakeframe", "gpu:1")
    assert len(calls) == 1


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("target", ["fakeframe", "numpy"])
def test_a_missing_device_is_refused_before_any_value_is_read(
    target: str, copy: bool | None, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = ds.convert(X, "fakeframe", copy=True)
    reads = counted(monkeypatch, fake, "to_numpy")
    with pytest.raises(ds.DeviceNotFoundError, match="gpu:7"):
        ds.convert(x, target, "gpu:7", copy=copy)
    assert reads == []


def test_a_result_elsewhere_is_refused(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = fake.from_numpy
    monkeypatch.setattr(fake, "from_numpy", lambda array, device, copy: original(array, ds.gpu(0), copy))
    with pytest.raises(ds.PlacementError, match="gpu:1"):
        ds.convert(X, "fakeframe", "gpu:1")


def test_observers_see_a_conversion_to_a_gpu_once(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with ds.transfers() as log, ds.guard("error"):
        ds.convert(X, "fakeframe", "gpu:1")
    assert [(record.source, record.target, record.bytes) for record in log.records] == [(ds.cpu(), ds.gpu(1), X.nbytes)]
    with ds.explain(file=None) as shown:
        ds.convert(X, "fakeframe", "gpu:1")
    assert len(shown) == 1


def test_a_fault_is_asked_for_once_as_a_name_and_once_as_a_copy(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[Any, ...]] = []
    monkeypatch.setattr(observing, "ACTIVE", observing.Active(None, lambda *call: events.append(call), None))
    ds.convert(X, "fakeframe", "gpu:1")
    assert [what for _, _, target, what in events if target is ds.gpu(1)] == [
        "a call that names it",
        f"a copy of {X.nbytes} bytes",
    ]


def test_a_conversion_to_a_simulated_gpu_is_one_copy_for_its_faults(fake: Any) -> None:
    with ds.simulate(2, faults=ds.Fault("gpu:1", "copy", at=2)):
        x = ds.convert(X, "fakeframe", copy=True)
        ds.convert(x, "numpy", "gpu:1")
        with pytest.raises(ds.DeviceFailedError):
            ds.convert(x, "numpy", "gpu:1")
        assert ds.convert(x, "numpy", "gpu:1").tolist() == X.tolist()
