"""Tests of simulated GPUs: how to request them, their labels, and that they refuse what real GPUs refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import devshim as ds
from devshim.testing.behaviours.subprocess import SubprocessKit
from devshim.testing.values import feature, numbers

if TYPE_CHECKING:
    from devshim.devices.device import Device


class SimulationTests(SubprocessKit):
    """`simulate` in new processes; the other test modules use the GPUs that it creates."""

    @pytest.mark.fresh
    @feature("simulate")
    def test_simulate_shows_gpus(self) -> None:
        """`simulate` creates the requested number of labelled GPUs; it can be called again before the first tensor."""
        self.without_gpus("""
ds.use(name)
assert ds.device_count() == 0
ds.simulate(gpus=2)
assert ds.device_count() == 2 and [str(d) for d in ds.devices()] == ["cpu", "gpu:0", "gpu:1"]
assert all(ds.describe(d).simulated for d in ds.devices("gpu")) and not ds.describe("cpu").simulated
x = ds.ones(3, device="gpu:1")
assert str(ds.device_of(x)) == "gpu:1" and ds.to_numpy(x).tolist() == [1, 1, 1]
assert "simulates 2" in expect(ds.DeviceNotFoundError, ds.place, x, "gpu:2").problem
""")

    @pytest.mark.fresh
    @feature("simulate")
    def test_the_environment_variable_shows_gpus(self) -> None:
        """``DEVSHIM_SIMULATE_GPUS`` does the same without a line of code."""
        self.without_gpus(
            """
assert ds.device_count() == 3
assert str(ds.device_of(ds.zeros(2, device="gpu:2"))) == "gpu:2"
""",
            DEVSHIM_BACKEND=self.backend,
            DEVSHIM_SIMULATE_GPUS="3",
        )

    @pytest.mark.fresh
    @feature("simulate")
    def test_a_simulate_block_restores_the_previous_state(self) -> None:
        """Used as a ``with`` block, it restores the earlier state at the end."""
        self.without_gpus("""
ds.use(name)
with ds.simulate(gpus=2):
    assert ds.device_count() == 2
assert ds.device_count() == 0
assert ds.describe("cpu").simulated is False
""")

    @pytest.mark.fresh
    @feature("simulate")
    def test_simulate_after_the_start_works_or_is_refused(self) -> None:
        """After the framework has started, `simulate` works, or raises `SimulationError` that says what to move."""
        self.without_gpus("""
ds.use(name)
x = ds.zeros(2)
try:
    ds.simulate(gpus=2)
except ds.SimulationError as error:
    assert error.hint and registry.load(name).title in error.problem
    assert ds.device_count() == 0
else:
    assert ds.device_count() == 2
    assert str(ds.device_of(ds.place(x, "gpu:1"))) == "gpu:1"
assert ds.device_of(x) is ds.cpu()
""")

    @pytest.mark.fresh
    @feature("simulate_memory")
    def test_a_simulated_gpu_runs_out_of_memory(self) -> None:
        """With ``memory=`` a GPU counts its bytes, refuses what does not fit, and has space again afterwards."""
        self.without_gpus("""
import gc
ds.use(name)
ds.simulate(gpus=2, memory="1MiB")
assert ds.memory("gpu:1").total == 2**20 and ds.describe("gpu:1").total_memory == 2**20
before = ds.memory("gpu:1").used
x = ds.zeros(2**17, dtype="float32", device="gpu:1")
assert ds.memory("gpu:1").used - before == 2**19
error = expect(ds.OutOfMemoryError, ds.place, ds.zeros(2**18, dtype="float32"), "gpu:1")
assert "gpu:1" in error.problem and error.hint
assert ds.shrink_batch(lambda n: ds.zeros((n, 2**15), dtype="float32", device="gpu:1") is None, 8) == (False, 4)
del x
gc.collect()
assert ds.memory("gpu:1").used == before and ds.memory("gpu:1").peak >= 2**19
ds.zeros(2**17, dtype="float32", device="gpu:1")
""")

    @feature("simulate")
    def test_a_simulated_gpu_contains_real_data(self, other_device: Device) -> None:
        """A computation on a simulated GPU is correct, and its result stays there."""
        x = self.tensor(other_device, (2, 2))
        y = ds.run(lambda a: self.matmul(a, a) + a, x)
        assert ds.device_of(y) is other_device
        assert self.same_numbers(y, numbers((2, 2)) @ numbers((2, 2)) + numbers((2, 2)))
