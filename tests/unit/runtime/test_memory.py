"""Tests of visible devices, memory policies and waiting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import devshim as ds
from devshim.devices import nvml
from devshim.registry import registry
from devshim.runtime import visible_devices


def test_a_full_card_that_shows_when_it_is_waited_for(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def synchronize(self: Any, device: ds.Device) -> None:
        raise MemoryError("too much was asked")

    monkeypatch.setattr(type(fake), "synchronize", synchronize)
    monkeypatch.setattr(type(fake), "is_out_of_memory", lambda self, error: isinstance(error, MemoryError))
    with (
        ds.using("fakeframe"),
        pytest.raises(ds.OutOfMemoryError, match="gpu:1 is out of memory: ") as found,
    ):
        ds.synchronize("gpu:1")
    assert isinstance(found.value.__cause__, MemoryError)


@pytest.fixture
def nvidia(monkeypatch: pytest.MonkeyPatch) -> list[nvml.Card]:
    """Return three NVIDIA GPUs of a machine, as its driver reports them."""
    cards = [nvml.Card(i, f"Card {i}", f"GPU-{i}", 1, 1) for i in range(3)]
    monkeypatch.setattr(nvml, "cards", lambda: cards)
    monkeypatch.setattr(nvml, "why_no_cards", lambda: f"the driver shows {len(cards)}")
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    monkeypatch.setattr(visible_devices, "_before", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "x")  # so that the test restores it
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    return cards


def test_visible_devices_are_renumbered(nvidia: object, fake: Any) -> None:
    ds.set_visible_devices([2, 0])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,0"
    assert fake.shown == [[2, 0]]
    ds.set_visible_devices(np.array([1]))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    ds.set_visible_devices([])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_what_was_visible_before_comes_back(nvidia: object, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ds.set_visible_devices(None)
    assert fake.shown == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "5")
    ds.set_visible_devices([1])
    ds.set_visible_devices([])
    os.environ.pop("HIP_VISIBLE_DEVICES")  # as PyTorch for AMD does
    ds.set_visible_devices(None)
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["HIP_VISIBLE_DEVICES"]) == ("2,1", "5")
    assert fake.shown == [[1], [], None]
    ds.set_visible_devices(None)
    assert fake.shown == [[1], [], None]


def test_visible_devices_are_taken_back_before_the_start_alone(nvidia: object, fake: Any) -> None:
    ds.set_visible_devices([1])
    fake.has_started = True
    with pytest.raises(ds.AlreadyStartedError, match="Fakeframe"):
        ds.set_visible_devices(None)
    fake.has_started = False
    ds.set_visible_devices(None)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [("GPU-a, GPU-b", [1], "GPU-b"), ("3,5,7", [2, 0], "7,3"), ("0,1,-1,2", [1], "1"), ("MIG-x", [0], "MIG-x")],
)
def test_among_those_visible_now(
    before: str, wanted: list[int], after: str, nvidia: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    ds.set_visible_devices(wanted)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == after


@pytest.mark.parametrize("hidden", ["-1", "", "NoDevFiles", "-1,0,1"])
def test_hidden_cards_cannot_be_shown(hidden: str, nvidia: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    with pytest.raises(ds.DeviceNotFoundError, match=f"0 are visible: CUDA_VISIBLE_DEVICES is {hidden!r}"):
        ds.set_visible_devices([0])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == hidden


def test_too_many_and_none_at_all(nvidia: list[Any]) -> None:
    with pytest.raises(ds.DeviceNotFoundError, match="asks for gpu:3, and 3 are visible: the driver shows no more"):
        ds.set_visible_devices([0, 3])
    nvidia.clear()
    with pytest.raises(ds.DeviceNotFoundError, match="asks for gpu:0, and 0 are visible"):
        ds.set_visible_devices([0])
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize("indices", [[-1], [0, 0], ["0"], "01", 1, [True], [1.0], [None]])
def test_visible_devices_arguments(indices: Any, nvidia: object) -> None:
    with pytest.raises(ds.ArgumentError, match="indices"):
        ds.set_visible_devices(indices)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_too_late_says_who_started(nvidia: object, fake: Any) -> None:
    fake.has_started = True
    with pytest.raises(
        ds.AlreadyStartedError, match=r"ds.set_visible_devices\(\[1\]\) came too late: Fakeframe"
    ) as caught:
        ds.set_visible_devices([1])
    assert "top of the program" in str(caught.value.hint)
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_what_fails_half_way_is_undone(nvidia: object, fake: Any) -> None:
    fake.failure = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        ds.set_visible_devices([1])
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_visible_among_simulated_ones(nvidia: object) -> None:
    ds.simulate(3)
    ds.set_visible_devices([2, 1])
    assert ds.device_count() == 2
    with pytest.raises(ds.DeviceNotFoundError, match="devshim simulates 2"):
        ds.set_visible_devices([2])
    ds.set_visible_devices([])
    assert ds.device_count() == 0
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_memory_policy(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ds.UnsupportedError, match="NumPy"):
        ds.memory_policy("grow")
    ds.use("fakeframe")
    with pytest.raises(ds.UnsupportedError, match="it takes no advice"):
        ds.memory_policy(0.5)
    monkeypatch.setattr(type(fake), "gaps", {})
    ds.memory_policy(0.5)
    fake.has_started = True
    with pytest.raises(ds.AlreadyStartedError, match=r"ds.memory_policy\('grow'\) came too late"):
        ds.memory_policy("grow")
    assert fake.policies == [0.5]


class Other:
    """A framework that is imported, and takes whole GPUs at first use unless configured otherwise."""

    gaps: ClassVar[dict[str, object]] = {}
    title, name, simulated, policies_after_start = "Otherframe", "otherframe", 0, ()

    def __init__(self, cards: int = 1, started: bool = False) -> None:
        self.cards, self.has_started = cards, started
        self.policies: list[object] = []

    def kinds(self) -> tuple[str, ...]:
        return ("gpu",)

    def count(self, kind: str) -> int:
        return self.cards

    def started(self) -> bool:
        return self.has_started

    def memory_policy(self, policy: object) -> None:
        self.policies.append(policy)


@pytest.fixture
def beside(fake: Any) -> Iterator[Callable[..., Other]]:
    """Yield a function that imports another framework in addition to the current one, which now accepts a policy."""
    with pytest.MonkeyPatch.context() as patched:  # undone before the simulation is
        patched.setattr(type(fake), "gaps", {})
        ds.use("fakeframe")

        def imports(**facts: Any) -> Other:
            other = Other(**facts)
            patched.setattr(registry, "imported_backends", lambda: [fake, other])
            return other

        yield imports


def test_growing_memory_is_for_all_that_are_imported(fake: Any, beside: Callable[..., Other]) -> None:
    """Frameworks that share a GPU all need it; a fraction applies to the current one."""
    other = beside()
    ds.memory_policy(0.5)
    assert (fake.policies, other.policies) == ([0.5], [])
    ds.memory_policy("grow")
    assert (fake.policies, other.policies) == ([0.5, "grow"], ["grow"])


def test_growing_memory_comes_before_the_start_of_any(fake: Any, beside: Callable[..., Other]) -> None:
    other = beside(started=True)
    with pytest.raises(ds.AlreadyStartedError, match="came too late: Otherframe"):
        ds.memory_policy("grow")
    assert fake.policies == other.policies == []
    ds.memory_policy(0.5)
    without = beside(started=True, cards=0)  # it has no GPU to take
    ds.memory_policy("grow")
    assert (fake.policies, without.policies) == ([0.5, "grow"], [])


def test_a_policy_that_is_never_late(fake: Any, beside: Callable[..., Other], monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch takes memory as it needs it, and a limit at any time; Paddle and MXNet grow without being configured."""
    beside(cards=0)
    fake.has_started = True
    monkeypatch.setattr(type(fake), "policies_after_start", ("grow",), raising=False)
    ds.memory_policy("grow")
    with pytest.raises(ds.AlreadyStartedError):
        ds.memory_policy(0.5)
    monkeypatch.setattr(type(fake), "policies_after_start", ("grow", "fraction"))
    ds.memory_policy(0.5)
    assert fake.policies == ["grow", 0.5]


