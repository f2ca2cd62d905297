"""Tests of the memory count of simulated GPUs, and of faults: the same for every framework, tested on NumPy GPUs."""

from __future__ import annotations

import gc
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.registry import registry
from devshim.simulation import memory
from devshim.simulation.memory import ROUND, SimulatedDevice, SimulatedDevices
from devshim.transfers import observing

GIB = 2**30
LEAVES_LOCKED = (3, 14) <= sys.version_info < (3, 15)
"""True for a Python in which an interrupt between the entry of a lock and the block leaves any lock locked.

This is python/cpython#148874, which 3.15 has fixed; nothing outside Python can release this lock.
"""


@pytest.fixture(autouse=True)
def _numpy() -> Iterator[None]:
    ds.use("numpy")
    try:
        yield
    finally:
        ds.simulate(0)
        ds.use(None)


class FullError(ds.OutOfMemoryError, BufferError):
    """A framework's own error for a full GPU, which is also devshim's."""


class Owner:
    """An object that takes memory."""


def card(limit: int | None = None, *faults: ds.Fault) -> SimulatedDevice:
    cards = SimulatedDevices(FullError)
    cards.begin(2, limit, faults)
    return cards[1]


def used(one: SimulatedDevice) -> int | None:
    return one.info().used


@pytest.mark.parametrize(("nbytes", "taken"), [(0, 0), (1, ROUND), (ROUND, ROUND), (ROUND + 1, 2 * ROUND)])
def test_an_allocation_is_rounded_up(nbytes: int, taken: int) -> None:
    one, owner = card(), Owner()
    one.track(owner, nbytes)
    one.track(owner, nbytes)  # registered twice, counted once
    assert used(one) == taken
    del owner
    assert used(one) == 0
    assert one.info().peak == taken


def test_a_full_card_says_what_was_asked_and_what_is_free() -> None:
    one = card(10 * ROUND + 100)
    owner = Owner()
    one.track(owner, 9 * ROUND)
    with pytest.raises(FullError) as caught:
        one.track(Owner(), ROUND + 1)
    assert caught.value.problem == "gpu:1 is out of memory: 513 bytes were requested, 512 bytes are free"
    assert "ds.shrink_batch" in str(caught.value.hint)
    assert type(pickle.loads(pickle.dumps(caught.value))) is FullError
    assert used(one) == 9 * ROUND, "what was refused takes nothing"
    del owner
    assert one.info().free == one.info().total - 100 == 10 * ROUND  # type: ignore[operator]


def test_begin_keeps_what_is_there() -> None:
    cards, owner = SimulatedDevices(), Owner()
    cards.begin(2, None)
    cards[0].track(owner, ROUND)
    cards[0].track(Owner(), 8 * ROUND)
    cards.begin(1, 4 * ROUND)
    assert [each.device.index for each in cards] == [0, 1]
    assert cards[0].info() == ds.MemoryInfo(total=4 * ROUND, used=ROUND, free=3 * ROUND, peak=ROUND)
    cards[0].track(Owner(), 2 * ROUND)
    cards[0].reset_peak()
    assert cards[0].info().peak == ROUND


def test_threads_and_the_limit() -> None:
    """Threads never get more than the limit, and all memory is freed."""
    one, most = card(64 * ROUND), []

    def work() -> None:
        for size in range(1, 400):
            owner = Owner()
            try:
                one.track(owner, size * 40)
            except ds.OutOfMemoryError:
                continue
            most.append(used(one))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most
    assert max(most) <= 64 * ROUND
    assert used(one) == 0


# ---------------------------------------------------------------------- faults
def test_an_allocation_fails_when_it_was_asked_to() -> None:
    with ds.simulate(2, memory=GIB, faults=ds.Fault("gpu:1", "allocation", at=2, times=2)) as handle:
        assert repr(handle.faults) == "(Fault('gpu:1', 'allocation', at=2, times=2),)"
        kept = [ds.zeros(4, device=1)]
        for _ in range(2):
            with pytest.raises(ds.OutOfMemoryError, match="gpu:1 is out of memory: 16 bytes were requested, "):
                ds.place(np.ones(4, "float32"), "gpu:1")
        kept += [ds.zeros(4, device=0) for _ in range(5)]
        kept.append(ds.ones(4, device=1))
        assert ds.memory(1).used == 2 * ROUND
    with ds.simulate(2):
        assert ds.to_numpy(ds.zeros(2, device=1)).tolist() == [0, 0], "faults end with the simulation they were for"


