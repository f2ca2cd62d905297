"""Tests of the memory under tensors on simulated GPUs in PyTorch: pinned, shared, kept alive, subclassed."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from simulated_torch import GPU, is_on_gpu, two_gpus_for_module  # noqa: F401 - a fixture

import devshim as ds


def test_pinned_memory():
    x = torch.arange(3.0)
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert not x.is_pinned()
    assert pinned.pin_memory() is pinned
    there = pinned.to(GPU, non_blocking=True)
    assert there.tolist() == [0, 1, 2]
    assert not there.is_pinned()
    with pytest.raises(RuntimeError, match="cannot pin"):
        there.pin_memory()


def test_storages():
    x = torch.arange(4.0, device=GPU)
    storage = x.untyped_storage()
    assert str(storage.device) == GPU
    assert storage.nbytes() == 16
    assert storage.cpu().device.type == "cpu"
    assert torch.empty(0).set_(storage.cpu(), 0, (4,), (1,)).tolist() == [0, 1, 2, 3]
    copy = storage.clone()
    assert str(copy.device) == GPU
    assert copy.data_ptr() != storage.data_ptr()
    made = torch.UntypedStorage(8, device=GPU)
    assert (made.nbytes(), str(made.device)) == (8, GPU)
    assert str(torch.ones(2).untyped_storage().to(device=torch.device(GPU)).device) == GPU
    assert x.storage_offset() == 0


def test_dlpack():
    x = torch.arange(3.0, device=GPU)
    shared = torch.from_dlpack(x)
    assert is_on_gpu(shared)
    shared[0] = 9
    assert x[0].item() == 9
    assert tuple(x.__dlpack_device__()) == (12, 1)  # kDLExtDev
    assert torch.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    with pytest.raises((BufferError, RuntimeError, TypeError, ValueError)):
        np.from_dlpack(x)


def test_memory_is_freed_with_the_last_owner():
    gc.collect()
    before = ds.memory("gpu:1").used
    x = torch.zeros(1000, device=GPU)
    view = x[10:20]
    shared = torch.from_dlpack(view)
    del x
    assert ds.memory("gpu:1").used == before + 4096
    del view
    assert ds.memory("gpu:1").used == before + 4096
    del shared
    assert ds.memory("gpu:1").used == before


def test_subclasses():
    class Mine(torch.Tensor):
        pass

    x = torch.ones(2, device=GPU).as_subclass(Mine)
    assert type(x + 1) is Mine
    assert is_on_gpu(x + 1)
    assert type(torch.ones(2).as_subclass(Mine).to(GPU)) is Mine


def test_modes_see_every_operator():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watch():
        torch.ones(2, device=GPU).mul(2)
    assert "aten.mul.Tensor" in seen