@pytest.mark.parametrize("policy", ["Grow", "", 0, -0.5, 1.5, float("nan"), None, True, [0.5], np.array([0.5, 0.5])])
def test_memory_policy_arguments(policy: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="policy"):
        ds.memory_policy(policy)


def test_waiting_and_the_hosts_memory(cards: list[ds.Device]) -> None:
    ds.synchronize()
    ds.empty_cache()
    for device in cards:
        ds.synchronize(device)
        ds.empty_cache(device)
    for call in (ds.synchronize, ds.empty_cache, ds.memory):
        with pytest.raises(ds.DeviceNotFoundError):
            call("gpu:5")
    host = ds.memory("cpu")
    assert host.total is None or host.total > 0


def test_memory_is_counted(cards: object) -> None:
    before = ds.memory(1)
    x = ds.zeros(1000, device=1, dtype="float64")
    assert ds.memory(1).used - before.used == 8192
    del x
    assert ds.memory(1).used == before.used
    assert ds.memory(1).peak >= before.used + 8192


def test_amd_cards_are_numbered_as_asked() -> None:
    """No lightweight library counts them, so the framework refuses missing ones."""
    assert visible_devices._visible("HIP_VISIBLE_DEVICES", [2, 0]) == (["0", "1", "2"], "")
    assert visible_devices._visible("HIP_VISIBLE_DEVICES", []) == ([], "")


