"""Tests of simulated GPUs that are removed while tensors are on them.

A tensor still reports its device, and any use of it raises an error that names the line that removed the GPU.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import in_thread
from devshim.testing.behaviours.subprocess import SubprocessKit
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

    Call = Callable[[Any], object]

CALLS: Mapping[str, Call] = {
    "place on the CPU": lambda x: ds.place(x, "cpu"),
    "place where it was": lambda x: ds.place(x, ds.device_of(x)),
    "place without a copy": lambda x: ds.place(x, "cpu", copy=False),
    "place a tree": lambda x: ds.place({"a": [x, 1]}, "cpu"),
    "copy": lambda x: ds.copy(x, "cpu"),
    "broadcast": lambda x: ds.broadcast([x, x], ["cpu"]),
    "split": lambda x: ds.split(x, ["cpu", "cpu"]),
    "gather": lambda x: ds.gather([x, x], "cpu"),
    "all_reduce_": lambda x: ds.all_reduce_([x, x]),
    "to_numpy": ds.to_numpy,
    "convert": lambda x: ds.convert(x, "numpy"),
    "run": lambda x: ds.run(lambda a: a, x),
    "zeros_like": ds.zeros_like,
}
"""Name -> a devshim call that uses a tensor."""

NATIVE: Mapping[str, Call] = {
    "+": lambda x: x + 1,
    "+ itself": lambda x: x + x,
    "-": lambda x: -x,
    "index": lambda x: x[0],
    "slice": lambda x: x[0:2],
    "iteration": list,
}
"""Name -> a use of a tensor by the framework's own operators."""


