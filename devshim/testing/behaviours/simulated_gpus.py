"""Tests that simulated GPUs behave like real ones: they count memory, run out of it, and fail when asked to."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.simulation.memory import ROUND
from devshim.testing.behaviours.subprocess import SubprocessKit
from devshim.testing.values import feature, hook

if TYPE_CHECKING:
    from devshim.devices.device import Device

ELEMENTS = 1000
TAKEN = -(-ELEMENTS * 4 // ROUND) * ROUND
"""The bytes that `ELEMENTS` float32 values take on a GPU."""

MADE: dict[str, Callable[[Device], Any]] = {
    "zeros": lambda d: ds.zeros(ELEMENTS, dtype="float32", device=d),
    "full": lambda d: ds.full(ELEMENTS, 1.5, dtype="float32", device=d),
    "arange": lambda d: ds.arange(ELEMENTS, dtype="float32", device=d),
    "asarray": lambda d: ds.asarray([1.0] * ELEMENTS, dtype="float32", device=d),
    "uniform": lambda d: ds.random.uniform(size=ELEMENTS, dtype="float32", device=d),
    "place": lambda d: ds.place(ds.zeros(ELEMENTS, dtype="float32"), d),
    "from_numpy": lambda d: ds.from_numpy(np.ones(ELEMENTS, "float32"), d),
    "tree": lambda d: ds.place({"a": [ds.zeros(ELEMENTS, dtype="float32")]}, d),
    "zeros_like": lambda d: ds.zeros_like(ds.zeros(ELEMENTS, dtype="float32"), device=d),
}
"""Ways to put `ELEMENTS` float32 values on a GPU."""


def used_bytes(device: Device) -> int:
    """Return the bytes used on a GPU, after collecting garbage."""
    gc.collect()
    ds.synchronize(device)
    found = ds.memory(device).used
    assert found is not None
    return found


class SimulatedGpuTests(SubprocessKit):
    """Memory, faults and real data of simulated GPUs; real GPUs count their memory in their own way."""

    @pytest.fixture
    def gpu(self, other_device: Device) -> Device:
        """Return the last simulated GPU."""
        if not self.adapter.simulated:
            pytest.skip("hardware: real GPUs count their memory in their own way")
        return other_device

    # ------------------------------------------------------------------ memory
    @feature("simulate_memory")
    @pytest.mark.parametrize("way", MADE)
    def test_memory_is_exact_to_the_rounding(self, gpu: Device, way: str) -> None:
        """Data on a GPU takes its bytes there, rounded up to 512, until it is freed.

        It takes nothing on other devices.
        """
        other = ds.gpu(0)
        before, elsewhere = used_bytes(gpu), used_bytes(other)
        x = MADE[way](gpu)
        assert used_bytes(gpu) - before == TAKEN
        assert ds.memory(gpu).peak >= before + TAKEN  # type: ignore[operator]
        assert other is gpu or used_bytes(other) == elsewhere
        del x
        assert used_bytes(gpu) == before

    @feature("simulate_memory")
    def test_placing_a_tensor_that_is_there_allocates_nothing(self, gpu: Device) -> None:
        """`place` without a copy takes no memory, `copy` takes the bytes again, and moving to the host frees them."""
        x = MADE["zeros"](gpu)
        before = used_bytes(gpu)
        y = ds.place(x, gpu)
        assert used_bytes(gpu) == before
        z = ds.copy(x, gpu)
        assert used_bytes(gpu) - before == TAKEN
        back = ds.place(z, "cpu")
        del z
        assert used_bytes(gpu) == before
        del x, y, back

    @feature("simulate_memory")
    def test_results_of_the_frameworks_operators_are_counted(self, gpu: Device) -> None:
        """Results of the framework's own operators on a GPU are counted there."""
        x = ds.ones((32, 32), dtype="float32", device=gpu)
        before = used_bytes(gpu)
        y = ds.run(self.matmul, x, x)
        assert ds.device_of(y) is gpu
        assert used_bytes(gpu) - before == 32 * 32 * 4
        z = ds.run(lambda a: a + a, x)
        assert used_bytes(gpu) - before == 2 * 32 * 32 * 4
        del y, z
        assert used_bytes(gpu) == before

    @pytest.mark.fresh
    @feature("simulate_memory")
    def test_the_out_of_memory_text_is_the_same_on_every_framework(self) -> None:
        """Every call gives the same error: the GPU, the bytes requested and the bytes free; no memory is taken."""
        self.without_gpus("""
import gc, numpy as np
from devshim.errors import messages
ds.use(name)
ds.simulate(gpus=2, memory=2**20)
kept = ds.zeros(2**17, dtype="float32", device="gpu:1")
host = ds.ones(2**18, dtype="float32")
calls = [
    lambda: ds.place(host, "gpu:1"),
    lambda: ds.copy(host, "gpu:1"),
    lambda: ds.zeros(2**18, dtype="float32", device="gpu:1"),
    lambda: ds.full((2**9, 2**9), 3.0, dtype="float32", device="gpu:1"),
    lambda: ds.from_numpy(np.zeros(2**18, "float32"), "gpu:1"),
    lambda: ds.place([host], "gpu:1"),
    lambda: ds.random.uniform(size=2**18, dtype="float32", device="gpu:1"),
]
for call in calls:
    error = expect(ds.OutOfMemoryError, call)
    assert error.problem.partition(" (at the leaf")[0] == (
        "gpu:1 is out of memory: 1,048,576 bytes were requested, 524,288 bytes are free"), error.problem
    assert "ds.shrink_batch" in error.hint
    assert registry.load(name).is_out_of_memory(error) or isinstance(error, MemoryError)
    full = messages.out_of_memory(registry.load(name), ds.cpu(), 8)
    assert type(error) is type(full), "code that catches a simulated GPU's error catches a real one's, too"
    del error
    gc.collect()
    assert ds.memory("gpu:1").used == 2**19, ds.memory("gpu:1")
assert ds.memory("gpu:0").used == 0 and ds.memory("gpu:0").free == 2**20
assert str(ds.device_of(ds.place(host, "gpu:0"))) == "gpu:0"
""")

    @pytest.mark.fresh
    @feature("simulate_memory", "simulate_limit")
    def test_operators_run_out_of_simulated_memory(self) -> None:
        """An operator whose result does not fit raises `OutOfMemoryError` with the same text; the GPU stays usable."""
        self.without_gpus("""
import gc
ds.use(name)
ds.simulate(gpus=2, memory=2**20)
x = ds.ones(2**17, dtype="float32", device="gpu:1")
y = ds.run(lambda a: a + a, x)
error = expect(ds.OutOfMemoryError, ds.run, lambda a, b: a + b, x, y)
assert error.problem == "gpu:1 is out of memory: 524,288 bytes were requested, 0 bytes are free", error.problem
del y, error
gc.collect()
assert ds.to_numpy(ds.run(lambda a: a + a, x)).sum() == 2**18
""")

    @pytest.mark.fresh
    @feature("simulate_memory", "simulate_limit")
    def test_a_smaller_batch_fits_after_an_operator_ran_out_of_memory(self) -> None:
        """`shrink_batch` frees the operands of the failed operator, even if garbage is not collected automatically."""
        self.without_gpus("""
import gc
gc.disable()
ds.use(name)
ds.simulate(gpus=1, memory=2**20)
ds.zeros(1)  # import the framework: modules may keep the frames of the call that imported them

def step(rows):
    x = ds.ones((rows, 1024), dtype="float32", device="gpu:0")
    return ds.to_numpy(x + 1).sum()

assert ds.shrink_batch(step, 256) == (2 * 128 * 1024, 128)
""")

    # ------------------------------------------------------------------ faults
    @pytest.mark.fresh
    @feature("simulate_memory")
    def test_faults_occur_at_the_requested_event(self) -> None:
        """A chosen allocation or copy fails once and leaves nothing behind; later calls work."""
        self.without_gpus("""
import gc
ds.use(name)
ds.simulate(gpus=2, faults=[ds.Fault("gpu:1", "allocation"), ds.Fault("gpu:0", "copy", at=2)])
host = ds.ones(8, dtype="float32")
error = expect(ds.OutOfMemoryError, ds.place, host, "gpu:1")
assert error.problem.startswith("gpu:1 is out of memory: 32 bytes were requested, "), error.problem
assert ds.memory("gpu:1").used == 0
assert ds.to_numpy(ds.place(host, "gpu:1")).sum() == 8
x = ds.place(host, "gpu:0")
error = expect(ds.DeviceFailedError, ds.place, x, "gpu:1")
assert error.problem == "gpu:0 failed during a copy of 32 bytes" and error.hint, error.problem
assert ds.to_numpy(ds.place(x, "gpu:1")).sum() == 8
""")

    @pytest.mark.fresh
    @feature("simulate_memory")
    def test_a_simulated_gpu_can_vanish(self) -> None:
        """After the event, every call that needs the GPU fails; the other GPUs and the host continue to work."""
        self.without_gpus("""
ds.use(name)
ds.simulate(gpus=2, faults=ds.Fault("gpu:1", "vanish", at=20))
x = ds.ones(8, dtype="float32", device="gpu:1")
caught = None
for _ in range(20):
    try:
        ds.place(x, "cpu")
    except ds.DeviceFailedError as error:
        caught = error
        break
assert caught is not None and caught.problem.startswith("gpu:1 failed during "), caught
for call in (
    lambda: ds.place(x, "cpu"), lambda: ds.place(ds.ones(2), "gpu:1"), lambda: ds.zeros(2, device="gpu:1"),
    lambda: ds.to_numpy(x), lambda: ds.memory("gpu:1"), lambda: ds.synchronize("gpu:1"),
):
    expect(ds.DeviceFailedError, call)
assert ds.to_numpy(ds.ones(3, device="gpu:0")).sum() == 3 and ds.to_numpy(ds.ones(3)).sum() == 3
""")

    # ------------------------------------------------------------------ real data
    @feature("simulate")
    @hook("train")
    def test_training_on_a_simulated_gpu_equals_the_cpu(self, gpu: Device) -> None:
        """Three steps of Adam through Conv, BatchNorm, Dropout and Linear give the same weights as on the CPU."""
        rng = np.random.default_rng(0)
        inputs, labels = rng.standard_normal((8, 1, 8, 8)).astype("float32"), rng.integers(0, 4, 8)
        here, there = self.train(ds.cpu(), inputs, labels), self.train(gpu, inputs, labels)
        assert len(here) == len(there) >= 6
        for expected, found in zip(here, there, strict=True):
            assert np.abs(expected - found).max() <= self.training_tolerance * max(1.0, float(np.abs(expected).max()))

    @feature("simulate")
    def test_many_threads_compute_at_once(self, gpu: Device, pytestconfig: pytest.Config) -> None:
        """Sixteen threads place and compute on all GPUs: no value is wrong, and all memory is freed."""
        end = time.monotonic() + pytestconfig.getoption("--devshim-stress")
        counted = "simulate_memory" not in self.adapter.gaps
        before = [used_bytes(device) for device in ds.devices("gpu")] if counted else []

        def body(seed: int) -> int:
            rng, rounds = np.random.default_rng(seed), 0
            while rounds < 2 or time.monotonic() < end:
                device = ds.gpu(int(rng.integers(ds.device_count())))
                a = rng.integers(-4, 4, (16, 16)).astype("float32")
                x = ds.from_numpy(a, device)
                y = ds.run(lambda x, y: self.matmul(x, y) + x, x, ds.copy(x, device))
                assert ds.device_of(y) is device
                z = ds.place(y, ds.gpu(int(rng.integers(ds.device_count()))))
                assert (ds.to_numpy(z) == a @ a + a).all(), "another thread's values"
                rounds += 1
            return rounds

        with ThreadPoolExecutor(16) as pool:
            assert min(pool.map(body, range(16))) >= 2
        assert before == ([used_bytes(device) for device in ds.devices("gpu")] if counted else [])