@pytest.mark.parametrize("call", ["place", "copy", "to_numpy", "from_numpy", "away", "between", "tree"])
def test_a_copy_fails_when_it_was_asked_to(call: str) -> None:
    ds.simulate(2)
    host = np.arange(4.0)
    there = ds.place(host, "gpu:0")
    x = ds.place(host, "gpu:1")
    calls: dict[str, Any] = {
        "place": lambda: ds.place(host, "gpu:1"),
        "copy": lambda: ds.copy(x, "gpu:1"),
        "to_numpy": lambda: ds.to_numpy(x),
        "from_numpy": lambda: ds.from_numpy(host, "gpu:1"),
        "away": lambda: ds.place(x, "cpu"),
        "between": lambda: ds.place(there, "gpu:1"),
        "tree": lambda: ds.place({"a": [there, x]}, "gpu:1"),
    }
    ds.simulate(2, faults=[ds.Fault("gpu:1", "copy"), ds.Fault("gpu:0", "copy", at=1000)])
    gc.collect()  # garbage that other tests left
    before = ds.memory(1).used
    with pytest.raises(ds.DeviceFailedError, match=r"gpu:1 failed during a copy of 32 bytes") as caught:
        calls[call]()
    assert "ds.devices()" in str(caught.value.hint)
    assert ds.memory(1).used == before
    assert ds.device_of(x) is ds.gpu(1)
    calls[call]()  # the next one succeeds


def test_a_card_vanishes() -> None:
    ds.simulate(2, faults=[ds.Fault("gpu:1", "vanish", at=3)])
    x = ds.zeros(4, device=1)  # the first event: an allocation
    y = ds.place(x, "cpu")  # the second: a copy
    for call in (
        lambda: ds.zeros(4, device=1),
        lambda: ds.place(x, "cpu"),
        lambda: ds.place(y, "gpu:1"),
        lambda: ds.to_numpy(x),
        lambda: ds.synchronize("gpu:1"),
        lambda: ds.memory("gpu:1"),
        lambda: ds.require("gpu:1"),
        lambda: x + 1,  # NumPy's own operator, whose result does not fit
    ):
        with pytest.raises(ds.DeviceFailedError, match="gpu:1 failed during "):
            call()
    assert ds.device_count() == 2, "as with a real card that fell off its bus"
    assert ds.to_numpy(ds.ones(2, device="gpu:0")).tolist() == [1, 1], "the others work on"
    ds.simulate(2)
    assert ds.to_numpy(ds.place(x, "cpu")).tolist() == [0, 0, 0, 0]


def test_without_faults_nothing_is_asked() -> None:
    ds.simulate(2, faults=ds.Fault("gpu:0", "copy"))
    assert observing.ACTIVE is not None
    ds.simulate(2)
    assert observing.ACTIVE is None


def test_a_refused_simulation_leaves_the_faults_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    ds.simulate(2)

    def refuse(*_: object) -> None:
        raise ds.SimulationError("not now", "later")

    with monkeypatch.context() as patched:
        patched.setattr(registry.load("numpy"), "simulate", refuse, raising=False)
        with pytest.raises(ds.SimulationError, match="not now"):
            ds.simulate(2, faults=ds.Fault("gpu:0", "copy"))
    assert observing.ACTIVE is None


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("cpu", "copy"), "a fault is for a simulated GPU, not for cpu"),
        (("gpu:1", "melt"), "a fault is 'melt', and it must be one of"),
        (("gpu:1", "copy", 0), "at is 0, and it must be an int of at least 1"),
        (("gpu:1", "copy", 1, 1.5), "times is 1.5, and it must be an int of at least 1"),
    ],
)
def test_faults_that_make_no_sense(args: Any, text: str) -> None:
    with pytest.raises(ds.ArgumentError, match=text):
        ds.Fault(*args)


