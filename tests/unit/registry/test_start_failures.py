"""Tests of GPUs that are counted but cannot start: every call gives the framework's reason, and the count is 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import devshim as ds
from devshim.devices import startup
from devshim.devices.device import CPU, Device
from devshim.registry import start_failures

TOO_OLD = "the driver is too old"


@pytest.fixture
def unable(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the fictitious framework on a driver that counts two GPUs and starts none."""

    def start(self: Any, *args: Any) -> None:
        if any(isinstance(each, Device) and each is not CPU for each in args):
            raise RuntimeError(TOO_OLD)

    def starting(own: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any) -> Any:
            start(self, *args)
            return own(self, *args)

        return call

    cls = type(fake)
    for name in ("describe", "memory", "copy_to", "zeros", "from_numpy", "synchronize", "empty_cache", "scope"):
        monkeypatch.setattr(cls, name, starting(getattr(cls, name)))
    monkeypatch.setattr(cls, "memory_policy", lambda self, policy: start(self, ds.gpu(0)))
    monkeypatch.setattr(cls, "gaps", {})
    monkeypatch.setattr(cls, "count", lambda self, kind: self.real if self.able() or kind == "cpu" else 0)
    monkeypatch.setattr(cls, "able", lambda self: startup.reason(self.name, "gpu") is None, raising=False)
    monkeypatch.setattr(
        cls, "why_unable_to_start", lambda self, error: f"it says {error}" if TOO_OLD in str(error) else None
    )
    monkeypatch.setattr(startup, "_REASONS", {})
    monkeypatch.setattr(start_failures, "_LOOKED_AT", set())
    ds.use("fakeframe")
    return fake


CALLS: dict[str, Callable[[Any], object]] = {
    "describe": lambda x: ds.describe("gpu:1"),
    "memory": lambda x: ds.memory("gpu:1"),
    "synchronize": lambda x: ds.synchronize("gpu:1"),
    "empty_cache": lambda x: ds.empty_cache("gpu:1"),
    "memory_policy": lambda x: ds.memory_policy(0.5),
    "place": lambda x: ds.place(x, "gpu:1"),
    "tree": lambda x: ds.place([x], "gpu:1"),
    "zeros": lambda x: ds.zeros(3, device="gpu:1"),
    "Placement.balanced": lambda x: ds.Placement.balanced({"x": x}, ["gpu:1"]),
}


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_gpus_that_cannot_start_are_not_found(unable: Any, call: str, started: bool) -> None:
    x = ds.zeros(3)
    unable.has_started = started and call != "memory_policy"
    assert ds.device_count() == 2
    with pytest.raises(ds.DeviceNotFoundError, match=f"Fakeframe has 0 gpu devices: it says {TOO_OLD}") as caught:
        CALLS[call](x)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert ds.device_count() == 0
    assert ds.try_gpu() is CPU
    with pytest.raises(ds.DeviceNotFoundError, match=TOO_OLD):
        ds.require("gpu:0")


@pytest.mark.parametrize("call", ["synchronize", "empty_cache"])
@pytest.mark.parametrize("started", [False, True])
def test_one_that_is_named_is_looked_at_once(
    unable: Any, monkeypatch: pytest.MonkeyPatch, call: str, started: bool
) -> None:
    """Frameworks do nothing for a GPU that has not been used, so they would not detect it."""
    cls, looked = type(unable), []
    unable.has_started = started  # by another framework, for example
    monkeypatch.setattr(cls, call, lambda self, device: None)
    with pytest.raises(ds.DeviceNotFoundError, match=TOO_OLD):
        getattr(ds, call)("gpu:1")
    startup._REASONS.clear()
    monkeypatch.setattr(cls, "describe", lambda self, device: looked.append(device))
    for _ in range(2):
        getattr(ds, call)("gpu:1")
        getattr(ds, call)("cpu")
    assert looked == [ds.gpu(1)]


@pytest.mark.parametrize("call", [ds.synchronize, ds.empty_cache])
def test_where_none_is_named_nothing_is_wanting(unable: Any, call: Callable[[], None]) -> None:
    unable.has_started = True
    call()
    assert ds.device_count() == 0


def test_the_smaller_batch_is_tried_all_the_same(unable: Any) -> None:
    """The cache of a GPU that does not start is empty."""

    def step(size: int) -> int:
        if size > 2:
            raise MemoryError
        return size

    assert ds.shrink_batch(step, 8) == (2, 2)


def test_a_framework_that_does_not_start_at_all(unable: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow starts its GPUs with the first operator, even on the host."""

    def fail(self: Any, value: int) -> None:
        raise RuntimeError(TOO_OLD)

    monkeypatch.setattr(type(unable), "seed", fail)
    with pytest.raises(ds.DeviceNotFoundError, match=f"Fakeframe does not start: it says {TOO_OLD}") as caught:
        ds.random.seed(1)
    assert "CUDA_VISIBLE_DEVICES=''" in caught.value.hint
    assert ds.device_count() == 0


@pytest.mark.parametrize("call", CALLS)
def test_another_error_stays_what_it_is(unable: Any, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(unable), "why_unable_to_start", lambda self, error: None)
    with pytest.raises(RuntimeError, match=TOO_OLD):
        CALLS[call](ds.zeros(3))
    assert ds.device_count() == 2
