"""Tests of real CUDA GPUs, as far as possible without one: contexts, streams and errors, with stubs of PyTorch calls.

Tests that need PyTorch's CUDA build are in ``tests/fake_cuda``.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from devshim_backends._torch import devices as devices_module
from devshim_backends._torch import random as draws_module
from devshim_backends._torch import scopes as scopes_module
from devshim_backends._torch.transfers.internals import pinned as pinned_module

import devshim as ds
from devshim.devices import cuda, startup
from devshim.registry import start_failures
from devshim.registry.registry import load


@pytest.fixture
def contexts(monkeypatch):
    """Return the GPUs that have a context: `torch.cuda` has been started, and only gpu:1 has been used."""
    found = {1}
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", lambda index: index in found, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", found.add)
    return found


# ---------------------------------------------------------------- contexts
@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() == 0, reason="hardware: no CUDA or ROCm card")
def test_a_matrix_product_in_a_new_thread_does_not_warn():
    """PyTorch warns once in a process, of the first product in a thread without a CUDA context."""
    code = "import devshim as ds; ds.use('torch'); x = ds.ones((2, 2), device='gpu:0')"
    code += "; print([str(ds.device_of(y)) for y in ds.parallel([lambda x: x @ x] * 2, [x, x])])"
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "['gpu:0', 'gpu:0']\n"), done.stderr


def test_a_new_thread_gets_the_context_of_its_gpu_once(monkeypatch):
    """A question to the CUDA runtime about a stream gives the thread a context: measured on an H200."""
    asked = []
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "is_current_stream_capturing", lambda: asked.append(threading.current_thread().name)
    )
    scope = scopes_module._AcceleratorScope(contextlib.nullcontext(), contextlib.nullcontext())

    def enter():
        for _ in range(3):
            with scope:
                pass

    for name in ("first", "second"):
        thread = threading.Thread(target=enter, name=name)
        thread.start()
        thread.join()
    assert asked == ["first", "second"]


def test_synchronize_creates_no_context(backend, contexts):
    """``torch.cuda.synchronize(i)`` creates one on a GPU without one, which takes half a GB and may fail."""
    for index in range(4):
        backend.synchronize(ds.gpu(index))
    assert contexts == {1}


def test_synchronize_waits_for_a_gpu_with_a_context(backend, contexts, monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    backend.synchronize(ds.gpu(1))
    assert waited == [1]


def test_pinned_buffers_use_the_context_of_the_target_gpu(monkeypatch):
    """Pinning creates a context on the thread's current GPU, which is GPU 0 by default."""
    current, empty = [0], torch.empty

    class Guard:
        def __init__(self, card):
            self.card = card

        def __enter__(self):
            current.append(self.card.index)

        def __exit__(self, *_):
            current.pop()

    pinned_on = []

    def pinned(count, dtype, device, pin_memory):
        pinned_on.append(current[-1])
        return empty(count, dtype=dtype, device=device)

    monkeypatch.setattr(torch.cuda, "device", Guard)
    monkeypatch.setattr(torch, "empty", pinned)
    pinned_module.pinned(8, torch.float32, torch.device("cuda", 3))
    assert pinned_on == [3]
    assert current == [0]


# ---------------------------------------------------------------- streams
def test_a_metric_log_waits_for_every_stream(backend, monkeypatch):
    """Values may have been appended on the user's streams, which are not ordered before the one that reads them."""
    calls = []
    stack = torch.stack
    monkeypatch.setattr(type(backend), "synchronize", lambda self, device: calls.append(device))

    class OnACard:
        """A scalar that claims to be on a GPU."""

        is_cpu, shape, dtype, device = False, (), torch.float32, torch.device("cuda", 1)

    monkeypatch.setattr(torch, "stack", lambda xs: calls.append("stack") or stack([torch.ones(())]))
    backend.stack_scalars([OnACard(), OnACard()])
    assert calls == [ds.gpu(1), "stack"]


