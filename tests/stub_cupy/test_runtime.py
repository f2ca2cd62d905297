"""Tests of contexts, memory, errors, random numbers, and the guard."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import cupy
import numpy as np
import pytest
from cupy import _machine

import devshim as ds

SITE = str(Path(__file__).parent / "site")


def in_fresh_process(code: str, gpus: int = 4) -> None:
    """Run code in a new process, in which nothing has run before."""
    prelude = f"import sys; sys.path.insert(0, {SITE!r}); import stub_driver; stub_driver.install()\n"
    prelude += "import cupy, os, pytest\nimport devshim as ds\nfrom cupy import _machine\nds.use('cupy')\n"
    environment = {**os.environ, "STUB_CUPY_GPUS": str(gpus)}
    done = subprocess.run([sys.executable, "-c", prelude + code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_unused_gpus_have_no_context() -> None:
    """GPU 0 has one: CuPy makes it current again, and CUDA creates a context then (12 and newer)."""
    in_fresh_process("""
assert ds.device_count() == 4 and len(ds.devices()) == 5 and ds.try_gpu() is ds.gpu(0)
ds.synchronize(); ds.empty_cache(); ds.random.seed(0); ds.memory_policy("grow"); ds.memory_policy(0.5)
[ds.describe(device) for device in ds.devices()]
ds.set_visible_devices(None)
assert _machine.contexts == set()
assert os.environ["CUPY_GPU_MEMORY_LIMIT"] == "50.000000%"
x = ds.place(ds.ones(3), "gpu:3")
ds.synchronize(); ds.empty_cache(); ds.random.seed(0); ds.memory_policy(0.5)
ds.to_numpy(x), ds.copy(x, "gpu:3"), ds.random.normal(size=3, device="gpu:3")
assert _machine.contexts == {0, 3}, _machine.contexts
assert set(_machine.limits) == {0, 3}
assert _machine.calls["deviceSynchronize"] == 2
with pytest.raises(ds.AlreadyStartedError, match="CuPy has already started"):
    ds.set_visible_devices([1])
""")


@pytest.mark.parametrize(
    "call",
    ['ds.place(ds.ones(3), "gpu:1")', 'ds.synchronize("gpu:1")', 'ds.empty_cache("gpu:1")', 'ds.memory("gpu:1")'],
)
def test_a_driver_that_is_too_old(call: str) -> None:
    """NVML still counts its GPUs; the first call that needs one fails, and the count is 0 from then on."""
    in_fresh_process(
        """
_machine.ERRORS.append("cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version")
assert ds.device_count() == 4
ds.synchronize()
for _ in range(2):
    with pytest.raises(ds.DeviceNotFoundError, match="CUDA does not start .cudaErrorInsufficientDriver") as caught:
        CALL
assert ds.device_count() == 0 and ds.try_gpu() is ds.cpu()
assert ds.place(ds.ones(3), "cpu").tolist() == [1, 1, 1]
""".replace("CALL", call)
    )


def test_a_full_gpu() -> None:
    """The error is devshim's and CuPy's, and nothing has moved."""
    ds.empty_cache()
    before = ds.memory("gpu:1").used
    for call in (
        lambda: ds.zeros(1 << 26, dtype="float64", device="gpu:1"),
        lambda: ds.place(np.empty(1 << 26, "float64"), "gpu:1"),
        lambda: ds.place([np.ones(3), np.empty(1 << 26, "float64")], "gpu:1"),
    ):
        with pytest.raises(ds.OutOfMemoryError, match="gpu:1 is out of memory") as caught:
            call()
        assert isinstance(caught.value, cupy.cuda.memory.OutOfMemoryError)
        assert type(pickle.loads(pickle.dumps(caught.value))) is type(caught.value)
        del caught
        assert ds.memory("gpu:1").used == before


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (cupy.cuda.memory.OutOfMemoryError(8, 8), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUSOLVER_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"), True),
        (RuntimeError("CURAND_STATUS_ALLOCATION_FAILED"), True),
        (RuntimeError("CUFFT_ALLOC_FAILED"), True),
        (cupy.cuda.runtime.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory"), True),
        (cupy.cuda.runtime.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_errors_of_a_full_gpu_are_recognized(error: Exception, full: bool) -> None:
    tried: list[int] = []

    def step(size: int) -> str:
        tried.append(size)
        if size > 2:
            raise error
        return "done"

    if full:
        assert ds.shrink_batch(step, 8) == ("done", 2)
    else:
        with pytest.raises(type(error)):
            ds.shrink_batch(step, 8)
    assert tried == ([8, 4, 2] if full else [8])


def test_memory_and_the_pool() -> None:
    ds.empty_cache("gpu:1")
    x = ds.zeros(1 << 10, dtype="float32", device="gpu:1")
    found = ds.memory("gpu:1")
    assert (found.total, found.peak) == (_machine.BYTES, None)
    assert found.used is not None
    assert found.used >= 4096
    del x
    assert _machine.cached[1] >= 4096
    assert ds.memory("gpu:1").free == found.free + 4096  # the pool's bytes are available
    ds.empty_cache("gpu:1")
    assert _machine.cached[1] == 0


@pytest.mark.parametrize("name", [None, "float16", "float32", "float64"])
def test_random_arrays_are_on_their_gpu_and_repeat_after_seed(name: str | None) -> None:
    def draw() -> list[list[float]]:
        devices = ("cpu", "gpu:0", "gpu:1")
        drawn = [
            draws(size=50, device=each, dtype=name)
            for draws in (ds.random.uniform, ds.random.normal)
            for each in devices
        ]
        assert [str(ds.device_of(x)) for x in drawn] == [*devices, *devices]
        assert all(x.dtype == np.dtype(name or float) for x in drawn)
        assert all(0 <= x < 1 for each in drawn[:3] for x in ds.to_numpy(each).tolist())
        return [ds.to_numpy(x).tolist() for x in drawn]

    ds.random.seed(5)
    first = draw()
    assert draw() != first
    ds.random.seed(5)
    assert draw() == first


def test_a_generator_that_is_created_later_is_seeded() -> None:
    in_fresh_process("""