@pytest.mark.parametrize("faults", ["gpu:1", 3, [ds.Fault("gpu:0", "copy"), "x"], None])
def test_only_faults_are_faults(faults: Any) -> None:
    with pytest.raises(ds.ArgumentError, match=r"must be ds\.Fault objects"):
        ds.simulate(2, faults=faults)


# ---------------------------------------------------------------------- interrupts
def interrupted_at(step: int, work: Callable[[], object]) -> bool:
    """Send Ctrl-C at the nth place in `simulation.memory` where Python checks for signals; return True if it exists.

    These places are the start of a function, and the end of a call to a C function.
    """
    left = step

    def look(frame: FrameType, event: str, called: object) -> None:
        nonlocal left
        if LEAVES_LOCKED and getattr(called, "__name__", None) == "__enter__":
            return
        if frame.f_code.co_filename == memory.__file__ and event in ("call", "c_return"):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False


def take_and_free(one: SimulatedDevice) -> None:
    """Allocate and free memory of a GPU, and query it."""
    owner = Owner()
    one.track(owner, 3 * ROUND)
    another = Owner()
    one.track(another, 1)
    del owner
    one.info()


def test_an_interrupt_anywhere_leaves_the_count_exact() -> None:
    """After allocation, release and queries, exactly the live bytes are counted."""
    one, kept, step = card(64 * ROUND), Owner(), 0
    one.track(kept, ROUND)

    while interrupted_at(step := step + 1, partial(take_and_free, one)):
        assert used(one) == ROUND, f"after an interrupt at place {step}"
        again = Owner()
        one.track(again, 2 * ROUND)
        assert used(one) == 3 * ROUND
        del again
    assert step > 20


def test_a_handler_or_finalizer_in_the_middle_of_an_update_does_not_wait_for_itself() -> None:
    """Python runs them in the same thread, wherever it checks for signals; their allocations are counted."""
    one, kept, step, more = card(64 * ROUND), Owner(), 0, [Owner()]
    one.track(kept, ROUND)

    def run() -> None:
        more[:] = [Owner(), Owner()]
        for each in more:
            one.track(each, 2 * ROUND)
        more.pop()
        one.info()

    while disturbed_at(step := step + 1, partial(take_and_free, one), run):
        assert used(one) == 3 * ROUND, f"after a call at place {step}"
        more.clear()
        assert used(one) == ROUND, f"after a call at place {step}"
    assert step > 20


def disturbed_at(step: int, work: Callable[[], object], call: Callable[[], object]) -> bool:
    """Call a function at the nth place in `simulation.memory` where Python checks for signals, if it exists."""
    left = step

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if frame.f_code.co_filename == memory.__file__ and event in ("call", "c_return"):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                call()

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(before)
    return left <= 0


def test_no_python_runs_when_an_owner_goes() -> None:
    """An interrupt could arrive there, and Python would drop it."""
    one, owner, events = card(), [Owner()], []
    one.track(owner[0], ROUND)
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: events.append((frame.f_code.co_name, event)))
    try:
        owner.pop()
    finally:
        sys.setprofile(before)
    assert used(one) == 0
    assert [name for name, event in events if event == "call"] == []


def test_memory_that_is_freed_while_its_owner_lives_does_not_count() -> None:
    one, owner, freed = card(), Owner(), Owner()
    one.track(owner, 2 * ROUND)
    one.track(freed, -2 * ROUND, exists=True)
    assert used(one) == 0
    del freed
    assert used(one) == 2 * ROUND
    del owner
    assert used(one) == 0


@pytest.mark.parametrize("source", range(4))
@pytest.mark.parametrize("target", range(4))
def test_a_fault_of_the_target_comes_first(source: int, target: int) -> None:
    """The order does not depend on hashes, which differ from one process to the next."""
    with ds.using("numpy"), ds.simulate(gpus=4, faults=[ds.Fault(f"gpu:{i}", "copy") for i in range(4)]):
        x = ds.ones(3, device=f"gpu:{source}")
        with pytest.raises(ds.DeviceFailedError, match=f"gpu:{target} failed"):
            ds.copy(x, f"gpu:{target}")
