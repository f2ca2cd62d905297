"""Tests of copies of TorchScript modules: their parameters can be trained, and are those of a copied optimizer."""

from __future__ import annotations

import pytest
import torch

import devshim as ds

pytestmark = [
    pytest.mark.usefixtures("two_cards"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
]

nn = torch.nn
X = torch.linspace(-1, 1, 12).reshape(4, 3)


class Tied(nn.Module):
    """A tied weight, a shared layer, a parameter that is not trained, and a buffer."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight, self.again = self.a.weight, self.a
        self.a.bias.requires_grad_(False)
        self.register_buffer("gain", torch.full((3,), 2.0))

    def forward(self, x):
        return self.again(self.b(self.a(x))) * self.gain


class Outer(nn.Module):
    """A plain module, with a TorchScript module under two names, of which it uses a weight."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = torch.jit.script(Tied()), nn.Linear(3, 2)
        self.again, self.weight = self.inner, self.inner.a.weight

    def forward(self, x):
        return self.head(self.again(self.inner(x)) @ self.weight)


KINDS = {
    "script": lambda: torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))),
    "tied": lambda: torch.jit.script(Tied()),
    "trace": lambda: torch.jit.trace(Tied(), X),
    "inside": Outer,
}


def step(model, optimizer):
    optimizer.zero_grad()
    model(ds.place(X, ds.device_of(next(model.parameters())))).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_a_scripted_module_trains(kind):
    torch.manual_seed(0)
    model = KINDS[kind]()
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer)
    twin, its_optimizer = ds.copy([model, optimizer], "gpu:1")
    assert ds.placement_of([twin, its_optimizer]).devices == {ds.gpu(1)}
    pairs = list(zip(model.parameters(), twin.parameters(), strict=True))
    assert all(copied.is_leaf and copied.requires_grad is one.requires_grad for one, copied in pairs)
    assert all((one.grad is None) is (copied.grad is None) for one, copied in pairs)
    for each in ((model, optimizer), (twin, its_optimizer)):
        step(*each)
    assert all(torch.allclose(one, copied.cpu(), atol=1e-6) for one, copied in pairs)
    assert [ds.placement_of(each).devices for each in ds.replicate(model, [0, 1])] == [{ds.gpu(0)}, {ds.gpu(1)}]


def test_ties_with_a_scripted_module_are_in_the_copy():
    twin = ds.copy(Outer(), "gpu:1")
    assert twin.again is twin.inner
    assert twin.weight is twin.inner.a.weight is twin.inner.b.weight


@pytest.mark.parametrize("make", [KINDS["script"], lambda: nn.Sequential(KINDS["script"](), nn.ReLU())])
def test_results_of_data_parallel(make):
    model = ds.place(make().eval(), "gpu:0")
    parallel = ds.data_parallel(model, ["gpu:0", "gpu:1"])
    x = ds.place(X, "gpu:0")
    with pytest.raises(ds.UnsupportedError, match="TorchScript") as caught:
        parallel(x)
    assert "in torch.no_grad()" in caught.value.hint
    with torch.no_grad():
        assert torch.allclose(parallel(x).cpu(), model(x).cpu())
