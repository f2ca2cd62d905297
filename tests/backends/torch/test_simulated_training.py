"""Tests that training on simulated GPUs in PyTorch gives the host's numbers bit for bit, with every optimizer."""

from __future__ import annotations

import copy

import pytest
import torch
from simulated_torch import GPU, two_gpus_for_module  # noqa: F401 - a fixture

nn, optim = torch.nn, torch.optim


def network():
    torch.manual_seed(5)
    parts = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.25), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(4 * 8 * 8, 10))


def train(device, optimizer=optim.Adam, steps=3, **options):
    """Train for some steps; return the losses and all state."""
    model = network().to(device)
    opt = optimizer(model.parameters(), **options)
    torch.manual_seed(6)
    x, y = torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))
    x, y = x.to(device), y.to(device)
    torch.manual_seed(7)  # every device has its own generator, and they start with the same state
    losses = []
    for _ in range(steps):

        def closure():
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        losses.append(opt.step(closure).item())
    return losses, {name: each.cpu() for name, each in model.state_dict().items()}, opt


def test_three_steps_equal_the_hosts_bit_for_bit():
    """Convolution, batch norm, dropout, linear layer, Adam."""
    host_losses, host, _ = train("cpu")
    losses, there, _ = train(GPU)
    assert losses == host_losses
    assert len(set(losses)) == 3
    for name, value in host.items():
        assert (there[name] - value).abs().max().item() == 0.0, name


OPTIMIZERS = {
    "SGD": {"lr": 0.1},
    "SGD momentum": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3},
    "SGD foreach": {"lr": 0.1, "momentum": 0.9, "foreach": True},
    "SGD fused": {"lr": 0.1, "momentum": 0.9, "fused": True},
    "Adam": {},
    "Adam amsgrad": {"amsgrad": True},
    "Adam foreach": {"foreach": True},
    "Adam fused": {"fused": True},
    "Adam capturable off": {"foreach": False, "capturable": False},
    "AdamW": {},
    "AdamW foreach": {"foreach": True},
    "AdamW fused": {"fused": True, "amsgrad": True},
    "AdamW single": {"foreach": False, "maximize": True},
    "NAdam": {"foreach": True},
    "RAdam": {"foreach": True},
    "Adamax": {"foreach": True},
    "Adadelta": {"foreach": True},
    "Adagrad": {"foreach": True},
    "Adagrad fused": {"fused": True},
    "RMSprop": {"centered": True, "momentum": 0.5, "foreach": True},
    "Rprop": {"foreach": True},
    "ASGD": {"foreach": True},
    "Adafactor": {},
    "LBFGS": {"lr": 0.1, "line_search_fn": "strong_wolfe", "max_iter": 4},
}


@pytest.mark.parametrize("case", OPTIMIZERS)
def test_every_optimizer_equals_the_hosts(case):
    kind, options = getattr(optim, case.split()[0]), OPTIMIZERS[case]
    losses, there, opt = train(GPU, kind, **options)
    host_losses, host, _ = train("cpu", kind, **options)
    assert losses == host_losses
    assert all(torch.equal(there[name], host[name]) for name in host)
    kept = [
        each for state in opt.state.values() for each in state.values() if isinstance(each, torch.Tensor) and each.dim()
    ]
    assert {str(each.device) for each in kept} <= {GPU}


def test_muon():
    sides = []
    for device in ("cpu", GPU):
        torch.manual_seed(0)
        layer = nn.Linear(4, 6, bias=False)
        layer.to(device)
        opt = optim.Muon(layer.parameters(), lr=0.1)
        layer(torch.ones(2, 4, device=device)).square().sum().backward()
        opt.step()
        sides.append(layer.weight.detach().cpu())
    assert torch.equal(*sides)


def test_optimizer_state_is_saved_and_loaded():
    model = network().to(GPU)
    opt = optim.AdamW(model.parameters())
    step(model, opt)
    state = copy.deepcopy(opt.state_dict())
    weights = copy.deepcopy(model.state_dict())
    step(model, opt)
    after = {name: each.clone() for name, each in model.state_dict().items()}
    model.load_state_dict(weights)
    other = optim.AdamW(model.parameters())
    other.load_state_dict(state)
    step(model, other)
    assert all(torch.equal(after[name], each) for name, each in model.state_dict().items())
    host = network()
    moved = optim.AdamW(host.parameters())
    moved.load_state_dict(state)
    assert {each["exp_avg"].device.type for each in moved.state.values()} == {"cpu"}


def step(model, opt):
    torch.manual_seed(1)
    opt.zero_grad(set_to_none=False)
    model(torch.ones(2, 1, 8, 8, device=next(model.parameters()).device)).square().sum().backward()
    opt.step()


SCHEDULES = {
    "StepLR": {"step_size": 1},
    "ExponentialLR": {"gamma": 0.5},
    "CosineAnnealingLR": {"T_max": 4},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 5},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1},
    "LambdaLR": {"lr_lambda": lambda epoch: 1 / (epoch + 1)},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    model = nn.Linear(2, 2).to(GPU)
    opt = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = getattr(optim.lr_scheduler, name)(opt, **SCHEDULES[name])
    before = opt.param_groups[0]["lr"]
    for _ in range(2):
        model(torch.ones(1, 2, device=GPU)).sum().backward()
        opt.step()
        schedule.step()
    assert opt.param_groups[0]["lr"] != before