def test_a_metric_log_copies_what_it_cannot_read_by_a_fast_path_that_checks(backend, monkeypatch):
    """On a card no number is read, so each is copied; here the adapter pretends that it cannot read the host's."""
    slow = []
    original = type(backend).detached_copy
    monkeypatch.setattr(type(backend), "scalar_reader", lambda self, x: None)
    monkeypatch.setattr(type(backend), "detached_copy", lambda self, x: slow.append(x) or original(self, x))
    log, x = ds.MetricLog(), torch.tensor(1.0, requires_grad=True)
    for _ in range(3):
        log.append(x)
        with torch.no_grad():
            x += 1.0
    assert len(slow) == 1
    with pytest.raises(ds.ArgumentError, match="shape"):
        log.append(torch.zeros(2))
    with pytest.raises(ds.UnsupportedError, match="meta"):
        log.append(torch.zeros((), device="meta"))
    log.append(torch.tensor(7.0, dtype=torch.float64))
    found = log.flush()
    assert found.tolist() == [1.0, 2.0, 3.0, 7.0]
    assert found.dtype == "float64"


def test_a_metric_log_of_host_values_does_not_synchronize(backend, monkeypatch):
    monkeypatch.setattr(type(backend), "synchronize", lambda self, device: pytest.fail("it waits"))
    log = ds.MetricLog()
    log.append(torch.tensor(2.0))
    assert log.flush().tolist() == [2.0]


# ---------------------------------------------------------------- a full GPU
@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
        "CUDA error: insufficient resources when calling `cusparseCreate`: CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
        "cuFFT error: CUFFT_ALLOC_FAILED",
        "NCCL Error 1: unhandled cuda error. Last error: Cuda failure 2 'out of memory'",
    ],
)
def test_errors_of_a_full_gpu_are_out_of_memory(backend, text):
    assert backend.is_out_of_memory(RuntimeError(text))


@pytest.mark.parametrize(
    "text", ["CUDA error: an illegal memory access was encountered", "NCCL Error 5: invalid usage"]
)
def test_other_errors_are_not_out_of_memory(backend, text):
    assert not backend.is_out_of_memory(RuntimeError(text))


def test_out_of_memory_is_also_pytorchs_error(backend):
    """Code tested with ``except torch.OutOfMemoryError`` on simulated GPUs catches a real device's error, too."""
    with pytest.raises(torch.OutOfMemoryError, match="cpu is out of memory") as caught:
        ds.empty(2**50)
    assert isinstance(caught.value, ds.OutOfMemoryError)


# ---------------------------------------------------------------- GPUs that do not start
@pytest.mark.parametrize(
    "call",
    [
        lambda: ds.synchronize("gpu:1"),
        lambda: ds.empty_cache("gpu:1"),
        lambda: ds.memory("gpu:1"),
        lambda: ds.describe("gpu:1"),
        lambda: ds.zeros(3, device="gpu:1"),
        lambda: ds.place(torch.ones(3), "gpu:1"),
        lambda: ds.memory_policy(0.5),
    ],
)
def test_gpus_that_do_not_start_are_not_found(backend, monkeypatch, call):
    """NVML counts two; starting CUDA fails, here because the build has none, there because the driver is old."""
    if torch.version.cuda is not None:
        pytest.skip("in tests/fake_cuda for builds with CUDA")
    monkeypatch.setattr(startup, "_REASONS", {})
    monkeypatch.setattr(start_failures, "_LOOKED_AT", set())
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cuda, "count", lambda: 2)
    assert ds.device_count() == 2
    ds.synchronize()
    ds.empty_cache()
    assert ds.device_count() == 2
    with pytest.raises(ds.DeviceNotFoundError, match=r"has 0 gpu devices: CUDA does not start \(Torch not compiled"):
        call()
    assert ds.device_count() == 0
    with pytest.raises(ds.DeviceNotFoundError, match="CUDA does not start"):
        ds.require("gpu:0")


