"""Tests of observers that open and close in some threads while other threads copy.

Each observer sees the copies of its own thread only, and no call fails.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.behaviours.simulated_gpus import used_bytes
from devshim.testing.values import feature
from devshim.transfers import observing

if TYPE_CHECKING:
    from devshim.devices.device import Device

COPYING = 10
"""The number of threads that copy, besides the six that observe."""
MARGIN = 10**9
"""A count of allocations or copies that no test reaches."""


class ThreadedObserverTests(Kit):
    """Ledgers, guards, `explain` and faults belong to the thread that opened them."""

    @feature("simulate")
    def test_observers_open_and_close_while_others_copy(self, gpu: Device, pytestconfig: pytest.Config) -> None:
        """Sixteen threads: no call fails, each observer sees its own thread's copies, and all memory is freed."""
        end = time.monotonic() + pytestconfig.getoption("--devshim-stress") / 3  # the test in `cards` also takes time
        counted = "simulate_memory" not in self.adapter.gaps
        before = [used_bytes(device) for device in ds.devices("gpu")] if counted else []
        observers = [self._ledger, self._explain, self._guard, self._ledger, self._guard, self._faults]
        works: list[Callable[[np.random.Generator], None]] = [*[self._copies] * COPYING, *observers]
        failures: list[BaseException] = []
        rounds = [0] * len(works)

        def repeat(number: int) -> None:
            rng = np.random.default_rng(number)
            try:
                while not failures and (rounds[number] < 2 or time.monotonic() < end):
                    works[number](rng)
                    rounds[number] += 1
            except BaseException as error:
                failures.append(error)

        with _switch_often():
            threads = [threading.Thread(target=repeat, args=(number,)) for number in range(len(works))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]
        assert min(rounds) >= 2
        assert observing.ACTIVE is None
        del threads
        assert before == ([used_bytes(device) for device in ds.devices("gpu")] if counted else [])

    # ------------------------------------------------------------------ threads that copy
    def _copies(self, rng: np.random.Generator) -> None:
        """Create, copy, place, compute and read tensors, and a tree of them."""
        here, there = (ds.gpu(int(rng.integers(ds.device_count()))) for _ in range(2))
        a = rng.integers(-4, 4, (4, 5)).astype("float32")
        x = ds.from_numpy(a, here)
        y = ds.run(lambda t: t + t, ds.copy(x, there))
        tree = ds.place({"y": y, "ones": ds.ones((2,), device=there)}, here)
        assert ds.placement_of(tree).devices == {here}
        assert (ds.to_numpy(ds.place(tree["y"], "cpu")) == a + a).all(), "another thread's values"
        assert ds.to_numpy(tree["ones"]).tolist() == [1, 1]
        if "several" not in self.adapter.gaps:
            parts = ds.split(x, [here, there])
            assert (ds.to_numpy(ds.gather(parts, "cpu")) == a).all(), "another thread's values"

    # ------------------------------------------------------------------ threads that observe
    def _ledger(self, rng: np.random.Generator) -> None:
        x = ds.from_numpy(np.zeros(7, "float32"))
        with ds.transfers() as log:
            back = ds.copy(ds.place(x, "gpu:0"), "cpu")
        found = [(each.source, each.target, each.bytes) for each in log.records]
        assert found == [(ds.cpu(), ds.gpu(0), 28), (ds.gpu(0), ds.cpu(), 28)]
        del back

    def _explain(self, rng: np.random.Generator) -> None:
        x = ds.from_numpy(np.zeros(7, "float32"))
        with ds.explain(file=None) as lines:
            ds.place(x, "gpu:0")
        assert len(lines) == 1, lines

    def _guard(self, rng: np.random.Generator) -> None:
        x = ds.ones((), device="gpu:0", dtype="float32")
        if "guard" in self.adapter.gaps:
            return
        with ds.guard("error"):
            assert ds.to_numpy(ds.place(x, "cpu")) == 1
            with pytest.raises(ds.TransferError):
                float(x)
        assert float(x) == 1

    def _faults(self, rng: np.random.Generator) -> None:
        """Plan a fault for a copy that never happens, so that every copy is counted."""
        if "simulate_memory" in self.adapter.gaps:
            return
        fault = ds.Fault("gpu:0", "copy", at=MARGIN)
        with ds.simulate(gpus=ds.device_count(), faults=fault, native_names=self.adapter.native_names):
            ds.place(ds.ones(3), "gpu:0")
        time.sleep(0.001)


@contextmanager
def _switch_often() -> Iterator[None]:
    """Let threads switch after ten microseconds instead of five milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


__all__: list[Any] = ["ThreadedObserverTests"]