def test_a_learning_rate_on_the_gpu():
    model = nn.Linear(2, 2).to(GPU)
    opt = optim.Adam(model.parameters(), lr=torch.tensor(0.1, device=GPU), capturable=False, foreach=False)
    model(torch.ones(1, 2, device=GPU)).sum().backward()
    before = model.weight.detach().clone()
    opt.step()
    assert not torch.equal(before, model.weight)


def test_reduce_on_plateau_with_a_loss_on_the_gpu():
    opt = optim.SGD(nn.Linear(2, 2).to(GPU).parameters(), lr=1.0)
    schedule = optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0)
    for _ in range(3):
        schedule.step(torch.tensor(1.0, device=GPU))
    assert opt.param_groups[0]["lr"] < 1


def test_clipping():
    model = nn.Linear(3, 3).to(GPU)
    (model(torch.ones(1, 3, device=GPU)).sum() * 100).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert str(norm.device) == GPU
    assert norm.item() > 1
    total = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    assert total.item() == pytest.approx(1.0, abs=1e-4)
    nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=True)
    nn.utils.clip_grad_value_(model.parameters(), 0.1)
    assert all(p.grad.abs().max() <= 0.1 for p in model.parameters())
    vector = nn.utils.parameters_to_vector(model.parameters())
    assert str(vector.device) == GPU
    nn.utils.vector_to_parameters(vector * 0, model.parameters())
    assert not model.weight.any()


def test_averages():
    from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(GPU)
    average = AveragedModel(model)
    smooth = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    moved = AveragedModel(nn.Linear(2, 2), device=GPU)
    assert str(moved.module.weight.device) == GPU
    opt = optim.SGD(model.parameters(), 0.1)
    schedule = SWALR(opt, swa_lr=0.05)
    opt.step()
    schedule.step()
    with torch.no_grad():
        model[0].weight.add_(2)
    before = smooth.module[0].weight.clone()
    for each in (average, smooth):
        each.update_parameters(model)
        each.update_parameters(model)
    assert str(average.module[0].weight.device) == GPU
    assert not torch.equal(before, smooth.module[0].weight)
    update_bn([torch.randn(4, 2)], average, device=GPU)


def test_gradients_are_accumulated_and_cleared():
    model = nn.Linear(2, 2).to(GPU)
    opt = optim.SGD(model.parameters(), 0.1)
    for count in (1, 2):
        model(torch.ones(1, 2, device=GPU)).sum().backward()
        assert model.bias.grad.tolist() == [count, count]
    opt.zero_grad(set_to_none=False)
    assert not model.bias.grad.any()
    opt.zero_grad()
    assert model.bias.grad is None


# ---------------------------------------------------------------- mixed precision


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_autocast(low):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).to(GPU)
    x = torch.randn(3, 4, device=GPU)
    with torch.autocast("sim", dtype=low):
        assert torch.is_autocast_enabled("sim")
        assert torch.get_autocast_dtype("sim") == low
        out = model(x)
        assert out.dtype == low
        assert (x @ x.t()).dtype == low
        assert nn.functional.conv1d(x[None], torch.ones(2, 3, 1, device=GPU)).dtype == low
        assert out.softmax(-1).dtype == torch.float32
        assert nn.functional.cross_entropy(out, torch.zeros(3, dtype=torch.int64, device=GPU)).dtype == torch.float32
        assert (x + x).dtype == torch.float32
        with torch.autocast("sim", enabled=False):
            assert (x @ x.t()).dtype == torch.float32
        loss = out.float().sum()
    assert not torch.is_autocast_enabled("sim")
    loss.backward()
    assert model[0].weight.grad.dtype == torch.float32
    assert torch.amp.is_autocast_available("sim")
    assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_autocast_leaves_the_host_alone():
    with torch.autocast("sim", dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = torch.ones(2, 2, device=GPU)
        assert (x @ x).dtype == torch.float32


def test_scaling():
    model = nn.Linear(2, 2).to(GPU)
    opt = optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("sim", init_scale=8.0)
    assert scaler.is_enabled()
    with torch.autocast("sim", dtype=torch.float16):
        loss = model(torch.ones(1, 2, device=GPU)).sum()
    scaler.scale(loss).backward()
    assert model.bias.grad.tolist() == [8, 8]
    scaler.unscale_(opt)
    assert model.bias.grad.tolist() == [1, 1]
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    scaler.step(opt)
    scaler.update()
    assert scaler.get_scale() == 8.0
    before = model.weight.detach().clone()
    opt.zero_grad()
    scaler.scale(model(torch.full((1, 2), float("inf"), device=GPU)).sum()).backward()
    scaler.step(opt)
    scaler.update()
    assert scaler.get_scale() == 4.0
    assert torch.equal(before, model.weight)
