"""Tests of `prefetch`: batches ahead of their use, and nothing left behind however the loop ends."""

from __future__ import annotations

import gc
import threading
import time
import traceback
from collections import namedtuple
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit, in_thread
from devshim.testing.behaviours.simulated_gpus import used_bytes
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from devshim.devices.device import Device

Pair = namedtuple("Pair", "x label")


def batch(number: int) -> dict[str, Any]:
    """Return a batch of NumPy arrays."""
    return {"x": np.full((3, 2), number, "float32"), "rest": [Pair(np.arange(4) + number, f"batch {number}"), None]}


def workers() -> list[threading.Thread]:
    """Return the threads of `prefetch` that are alive."""
    return [thread for thread in threading.enumerate() if thread.name == "devshim-prefetch"]


def assert_no_worker() -> None:
    """Check that every thread of `prefetch` has ended, after a moment for its last instructions."""
    end = time.monotonic() + 5
    while workers() and time.monotonic() < end:
        time.sleep(0.01)
    assert not workers()


class PrefetchTests(Kit):
    """A loop over `prefetch` does what a plain loop does, and waits less."""

    @feature("place")
    @pytest.mark.parametrize("depth", [1, 2, 5])
    def test_batches_arrive_in_order_on_the_device(self, device: Device, depth: int) -> None:
        """NumPy arrays in a tree become tensors of the current framework on the device; the rest is unchanged."""
        loader = [batch(i) for i in range(7)]
        found = 0
        for i, got in enumerate(ds.prefetch(loader, device, depth)):
            pair, nothing = got["rest"]
            assert self.adapter.is_tensor(type(got["x"]))
            assert ds.device_of(got["x"]) is ds.device_of(pair.x) is device
            assert self.same_numbers(got["x"], np.full((3, 2), i))
            assert self.same_numbers(pair.x, np.arange(4) + i)
            assert type(pair) is Pair
            assert (pair.label, nothing) == (f"batch {i}", None)
            found += 1
        assert found == 7
        assert_no_worker()
        assert all(type(each["x"]) is np.ndarray for each in loader), "the loader's batches are unchanged"

    @feature("place")
    def test_tensors_are_placed(self, journey: tuple[Device, Device]) -> None:
        """A tensor is placed as by `place`: the same object if it is there already, equal values otherwise."""
        source, target = journey
        tensors = [self.tensor(source) for _ in range(3)]
        for x, got in zip(tensors, ds.prefetch(tensors, target), strict=True):
            assert ds.device_of(got) is target
            assert self.same_numbers(got, numbers())
            assert (got is x) is (source is target)

    @feature("place")
    @hook("loaders")
    def test_the_frameworks_own_loaders(self, other_device: Device) -> None:
        """Each kind of loader gives what it gives without `prefetch`, as often as it can be iterated."""
        values = np.arange(20, dtype="float32").reshape(10, 2)
        for name, loader in self.loaders(values).items():
            ahead = ds.prefetch(loader, other_device)
            assert len(ahead) == len(loader), name
            for _ in range(2):
                got = list(ahead)
                xs = [each[0] if isinstance(each, (tuple, list)) else each for each in got]
                assert {ds.device_of(x) for x in xs} == {other_device}, name
                assert np.array_equal(np.concatenate([ds.to_numpy(x) for x in xs]), values), name
            assert_no_worker()

    @feature("place")
    def test_generators_and_lengths(self) -> None:
        """A generator is iterated once; `len` is the loader's own, or Python's error."""
        ahead = ds.prefetch((batch(i) for i in range(3)), "cpu")
        assert ahead
        with pytest.raises(TypeError, match="no len"):
            len(ahead)
        assert [len(list(ahead)), len(list(ahead))] == [3, 0]
        assert len(ds.prefetch([batch(0)] * 4, "cpu")) == 4
        assert list(ds.prefetch([], "cpu")) == []

    @feature("place")
    def test_no_more_batches_than_asked_for(self) -> None:
        """Besides the batches that were handed over, at most ``depth`` were asked of the loader."""
        asked = 0

        def loader() -> Iterator[Any]:
            nonlocal asked
            for i in range(20):
                asked += 1
                yield batch(i)

        running = iter(ds.prefetch(loader(), "cpu", depth=3))
        for taken in range(1, 5):
            next(running)
            time.sleep(0.05)
            assert taken <= asked <= taken + 3
        assert asked > 4, "none is loaded ahead"
        running.close()
        assert_no_worker()

    @feature("place")
    def test_an_error_of_the_loader_comes_in_order_and_once(self, device: Device) -> None:
        """The batches before it arrive; the error is the same object, with the loader's line; the loop is over then."""
        error = KeyError("mine")

        def failing_loader() -> Iterator[Any]:
            yield batch(0)
            yield batch(1)
            raise error

        running = iter(ds.prefetch(failing_loader(), device, depth=4))
        assert [float(ds.to_numpy(next(running)["x"])[0, 0]) for _ in range(2)] == [0, 1]
        with pytest.raises(KeyError) as caught:
            next(running)
        assert caught.value is error
        assert "failing_loader" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(running)
        assert_no_worker()

    @feature("simulate_memory")
    def test_a_full_device_is_reported_at_its_batch(self, gpu: Device) -> None:
        """If a batch does not fit, the ones before it arrive, and the error is `OutOfMemoryError`."""
        arrived = 0
        with ds.simulate(ds.device_count(), faults=ds.Fault("gpu:0", "allocation", at=3)):
            running = iter(ds.prefetch([numbers() for _ in range(8)], "gpu:0", depth=1))
            with pytest.raises(ds.OutOfMemoryError):  # noqa: PT012, the loop is what fails
                for x in running:
                    assert self.same_numbers(x, numbers())
                    arrived += 1
            assert_no_worker()
        assert 1 <= arrived <= 2

    @feature("simulate_memory")
    @pytest.mark.parametrize("how", ["break", "raise", "close", "drop", "interrupt", "never used", "cycle"])
    def test_nothing_is_left_behind(self, how: str, other_device: Device) -> None:
        """However a loop ends, its thread ends, and the memory of the batches that were loaded ahead is free again."""
        before = used_bytes(other_device)

        def loop() -> None:
            running = iter(ds.prefetch((batch(i) for i in range(1000)), other_device, depth=4))
            if how == "never used":
                return
            if how == "cycle":
                cycle: list[Any] = [running]
                cycle.append(cycle)
            for i, got in enumerate(running):
                assert ds.device_of(got["x"]) is other_device
                if i == 3 and how == "raise":
                    raise KeyError("mine")
                if i == 3 and how == "interrupt":
                    raise KeyboardInterrupt
                if i == 3:
                    break
            if how == "close":
                running.close()
                assert_no_worker()
                with pytest.raises(StopIteration):
                    next(running)

        try:
            loop()
        except (KeyError, KeyboardInterrupt) as error:
            error.__traceback__ = None
        gc.collect()
        assert_no_worker()
        assert used_bytes(other_device) == before

    @feature("place")
    def test_the_next_batch_is_loaded_while_the_program_works_on_one(self) -> None:
        """The program waits for the beginning of the next load, which a plain loop would never see."""
        begins = [threading.Event() for _ in range(5)]

        def loader() -> Iterator[Any]:
            for i, begin in enumerate(begins):
                begin.set()
                yield batch(i)

        count = 0
        for begin, _ in zip([*begins[1:], begins[-1]], ds.prefetch(loader(), "cpu"), strict=True):
            assert begin.wait(10), "the next batch is not loaded before the program asks for it"
            count += 1
        assert count == len(begins)

    @feature("create")
    def test_the_loader_runs_with_the_default_device_and_framework(self, away: tuple[Device, Device]) -> None:
        """In the loader, the framework and the default device are those of the loop when it begins."""
        first, second = away

        def loader() -> Iterator[Any]:
            for _ in range(3):
                yield str(ds.device_of(ds.zeros(2)))

        with first:
            assert list(ds.prefetch(loader(), "cpu")) == [str(first)] * 3
            with second:
                ahead = ds.prefetch(loader(), "cpu")
            assert list(ahead) == [str(first)] * 3, "the scope at the begin of the iteration applies"
        with ds.using("numpy"):
            (got,) = ds.prefetch([np.ones(2)], "cpu")
            assert type(got) is np.ndarray

    @feature("place")
    def test_threads_can_share_and_pass_on(self, device: Device) -> None:
        """An iteration can be made in one thread and continued in others; each batch is handed over once."""
        running = iter(ds.prefetch([batch(i) for i in range(12)], device))
        first = [next(running), in_thread(lambda: next(running))]
        with ThreadPoolExecutor(3) as pool:
            rest = [each for part in pool.map(lambda _: list(running), range(3)) for each in part]
        found = sorted(float(ds.to_numpy(each["x"])[0, 0]) for each in first + rest)
        assert found == list(range(12))
        assert_no_worker()

    @feature("place")
    def test_copies_are_recorded_at_the_line_of_the_loop(self, other_device: Device) -> None:
        """A ledger that is open when the iteration begins records the copies, with the line of the loop."""
        loader = [numbers() for _ in range(3)]
        with ds.transfers() as log:
            for _ in ds.prefetch(loader, other_device):
                pass
        assert log.bytes(target=other_device) == 3 * numbers().nbytes
        assert {record.site.rpartition(":")[0] for record in log.records} == {__file__}

    @feature("guard")
    def test_a_guard_applies_in_the_loader(self, other_device: Device) -> None:
        """The copies of `prefetch` are explicit; an implicit one in the loader raises `TransferError` in the loop."""
        x = ds.ones((1, 1), dtype="float32", device=other_device)

        def loader() -> Iterator[Any]:
            yield numbers()
            print(x)
            yield numbers()

        with ds.guard("error"):
            running = iter(ds.prefetch(loader(), other_device))
            assert ds.device_of(next(running)) is other_device
            with pytest.raises(ds.TransferError):
                next(running)

    @pytest.mark.parametrize(
        ("loader", "depth", "text"),
        [
            ([], 0, "depth is 0"),
            ([], -1, "depth is -1"),
            ([], 1.5, "depth is 1.5"),
            ([], None, "depth is None"),
            (3, 2, "cannot be iterated"),
            ("text", 2, "takes a loader"),
            ({"x": 1}, 2, "takes a loader"),
        ],
        ids=repr,
    )
    def test_arguments_of_prefetch(self, loader: Any, depth: Any, text: str) -> None:
        """An invalid argument is refused at the call, before a thread is started."""
        with pytest.raises(ds.ArgumentError, match=text):
            ds.prefetch(loader, "cpu", depth)
        with pytest.raises(ds.ArgumentError, match="takes a loader"):
            ds.prefetch(self.tensor(), "cpu")
        assert not workers()
