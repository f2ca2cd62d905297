"""Tests of PyTorch optimizers that wrap others: the state inside moves, trains on, and is in checkpoints."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

import devshim as ds

pytestmark = pytest.mark.usefixtures("two_cards")

nn = torch.nn
X, Y = torch.linspace(-1, 1, 24).reshape(6, 4), torch.linspace(1, -1, 18).reshape(6, 3)


class Lookahead(torch.optim.Optimizer):
    """Slow weights beside those of an optimizer, which keeps the settings; its state is empty, as in timm."""

    def __init__(self, base):
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}
        self._base_optimizer, self.defaults, self.state = base, base.defaults, defaultdict(dict)
        self.param_groups = base.param_groups
        self.this = [{"itself": self}]  # a cycle

    @torch.no_grad()
    def step(self, closure=None):
        loss = self._base_optimizer.step(closure)
        for group in self.param_groups:
            for fast in group["params"]:
                state = self._base_optimizer.state[fast]
                slow = state.setdefault("slow", fast.clone())
                fast.copy_(slow.lerp_(fast, 0.5))
        return loss

    def state_dict(self):
        return self._base_optimizer.state_dict()

    def load_state_dict(self, state):
        self._base_optimizer.load_state_dict(state)
        self.param_groups = self._base_optimizer.param_groups


class Pair(torch.optim.Optimizer):
    """Two optimizers in a list, and a momentum of its own."""

    def __init__(self, parameters):
        parameters = list(parameters)
        super().__init__(parameters, {"lr": 0.1})
        half = len(parameters) // 2
        self.both = [torch.optim.Adam(parameters[:half]), torch.optim.SGD(parameters[half:], lr=0.1, momentum=0.9)]

    @torch.no_grad()
    def step(self, closure=None):
        for each in self.both:
            each.step()
        for group in self.param_groups:
            for weight in group["params"]:
                mean = self.state[weight].setdefault("mean", torch.zeros_like(weight))
                weight -= group["lr"] * mean.lerp_(weight.grad, 0.1)

    def state_dict(self):
        return {"own": super().state_dict(), "both": [each.state_dict() for each in self.both]}

    def load_state_dict(self, state):
        super().load_state_dict(state["own"])
        for each, its in zip(self.both, state["both"], strict=True):
            each.load_state_dict(its)


class Delegating(torch.optim.Optimizer):
    """A wrapper whose state and settings are those of the optimizer inside it, as accelerate's."""

    def __init__(self, optimizer):
        self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks = {}, {}
        self.optimizer = optimizer

    state = property(lambda self: self.optimizer.state)
    param_groups = property(lambda self: self.optimizer.param_groups)
    defaults = property(lambda self: self.optimizer.defaults)

    def __getstate__(self):
        return vars(self)

    def __setstate__(self, state):
        vars(self).update(state)

    def step(self, closure=None):
        return self.optimizer.step(closure)

    def state_dict(self):
        return self.optimizer.state_dict()

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state)


WRAPPERS = {
    "settings of the base": lambda p: Lookahead(torch.optim.AdamW(p, lr=0.05)),
    "a wrapper in a wrapper": lambda p: Lookahead(Delegating(torch.optim.NAdam(p, lr=0.05))),
    "several in a list": Pair,
    "delegating": lambda p: Delegating(torch.optim.Adam(p, lr=0.05)),
}


def started(wrapper, device="cpu"):
    torch.manual_seed(0)
    model = ds.place(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), device)
    return [model, WRAPPERS[wrapper](model.parameters())]


def steps(model, optimizer, count=2):
    device = ds.device_of(model[0].weight)
    for _ in range(count):
        optimizer.zero_grad()
        found = model(ds.place(X, device))
        nn.functional.mse_loss(found, ds.place(Y, ds.device_of(found))).backward()
        optimizer.step()


def weights(model):
    return [ds.to_numpy(each).tobytes() for each in model.parameters()]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_state_inside_moves(wrapper):
    expected, moved = started(wrapper), started(wrapper)
    steps(*expected, 4)
    steps(*moved)
    ds.place(moved, "gpu:1")
    assert ds.placement_of(moved).devices == {ds.gpu(1)}
    steps(*moved)
    assert weights(moved[0]) == weights(expected[0])
    paths = list(ds.placement_of(moved[1]))
    assert len(paths) == len(set(paths)), "each state once"
    ds.place(moved, ds.Placement({"0.0": "gpu:0"}, default="gpu:1"))
    steps(*moved, 1)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_checkpoint_has_the_state_inside(wrapper, tmp_path):
    saved = started(wrapper)
    steps(*saved)
    ds.save(saved, tmp_path / "run.safetensors")
    again = started(wrapper, "gpu:1")
    ds.load(tmp_path / "run.safetensors", "gpu:1", into=again)
    for each in (saved, again):
        steps(*each)
    assert weights(again[0]) == weights(saved[0])


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_copy_has_its_own_state_inside(wrapper):
    model, optimizer = started(wrapper)
    steps(model, optimizer)
    twin = ds.copy([model, optimizer], "gpu:1")
    assert ds.placement_of(twin).devices == {ds.gpu(1)}
    for each in ((model, optimizer), twin):
        steps(*each)
    assert weights(twin[0]) == weights(model)
    with pytest.raises(ds.UnsupportedError, match="together with its model"):
        ds.copy(optimizer, "gpu:1")
