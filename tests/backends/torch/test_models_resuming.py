"""Tests that every PyTorch optimizer continues from a checkpoint on another device as if nothing had happened."""

from __future__ import annotations

import inspect
from collections import namedtuple

import pytest
import torch

import devshim as ds

Moments = namedtuple("Moments", "first second")

nn = torch.nn

NAMES = sorted(
    name
    for name, cls in inspect.getmembers(torch.optim, inspect.isclass)
    if issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer
)
pytestmark = pytest.mark.usefixtures("two_cards")

X, Y = torch.linspace(-1, 1, 24).reshape(6, 4), torch.linspace(1, -1, 18).reshape(6, 3)


def started(name, device, **settings):
    """Return a model and its optimizer, of which only the weights are on a device so far."""
    torch.manual_seed(0)
    biased = name != "Muon"  # it takes only matrices
    layers = [nn.Linear(4, 8, bias=biased), nn.Tanh(), nn.Linear(8, 3, bias=biased)]
    model = nn.Embedding(6, 3, sparse=True) if name == "SparseAdam" else nn.Sequential(*layers)
    return [ds.place(model, device), getattr(torch.optim, name)(model.parameters(), lr=0.01, **settings)]


def test_files_of_torch_save_are_recognized_and_the_hint_converts_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, other = nn.Linear(4, 3), nn.Linear(4, 3)
    for zipped in (True, False):
        torch.save(model.state_dict(), "a.pt", _use_new_zipfile_serialization=zipped)
        with pytest.raises(ds.CheckpointError, match=r"it is a file of torch\.save") as caught:
            ds.load("a.pt", into=other)
        line, _, rest = caught.value.hint.rpartition(" converts")
        assert (line, rest) == (
            "ds.save(torch.load('a.pt', map_location='cpu', weights_only=True), 'a.safetensors')",
            " it",
        )
        eval(line)
        ds.load("a.safetensors", into=other)
        assert torch.equal(other.weight, model.weight)
        nn.init.zeros_(other.weight)


def test_a_model_does_not_fill_a_dict(tmp_path):
    path = tmp_path / "model.safetensors"
    ds.save(nn.Sequential(nn.Linear(4, 3)), path)
    with pytest.raises(ds.CheckpointError) as caught:
        ds.load(path, into={"w": torch.zeros(4, 3), "b": torch.zeros(3)})
    assert caught.value.problem == (
        "the file does not fit `into`: it contains a Sequential of PyTorch, and `into` is a dict"
    )
    assert caught.value.hint == (
        "ds.load(path) without `into` returns a dict of its tensors by name: '0.weight', '0.bias'"
    )
    assert list(eval(caught.value.hint.partition(" without")[0])) == ["0.weight", "0.bias"]


def step(pair, device):
    model, optimizer = pair
    x = torch.arange(6) if isinstance(model, nn.Embedding) else X

    def loss():
        optimizer.zero_grad()
        lost = nn.functional.mse_loss(model(ds.place(x, device)), ds.place(Y, device))
        lost.backward()
        return lost

    optimizer.step(loss)


def weights(pair):
    return [ds.to_numpy(p) for p in pair[0].parameters()]


@pytest.mark.parametrize("name", NAMES)
def test_training_resumes_from_a_checkpoint(name, tmp_path):
    first, second = started(name, "cpu"), started(name, "gpu:1")
    for _ in range(3):
        step(first, "cpu")
    ds.save(first, tmp_path / "run.safetensors")
    assert ds.load(tmp_path / "run.safetensors", "gpu:1", into=second) is second
    for _ in range(2):
        step(first, "cpu")
        step(second, "gpu:1")
    assert all((a == b).all() for a, b in zip(weights(first), weights(second), strict=True))
    assert ds.placement_of(second[0]).devices == {ds.gpu(1)}


def test_settings_are_restored(tmp_path):
    first, second = started("SGD", "cpu", momentum=0.9, weight_decay=0.1), started("SGD", "cpu")
    step(first, "cpu")
    ds.save(first, tmp_path / "run.safetensors")
    ds.load(tmp_path / "run.safetensors", into=second)
    assert second[1].param_groups[0]["momentum"] == 0.9
    assert second[1].param_groups[0]["weight_decay"] == 0.1


def test_a_scheduler_and_a_scaler_are_restored(tmp_path):
    def make_all(device):
        pair = started("Adam", device)
        return [
            *pair,
            torch.optim.lr_scheduler.StepLR(pair[1], 2, gamma=0.5),
            torch.amp.GradScaler("sim", init_scale=8.0),
        ]

    first, second = make_all("gpu:1"), make_all("gpu:1")
    for _ in range(3):
        first[3].scale(first[0](ds.place(X, "gpu:1")).sum()).backward()
        first[3].step(first[1])
        first[3].update(16.0)
        first[2].step()
    ds.save(first, tmp_path / "run.safetensors")
    ds.load(tmp_path / "run.safetensors", into=second)
    assert second[2].last_epoch == 3
    assert second[2].get_last_lr() == first[2].get_last_lr() != [0.01]
    assert second[3].get_scale() == 16.0


def test_another_model_is_refused_and_nothing_changes(tmp_path):
    first = started("Adam", "cpu")
    step(first, "cpu")
    ds.save(first[1], tmp_path / "run.safetensors")
    torch.manual_seed(1)
    other = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(other.parameters(), lr=0.5)
    with pytest.raises(ds.CheckpointError):
        ds.load(tmp_path / "run.safetensors", into=optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert not optimizer.state


def test_named_tuples_in_the_state_of_an_optimizer_are_saved(tmp_path):
    """PyTorch's `load_state_dict` cannot make named tuples, so this state can only be read as a tree."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters())
    optimizer.state[model.weight]["moments"] = Moments(torch.ones(1, 2), torch.zeros(1, 2))
    ds.save({"optimizer": optimizer}, tmp_path / "state.safetensors")
    assert ds.leaves(optimizer)["state.0.moments.0"].tolist() == [[1, 1]]
    assert type(optimizer.state[model.weight]["moments"]) is Moments