class RemovedGpuTests(SubprocessKit):
    """`simulate` with fewer GPUs, while the removed ones are in use."""

    @pytest.fixture
    def left(self, other_device: Device) -> Iterator[Tensor]:
        """Yield a tensor on the last simulated GPU, which is removed."""
        if not self.adapter.simulated:
            pytest.skip("hardware: real GPUs are not removed")
        x = self.tensor(other_device)
        with ds.simulate(other_device.index):
            yield x

    def values_of(self, model: Any) -> dict[str, np.ndarray]:
        """Return a model's parameters and buffers by their key paths."""
        leaves = [leaf for leaf in self.adapter.leaves(model) if leaf.kind != "gradient"]
        return {leaf.path: ds.to_numpy(leaf.read()) for leaf in leaves}

    @feature("simulate", "simulate_memory", "several")
    @pytest.mark.parametrize("call", CALLS)
    def test_a_tensor_on_a_removed_gpu_names_the_line_that_removed_it(self, left: Tensor, call: str) -> None:
        """Any call that uses a tensor on a removed GPU raises `SimulationError` with the line that removed it."""
        with pytest.raises(ds.SimulationError, match=r"gpu:1 was removed at .*removed_gpus\.py:\d+") as caught:
            CALLS[call](left)
        assert "ds.place(x, 'cpu')" in str(caught.value.hint)

    @feature("simulate", "simulate_memory")
    @pytest.mark.parametrize("call", NATIVE)
    def test_operators_refuse_a_tensor_on_a_removed_gpu(self, left: Tensor, call: str) -> None:
        """The framework's own operators also raise it, in other threads, too."""
        with pytest.raises(ds.SimulationError, match="gpu:1 was removed at "):
            NATIVE[call](left)
        with pytest.raises(ds.SimulationError, match="gpu:1 was removed at "):
            in_thread(lambda: NATIVE[call](left))

    @feature("simulate", "simulate_memory")
    @pytest.mark.parametrize("kind", [float, int, bool])
    def test_values_on_a_removed_gpu_are_not_read(self, other_device: Device, kind: Callable[[Any], object]) -> None:
        """``float(x)``, ``int(x)`` and ``bool(x)`` raise it, too."""
        if not self.adapter.simulated:
            pytest.skip("hardware: real GPUs are not removed")
        x = ds.from_numpy(np.ones((), "float32"), other_device)
        with ds.simulate(1), pytest.raises(ds.SimulationError, match="gpu:1 was removed at "):
            kind(x)
        assert kind(x) == 1

    @feature("simulate", "simulate_memory")
    def test_device_of_names_a_removed_gpu(self, left: Tensor, other_device: Device) -> None:
        """`device_of` and `placement_of` answer as before, and printing says why values are unavailable."""
        assert ds.device_of(left) is other_device
        assert ds.placement_of({"a": left}).devices == {other_device}
        for text in (repr(left), str(left), f"{left}"):
            assert "gpu:1 was removed at " in text

    @feature("simulate", "simulate_memory")
    def test_the_remaining_gpus_still_compute(self, left: Tensor) -> None:
        """The remaining GPUs and the host are not affected."""
        for device in ds.devices():
            x = self.tensor(device)
            assert self.same_numbers(ds.place(ds.run(lambda a: a + a, x), "cpu"), 2 * numbers())

    @feature("simulate", "simulate_memory")
    def test_a_tensor_works_again_when_its_gpu_returns(self, other_device: Device, tmp_path: Path) -> None:
        """After the GPU is restored, everything is as before, including the values."""
        if not self.adapter.simulated:
            pytest.skip("hardware: real GPUs are not removed")
        x = self.tensor(other_device)
        for _ in range(2):
            with ds.simulate(1), pytest.raises(ds.SimulationError):
                ds.save({"x": x}, tmp_path / "x")
            y = ds.run(lambda a: a + a, x)
            assert ds.device_of(y) is other_device
            assert self.same_numbers(ds.place(y, "cpu"), 2 * numbers())
            assert "removed" not in repr(x)

    @feature("simulate_memory")
    def test_memory_on_a_removed_gpu_is_counted_until_freed(self, other_device: Device) -> None:
        """The bytes on a removed GPU count again after it is restored, unless they were freed in the meantime."""
        if not self.adapter.simulated:
            pytest.skip("hardware: real GPUs are not removed")
        gc.collect()
        before = ds.memory(other_device).used
        x, y = self.tensor(other_device), self.tensor(other_device)
        with ds.simulate(1):
            del y
        assert ds.memory(other_device).used - before == 512  # type: ignore[operator]  # never None
        with ds.simulate(1):
            del x
            gc.collect()
        assert ds.memory(other_device).used == before

    @feature("simulate", "simulate_memory")
    def test_a_tensor_on_a_removed_gpu_may_be_freed_in_another_thread(self, other_device: Device) -> None:
        """The last reference may be dropped in any thread, and nothing is refused afterwards."""
        if not self.adapter.simulated:
            pytest.skip("hardware: real GPUs are not removed")
        held = [self.tensor(other_device)]
        with ds.simulate(1):
            thread = threading.Thread(target=held.clear)
            thread.start()
            thread.join()
            assert self.same_numbers(ds.place(self.tensor("gpu:0"), "cpu"), numbers())

    @feature("simulate", "simulate_memory", "models")
    @hook("model", "optimizer", "train_step")
    def test_models_on_a_removed_gpu_are_refused_completely(self, other_device: Device) -> None:
        """Models and optimizers cannot be moved or called while their GPU is removed, and are unchanged afterwards."""
        if not self.adapter.simulated:
            pytest.skip("hardware: real GPUs are not removed")
        model = ds.place(self.model(), other_device)
        optimizer = self.optimizer(model)
        x, y = self.tensor(other_device, (8, 4)), self.tensor(other_device, (8, 3))
        self.train_step(model, optimizer, x, y, lambda: None)
        before = self.values_of(model)
        with ds.simulate(1):
            assert ds.placement_of(model).devices == {other_device}
            for use in (
                lambda: ds.place(model, "cpu"),
                lambda: ds.place([model, optimizer], "gpu:0"),
                lambda: self.forward(model, x),
                lambda: self.train_step(model, optimizer, x, y, lambda: None),
            ):
                with pytest.raises(ds.SimulationError, match="gpu:1 was removed at "):
                    use()
        after = self.values_of(model)
        assert all((before[name] == after[name]).all() for name in before)
        self.train_step(model, optimizer, x, y, lambda: None)

    @pytest.mark.fresh
    @feature("simulate", "simulate_memory")
    def test_every_way_to_remove_a_gpu_is_named(self) -> None:
        """The end of a block names its ``with`` line, and `simulate` names its own line."""
        self.without_gpus("""
def refused(line):
    error = expect(ds.SimulationError, lambda: ds.place(x, "cpu"))
    assert f"<string>:{line}, " in error.problem, (line, error.problem)
    expect(ds.SimulationError, lambda: x + 1)
import sys
here = lambda: sys._getframe(1).f_lineno
ds.use(name)
with (line := here(), ds.simulate(2))[1]:
    x = ds.ones(3, device="gpu:1")
refused(line)
ds.simulate(2)
assert ds.to_numpy(x + 1).tolist() == [2, 2, 2]
ds.simulate(1); refused(here())
ds.simulate(0); refused(here() - 1)
ds.simulate(2, memory="1MiB")
assert ds.to_numpy(x + 1).tolist() == [2, 2, 2]
""")
