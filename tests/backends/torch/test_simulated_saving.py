"""Tests of saving, copying, forking and loading data with tensors on simulated GPUs in PyTorch."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys

import pytest
import torch
from simulated_torch import GPU

import devshim as ds

pytestmark = pytest.mark.usefixtures("two_cards")
nn = torch.nn


def saved(obj):
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return file


# ---------------------------------------------------------------- torch.save and torch.load


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_saved_tensor_is_loaded_to_its_gpu(weights_only):
    x = torch.arange(6.0, device=GPU)
    state = {"x": x, "view": x[2:4], "n": 3, "p": nn.Parameter(torch.ones(2, device="sim:0"))}
    back = torch.load(saved(state), weights_only=weights_only)
    assert str(back["x"].device) == GPU
    assert str(back["p"].device) == "sim:0"
    assert isinstance(back["p"], nn.Parameter)
    assert torch.equal(back["x"], x)
    assert torch.equal(back["view"], x[2:4])
    assert back["view"].untyped_storage().data_ptr() == back["x"].untyped_storage().data_ptr()


MAPS = {
    "text": ("cpu", "cpu"),
    "another card": ("sim:0", "sim:0"),
    "a card without an index": ("sim", "sim:0"),
    "a device": (lambda: torch.device("cpu"), "cpu"),
    "a dict": ({"sim:1": "sim:0"}, "sim:0"),
    "a dict to the host": ({"sim:1": "cpu"}, "cpu"),
    "a function": (lambda: lambda storage, location: storage, "cpu"),
    "a function of its own": (lambda: lambda storage, location: storage.to(device=torch.device("sim:0")), "sim:0"),
    "meta": ("meta", "meta"),
    "none": (None, "sim:1"),
}


@pytest.mark.parametrize("form", MAPS)
def test_map_location(form):
    to, wanted = MAPS[form]
    file = saved({"x": torch.arange(3.0, device=GPU)})
    back = torch.load(file, map_location=to() if callable(to) else to)["x"]
    assert str(back.device) == wanted
    if wanted != "meta":
        assert back.tolist() == [0, 1, 2]


def test_a_host_tensor_is_loaded_to_a_gpu():
    back = torch.load(saved(torch.arange(3.0)), map_location=GPU)
    assert str(back.device) == GPU
    with torch.device(GPU):
        assert str(torch.load(saved(torch.arange(3.0))).device) in (GPU, "cpu")


@pytest.mark.parametrize("to", [None, "sim:1", "cpu"])
def test_mapped_files(tmp_path, to):
    path = tmp_path / "x.pt"
    torch.save({"x": torch.arange(1000.0)}, path)
    back = torch.load(path, map_location=to, mmap=True)["x"]
    assert str(back.device) == (to or "cpu")
    assert back.sum().item() == 499500


def test_old_formats(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.arange(3.0, device=GPU), path, _use_new_zipfile_serialization=False)
    assert str(torch.load(path).device) == GPU
    assert torch.load(path, map_location="cpu").tolist() == [0, 1, 2]


def test_a_gpu_that_does_not_exist_is_refused():
    file = saved(torch.ones(2, device=GPU))
    ds.simulate(gpus=1)
    with pytest.raises(RuntimeError):
        torch.load(file)
    file.seek(0)
    assert torch.load(file, map_location="sim:0").get_device() == 0
    ds.simulate(gpus=0)
    file.seek(0)
    with pytest.raises(RuntimeError, match="map_location"):
        torch.load(file)
    file.seek(0)
    assert torch.load(file, map_location="cpu").tolist() == [1, 1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.int8, torch.uint16, torch.complex64])
def test_every_dtype_is_saved(dtype):
    x = torch.tensor([0, 1, 1]).to(dtype).to(GPU)
    back = torch.load(saved(x))
    assert back.dtype == dtype
    assert torch.equal(back.cpu(), x.cpu())


def test_pickle():
    x = torch.ones(3, device=GPU, requires_grad=True)
    back = pickle.loads(pickle.dumps(x))
    assert str(back.device) == GPU
    assert back.requires_grad
    model = pickle.loads(pickle.dumps(nn.Linear(2, 2).to(GPU)))
    assert str(model.weight.device) == GPU
    assert pickle.loads(pickle.dumps(torch.device(GPU))) == torch.device(GPU)


def test_state_dicts():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(GPU)
    state = model.state_dict()
    assert {str(each.device) for each in state.values()} == {GPU}
    host = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = host[0].weight
    host.load_state_dict(state)
    assert host[0].weight is weight
    assert weight.device.type == "cpu"
    assert torch.equal(weight, model[0].weight.cpu())
    host.load_state_dict(state, assign=True)
    assert str(host[0].weight.device) == GPU
    assert isinstance(host[0].weight, nn.Parameter)
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    empty.load_state_dict(torch.load(saved(state)), assign=True)
    assert str(empty[0].weight.device) == GPU
    model.load_state_dict({name: each.cpu() for name, each in state.items()})
    assert str(model[0].weight.device) == GPU


# ---------------------------------------------------------------- processes


def test_a_forked_process_uses_the_gpus():
    if not hasattr(os, "fork"):
        pytest.skip("hardware: no fork")
    program = """
import os, warnings
import torch, devshim as ds
ds.use("torch"); ds.simulate(gpus=2)
x = torch.arange(4.0, device="sim:1", requires_grad=True)
(x * x).sum().backward()
child = os.fork()
if child == 0:
    y = torch.ones(2, device="sim:0") + 1
    (x * 3).sum().backward()
    good = y.tolist() == [2, 2] and x.grad.tolist() == [3, 5, 7, 9] and torch.rand(2, device="sim:1").device.index == 1
    os._exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
assert x.grad.tolist() == [0, 2, 4, 6]
"""
    run(program)


def test_spawned_processes():
    program = """
import torch, devshim as ds
import torch.multiprocessing as mp
def work(rank, results):
    ds.use("torch"); ds.simulate(gpus=2)
    results.put((rank, torch.full((2,), rank + 1.0, device=f"sim:{rank}").sum().item()))
if __name__ == "__main__":
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(work, (results,), nprocs=2)
    assert sorted(results.get() for _ in range(2)) == [(0, 2.0), (1, 4.0)]
"""
    run(program)


def run(program):
    path = os.pathsep.join(part for part in sys.path if part)
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "program.py")
        with open(file, "w") as out:
            out.write(program)
        ran = subprocess.run(
            [sys.executable, file], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path}
        )
    assert ran.returncode == 0, ran.stderr[-2000:]


# ---------------------------------------------------------------- data


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.tensor(float(index)), index * index


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pin", [False, True])
def test_data_loaders(workers, pin):
    loader = torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=workers, pin_memory=pin)
    seen = []
    for x, y in loader:
        assert x.is_pinned() == pin
        there, target = x.to(GPU, non_blocking=True), y.to(GPU, non_blocking=True)
        assert torch.equal(there * there, target.float())
        seen += there.tolist()
    assert seen == list(range(10))


def test_a_dataset_on_the_gpu():
    data = torch.utils.data.TensorDataset(torch.arange(6.0, device=GPU), torch.arange(6, device=GPU))
    batches = list(torch.utils.data.DataLoader(data, batch_size=3, shuffle=True))
    assert {str(x.device) for batch in batches for x in batch} == {GPU}
    assert sorted(torch.cat([x for x, _ in batches]).tolist()) == list(range(6))
    parts = torch.utils.data.random_split(data, [4, 2])
    assert [len(part) for part in parts] == [4, 2]
