"""Tests of sparse tensors on simulated GPUs in PyTorch: created, moved, computed with, trained with, saved."""

from __future__ import annotations

import copy
import gc
import io

import pytest
import torch
from simulated_torch import GPU

import devshim as ds

nn = torch.nn

LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]

# PyTorch's warnings about compressed layouts on any device
pytestmark = pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*beta state")


@pytest.fixture(autouse=True)
def gpus():
    ds.use("torch")
    with ds.simulate(gpus=2):
        yield
        gc.collect()
        assert ds.memory("gpu:1").used == 0
    ds.use(None)


def dense():
    x = torch.eye(4)
    x[0, 3], x[2, 0] = 5.0, -2.0
    return x


def of_layout(x, layout):
    blocks = {"blocksize": (2, 2)} if "bs" in layout else {}
    return x.to_sparse(layout=getattr(torch, layout), **blocks)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_tensor_is_copied_and_copied_back(layout):
    x = dense()
    for there in (of_layout(x.to(GPU), layout), of_layout(x, layout).to(GPU)):
        assert str(there.device) == GPU
        assert there.layout == getattr(torch, layout)
        assert str(there.values().device) == GPU
        assert torch.equal(there.to_dense().cpu(), x)
        assert torch.equal(there.cpu().to_dense(), x)
        assert there.cpu().device.type == "cpu"
        assert str(there.to("sim:0").device) == "sim:0"
        assert str(there.clone().device) == GPU
        assert str(copy.deepcopy(there).device) == GPU
        assert f"device='{GPU}'" in repr(there)
        file = io.BytesIO()
        torch.save(there, file)
        file.seek(0)
        assert str(torch.load(file).device) == GPU
        file.seek(0)
        assert torch.equal(torch.load(file, map_location="cpu").to_dense(), x)


@pytest.mark.parametrize("layout", LAYOUTS[:-1])  # the CPU has no products of blocks by columns
def test_products(layout):
    x, y = dense(), torch.arange(8.0).reshape(4, 2)
    there = of_layout(x.to(GPU), layout)
    product = there @ y.to(GPU)
    assert str(product.device) == GPU
    assert torch.equal(product.cpu(), x @ y)
    assert torch.equal((there * 2).to_dense().cpu(), x * 2)
    with pytest.raises(RuntimeError, match="device"):
        there @ y
    with pytest.raises(RuntimeError, match="device"):
        there @ y.to("sim:0")


def test_arithmetic():
    x = dense()
    there = x.to(GPU).to_sparse()
    assert (there._nnz(), there.is_coalesced(), there.sparse_dim(), there.dense_dim()) == (6, True, 2, 0)
    assert str(there.indices().device) == GPU
    results = [
        there + there,
        there * there,
        there.t(),
        there.abs(),
        there.sqrt(),
        there - there,
        torch.cat([there, there]),
    ]
    on_host = x.to_sparse()
    wanted = [on_host + on_host, on_host * on_host, on_host.t(), on_host.abs(), on_host.sqrt()]
    wanted += [on_host - on_host, torch.cat([on_host, on_host])]
    for one, other in zip(results, wanted, strict=True):
        assert str(one.device) == GPU
        torch.testing.assert_close(one.to_dense().cpu(), other.to_dense(), equal_nan=True)
    assert torch.sparse.sum(there).item() == x.sum().item()
    assert torch.equal((x.to(GPU) + there).cpu(), 2 * x)
    with pytest.raises(RuntimeError, match="device"):
        there + on_host


def test_changes_in_place():
    x = dense()
    there = x.to(GPU).to_sparse()
    there.mul_(3)
    assert torch.equal(there.to_dense().cpu(), 3 * x)
    there.add_(torch.ones(4, 4, device=GPU).to_sparse())
    assert torch.equal(there.to_dense().cpu(), 3 * x + 1)
    there.zero_()
    assert there._nnz() == 0
    plain = x.to(GPU)
    plain.add_(x.to(GPU).to_sparse())
    assert torch.equal(plain.cpu(), 2 * x)


def test_made_of_parts():
    made = torch.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1.0, 2.0, 3.0], (2, 2), device=GPU)
    assert str(made.device) == GPU
    assert made.coalesce().values().tolist() == [1, 5]
    assert made.to_dense().tolist() == [[0, 1], [5, 0]]
    rows = torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], device=GPU)
    assert str(rows.device) == GPU
    assert rows.to_dense().tolist() == [[1, 0], [0, 2]]


def test_gradients():
    x = dense().to(GPU).requires_grad_()
    weights = torch.arange(4.0, device=GPU).reshape(4, 1).requires_grad_()
    torch.sparse.mm(x.to_sparse(), weights).sum().backward()
    assert str(x.grad.device) == str(weights.grad.device) == GPU
    host, other = dense().requires_grad_(), torch.arange(4.0).reshape(4, 1).requires_grad_()
    torch.sparse.mm(host.to_sparse(), other).sum().backward()
    assert torch.equal(x.grad.to_dense().cpu(), host.grad.to_dense())
    assert torch.equal(weights.grad.cpu(), other.grad)


@pytest.mark.parametrize("optimizer", ["SparseAdam", "SGD", "Adagrad"])
@pytest.mark.parametrize("kind", ["Embedding", "EmbeddingBag"])
def test_training_with_sparse_gradients_equals_the_hosts(optimizer, kind):
    sides = []
    for device in ("cpu", GPU):
        torch.manual_seed(0)
        layer = getattr(nn, kind)(6, 3, sparse=True)
        layer.to(device)
        opt = getattr(torch.optim, optimizer)(layer.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            out = layer(torch.tensor([[1, 3, 1]], device=device)) + layer(torch.tensor([[2, 2, 5]], device=device))
            out.square().sum().backward()
            assert layer.weight.grad.is_sparse
            assert str(layer.weight.grad.device) == device
            opt.step()
        sides.append(layer.weight.detach().cpu())
    assert torch.equal(*sides)


def test_memory_of_a_sparse_tensor_is_that_of_its_parts():
    there = dense().to(GPU).to_sparse()
    assert ds.memory("gpu:1").used == 2 * 512
    view = there.t()
    assert str(view.device) == GPU
    moved = there.to("sim:0")
    assert ds.memory("gpu:0").used == 2 * 512
    del view, moved
    gc.collect()
    assert (ds.memory("gpu:0").used, ds.memory("gpu:1").used) == (0, 2 * 512)


def test_tensors_that_gpus_do_not_support_are_not_placed():
    x = torch.ones(3).to_mkldnn()
    for given in (x, {"a": x}):
        with pytest.raises(ds.UnsupportedError, match="simulated GPUs have no tensors of layout _mkldnn"):
            ds.place(given, "gpu:1")
    assert ds.place(x, "cpu") is x


@pytest.mark.parametrize("device", ["cpu", "gpu:1"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_and_joins_of_sparse_tensors_are_right_or_refused(layout, device):
    x = ds.place(of_layout(dense(), layout), device)
    calls = {
        "join": lambda: ds.gather([x, x], "cpu"),
        "take the sum of": lambda: ds.all_reduce_([x.clone(), x.clone()])[0],
        "take the max of": lambda: ds.all_reduce_([x.clone(), x.clone()], "max")[0],
    }
    for verb, call in calls.items():
        if layout == "sparse_coo" and "max" not in verb:
            total = ds.place(call(), "cpu").to_dense().sum()
            assert total == 2 * ds.place(x, "cpu").to_dense().sum()
        else:
            with pytest.raises(ds.UnsupportedError, match=f"PyTorch cannot {verb} a tensor of layout {layout}"):
                call()