ds.random.seed(5)
x = ds.to_numpy(ds.random.normal(size=3, device="gpu:2"))
ds.random.seed(5)
assert (ds.to_numpy(ds.random.normal(size=3, device="gpu:2")) == x).all()
with cupy.cuda.Device(2):
    cupy.random.seed(9)
y = ds.to_numpy(ds.random.normal(size=3, device="gpu:2"))
assert (x != y).any()
""")


READS = {
    "get()": lambda x: x.get(),
    "asnumpy": lambda x: cupy.asnumpy(x),
    "float()": lambda x: float(x[0]),
    "int()": lambda x: int(x[0]),
    "bool()": lambda x: bool(x[0]),
    "item()": lambda x: x[0].item(),
    "tolist()": lambda x: x.tolist(),
    "print()": lambda x: str(x),
    "tobytes()": lambda x: x.tobytes(),
    "pickle": lambda x: pickle.dumps(x),
    "an index": lambda x: x[np.array([1])],
    "a selection by a mask": lambda x: x[x > 1],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_the_guard_reports_reads(read) -> None:
    x = ds.arange(3, device="gpu:1")
    with cupy.cuda.Device(1):
        with ds.guard("error"), pytest.raises(ds.TransferError, match="gpu:1"):
            read(x)
        with ds.guard("error"):
            ds.to_numpy(x), ds.place(x, "cpu"), ds.place(x, "gpu:0"), x + x
            x[0] = 3
        read(x)
    assert "get" not in vars(cupy.ndarray) or cupy.ndarray.get.__module__ != "devshim.monitoring.instrumentation"


def test_cupy_refuses_under_a_guard_what_it_refuses_without() -> None:
    x = ds.ones(3, device="gpu:0")
    with ds.guard("error"):
        for call in (lambda: np.asarray(x), lambda: x + np.ones(3)):
            with pytest.raises(TypeError):
                call()


def test_arrays_on_two_gpus_are_distinguished() -> None:
    x, y = ds.ones(3, device="gpu:0"), ds.ones(3, device="gpu:1")
    assert not ds.same_device(x, y)
    with pytest.raises(ds.DeviceMismatchError, match="is on gpu:0"):
        ds.run(lambda a, b: a + b, x, y)
    assert ds.device_of(ds.run(lambda a: a + a, y)) is ds.gpu(1)


def test_a_ledger_has_every_copy() -> None:
    x = np.ones(4, "float32")
    with ds.transfers() as log:
        y = ds.place(x, "gpu:1")
        z = ds.place(y, "gpu:0")
        ds.to_numpy(z)
    assert [(str(r.source), str(r.target), r.bytes) for r in log.records] == [
        ("cpu", "gpu:1", 16),
        ("gpu:1", "gpu:0", 16),
        ("gpu:0", "cpu", 16),
    ]


def test_gpus_have_cupys_names_and_properties() -> None:
    assert ds.gpu(1).native("cupy") == cupy.cuda.Device(1)
    assert ds.device(cupy.cuda.Device(1)) is ds.gpu(1)
    assert ds.place(np.ones(2), cupy.cuda.Device(1)).device.id == 1
    with pytest.raises(ds.DeviceSpecError):
        ds.device(cupy.cuda.Stream())
    with pytest.raises(ds.DeviceNotFoundError, match="CuPy has 2 gpu devices"):
        ds.place(np.ones(2), "gpu:2")
    info = ds.describe("gpu:1")
    assert (info.name, info.compute_capability, info.pci_bus_id) == ("Stub GPU", (9, 0), "0000:3c:00.0")
    assert info.uuid == "GPU-11111111-1111-1111-1111-111111111101"
    with ds.explain(file=None) as lines:
        y = ds.place(ds.ones(2), "gpu:1")
        ds.place(y, "cpu")
    assert lines == ["np.ones((2,))", "with cp.cuda.Device(1): y = cp.asarray(x)", "cp.asnumpy(x)"]


def test_simulation_is_refused_with_the_reason() -> None:
    with pytest.raises(ds.UnsupportedError, match="only with CUDA"):
        ds.simulate(gpus=2)