# ---------------------------------------------------------------------- visible simulated GPUs
def test_simulated_gpus_in_use_cannot_be_hidden() -> None:
    ds.simulate(2)
    x = ds.zeros(4, device="gpu:1")
    reported = r"came too late: NumPy has already made a tensor on gpu:1, which is simulated"
    for wanted in ([0], None):
        with pytest.raises(ds.AlreadyStartedError, match=reported):
            ds.set_visible_devices(wanted)
    assert ds.device_count() == 2
    assert ds.device_of(x) is ds.gpu(1)


def test_hidden_simulated_gpus_come_back() -> None:
    ds.simulate(3)
    ds.set_visible_devices([0, 2])
    assert ds.device_count() == 2
    ds.set_visible_devices([0])
    assert ds.device_count() == 1
    ds.set_visible_devices(None)
    assert ds.device_count() == 3
    ds.set_visible_devices(None)
    assert ds.device_count() == 3


def test_gpus_that_are_simulated_again_are_all_shown() -> None:
    ds.simulate(3)
    ds.set_visible_devices([1])
    ds.simulate(4)
    ds.set_visible_devices(None)
    assert ds.device_count() == 4


@pytest.mark.parametrize(("gpus", "reported"), [(1, "1 is visible: devshim simulates 1"), (2, "2 are visible")])
def test_a_simulated_gpu_that_is_not_there_cannot_be_shown(gpus: int, reported: str) -> None:
    ds.simulate(gpus)
    with pytest.raises(ds.DeviceNotFoundError, match=f"asks for gpu:{gpus}, and {reported}"):
        ds.set_visible_devices([0, gpus])
    assert ds.device_count() == gpus
    ds.set_visible_devices([gpus - 1])
    assert ds.device_count() == 1
    ds.set_visible_devices(None)
    assert ds.device_count() == gpus


def test_a_real_card_is_not_called_simulated(fake: Any) -> None:
    ds.use("fakeframe")
    info = ds.describe("gpu:1")
    assert (info.device, info.name, info.backend, info.simulated) == (ds.gpu(1), "made up", "fakeframe", False)
    assert "(simulated)" not in repr(ds.Placement({"a": "gpu:1"}))