def test_an_xpu_that_does_not_start_is_not_found(backend, monkeypatch):
    """Intel GPUs are counted and started like CUDA's."""
    if torch.xpu._is_compiled():
        pytest.skip("for builds without XPU")
    monkeypatch.setattr(startup, "_REASONS", {})
    monkeypatch.setattr(start_failures, "_LOOKED_AT", set())
    monkeypatch.setattr(torch.xpu, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 2)
    monkeypatch.setitem(devices_module.TYPES, "gpu", "xpu")
    assert ds.device_count() == 2
    with pytest.raises(ds.DeviceNotFoundError, match=r"has 0 gpu devices: XPU does not start \("):
        ds.describe("gpu:1")
    assert ds.device_count() == ds.device_count("xpu") == 0


def test_after_a_fork_pytorchs_own_error_is_raised(backend, monkeypatch):
    monkeypatch.setattr(startup, "_REASONS", {})
    monkeypatch.setattr(start_failures, "_LOOKED_AT", set())
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    monkeypatch.setattr(cuda, "count", lambda: 2)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(RuntimeError, match="forked subprocess"):
        ds.describe("gpu:1")
    assert ds.device_count() == 2


# ---------------------------------------------------------------- conversion
def test_converting_a_gpu_tensor_to_numpy_hints_at_the_cpu(backend, monkeypatch):
    """NumPy has no real GPUs; the hint is the call to write, without advice about drivers."""
    with ds.simulate(2):
        x = ds.ones(3, device="gpu:1")
        monkeypatch.setattr(type(load("numpy")), "count", lambda self, kind: 1 if kind == "cpu" else 0)
        with pytest.raises(ds.DeviceNotFoundError) as caught:
            ds.convert(x, "numpy")
        assert caught.value.problem == "the tensor of PyTorch is on gpu:1, and NumPy has 0 gpu devices"
        assert "ds.convert(x, 'numpy', 'cpu')" in caught.value.hint
        assert ds.convert(x, "numpy", "cpu").tolist() == [1, 1, 1]


# ---------------------------------------------------------------- pinned memory
PINNED = {
    "to_numpy": lambda x, a: ds.to_numpy(x),
    "from_numpy": lambda x, a: ds.from_numpy(a, "gpu:1"),
    "asarray": lambda x, a: ds.asarray(a, device="gpu:1"),
    "out of order": lambda x, a: ds.from_numpy(a[::-1], "gpu:1"),
    "convert": lambda x, a: ds.convert(x, "numpy", "cpu"),
}


@pytest.mark.parametrize("call", PINNED)
def test_arrays_are_copied_through_pinned_memory(backend, monkeypatch, call):
    """Large arrays go through pinned memory (`pinned.copy_to`), twice as fast, as for `ds.place`."""
    seen, own = [], pinned_module.copy_to
    monkeypatch.setattr(pinned_module, "copy_to", lambda x, *rest: seen.append(x.numel()) or own(x, *rest))
    with ds.simulate(2):
        x = ds.ones(5, device="gpu:1")
        PINNED[call](x, np.arange(5.0))
    assert seen == [5]


# ---------------------------------------------------------------- random numbers
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_uniform_is_one_kernel_if_rounding_stays_below_the_bound(dtype):
    """CUDA's kernel computes ``draw * (high - low) + low`` for draws in (0, 1]; a ``high`` becomes ``low``."""
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    draws = torch.cat(
        [torch.linspace(1e-6, 1, 999, dtype=wide), 1 - torch.finfo(wide).eps * torch.arange(9, dtype=wide)]
    )
    ends = torch.empty(300, 2, dtype=torch.float64).uniform_(-2, 2, generator=torch.Generator().manual_seed(1))
    answers = set()
    for low, high in [(0.0, 1.0), (-1.0, 1.0), *ends.sort(dim=1).values.tolist()]:
        first, last = torch.tensor([low, high], dtype=dtype)
        made = (draws * (last - first).to(wide) + first.to(wide)).to(dtype)
        answers.add(safe := draws_module._stays_below(low, high, dtype))
        assert not safe or bool((torch.where(made == last, first, made) < max(high, last.item())).all()), (low, high)
    assert True in answers
    assert draws_module._stays_below(0.0, 1.0, dtype)


def test_uniform_replaces_values_above_the_bound():
    assert not draws_module._stays_below(-1.7409006766954733, 0.8624475453666407, torch.float32)
