"""Tests of saving, copying, forking and loading data with tensors on simulated GPUs in PyTorch."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys

import pytest

import devshim as ds

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("two_cards")
nn = torch.nn

CARD = "sim:1"


def saved(obj):
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return file


# ---------------------------------------------------------------- torch.save and torch.load


@pytest.mark.parametrize("weights_only", [True, False])
def test_what_was_on_a_card_comes_back_to_it(weights_only):
    x = torch.arange(6.0, device=CARD)
    state = {"x": x, "view": x[2:4], "n": 3, "p": nn.Parameter(torch.ones(2, device="sim:0"))}
    back = torch.load(saved(state), weights_only=weights_only)
    assert str(back["x"].device) == CARD
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
    file = saved({"x": torch.arange(3.0, device=CARD)})
    back = torch.load(file, map_location=to() if callable(to) else to)["x"]
    assert str(back.device) == wanted
    if wanted != "meta":
        assert back.tolist() == [0, 1, 2]


def test_from_the_host_to_a_card():
    back = torch.load(saved(torch.arange(3.0)), map_location=CARD)
    assert str(back.device) == CARD
    with torch.device(CARD):
        assert str(torch.load(saved(torch.arange(3.0))).device) in (CARD, "cpu")


@pytest.mark.parametrize("to", [None, "sim:1", "cpu"])
def test_mapped_files(tmp_path, to):
    path = tmp_path / "x.pt"
    torch.save({"x": torch.arange(1000.0)}, path)
    back = torch.load(path, map_location=to, mmap=True)["x"]
    assert str(back.device) == (to or "cpu")
    assert back.sum().item() == 499500


def test_old_formats(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.arange(3.0, device=CARD), path, _use_new_zipfile_serialization=False)
    assert str(torch.load(path).device) == CARD
    assert torch.load(path, map_location="cpu").tolist() == [0, 1, 2]


def test_a_card_that_is_not_there():
    file = saved(torch.ones(2, device=CARD))
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
    x = torch.tensor([0, 1, 1]).to(dtype).to(CARD)
    back = torch.load(saved(x))
    assert back.dtype == dtype
    assert torch.equal(back.cpu(), x.cpu())


def test_pickle():
    x = torch.ones(3, device=CARD, requires_grad=True)
    back = pickle.loads(pickle.dumps(x))
    assert str(back.device) == CARD
    assert back.requires_grad
    model = pickle.loads(pickle.dumps(nn.Linear(2, 2).to(CARD)))
    assert str(model.weight.device) == CARD
    assert pickle.loads(pickle.dumps(torch.device(CARD))) == torch.device(CARD)


def test_state_dicts():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(CARD)
    state = model.state_dict()
    assert {str(each.device) for each in state.values()} == {CARD}
    host = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = host[0].weight
    host.load_state_dict(state)
    assert host[0].weight is weight
    assert weight.device.type == "cpu"
    assert torch.equal(weight, model[0].weight.cpu())
    host.load_state_dict(state, assign=True)
    assert str(host[0].weight.device) == CARD
    assert isinstance(host[0].weight, nn.Parameter)
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    empty.load_state_dict(torch.load(saved(state)), assign=True)
    assert str(empty[0].weight.device) == CARD
    model.load_state_dict({name: each.cpu() for name, each in state.items()})
    assert str(model[0].weight.device) == CARD


# ---------------------------------------------------------------- processes


def test_a_forked_process_goes_on():
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
        there, target = x.to(CARD, non_blocking=True), y.to(CARD, non_blocking=True)
        assert torch.equal(there * there, target.float())
        seen += there.tolist()
    assert seen == list(range(10))


def test_a_dataset_on_the_card():
    data = torch.utils.data.TensorDataset(torch.arange(6.0, device=CARD), torch.arange(6, device=CARD))
    batches = list(torch.utils.data.DataLoader(data, batch_size=3, shuffle=True))
    assert {str(x.device) for batch in batches for x in batch} == {CARD}
    assert sorted(torch.cat([x for x, _ in batches]).tolist()) == list(range(6))
    parts = torch.utils.data.random_split(data, [4, 2])
    assert [len(part) for part in parts] == [4, 2]
