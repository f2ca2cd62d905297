"""Tests of every PyTorch optimizer, scheduler and scaler: moved twice during training, the weights are the same.

The conformance kit (`test_conformance.py`) tests the dense ones in their plain form. These tests cover the forms that
need a GPU, objects that contain other tensors, and refusals.
"""

from __future__ import annotations

import inspect

import pytest
import torch
from model_leaves import leaves

import devshim as ds

pytestmark = pytest.mark.usefixtures("three_cards")

nn = torch.nn
schedulers = torch.optim.lr_scheduler

CPU = ds.cpu()
X, Y = torch.linspace(-1, 1, 24).reshape(6, 4), torch.linspace(1, -1, 18).reshape(6, 3)
HERE, THERE = ["gpu:0"] * 4, ["gpu:0", "gpu:1", "gpu:1", "gpu:0"]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def trained(make, moves, scheduler=None, scaler=None):
    """Return the weights after steps with a move between backward and step, and every object that was moved."""
    model = ds.place(network(), moves[0])
    optimizer = make(model)
    objects = [model, optimizer]
    rates = scheduler(optimizer) if scheduler else None
    scales = scaler() if scaler else None
    objects += [each for each in (rates, scales) if each is not None]

    def loss():
        device = model[0].weight.device
        optimizer.zero_grad()
        lost = nn.functional.mse_loss(model(X.to(device)), Y.to(device))
        (lost if scales is None else scales.scale(lost)).backward()
        return lost

    for move in moves:
        loss()
        ds.place(objects, move)
        if scales is not None:
            scales.step(optimizer)
            scales.update()
        else:
            optimizer.step(loss) if isinstance(optimizer, torch.optim.LBFGS) else optimizer.step()
        if isinstance(rates, schedulers.ReduceLROnPlateau):
            rates.step(1.0)
        elif rates is not None:
            rates.step()
    return [p.detach().cpu() for p in model.parameters()], objects


def check_same(make, here, there, **options):
    expected, _ = trained(make, here, **options)
    found, objects = trained(make, there, **options)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    return objects


def classes():
    shipped = [cls for cls in vars(torch.optim).values() if inspect.isclass(cls) and cls is not torch.optim.Optimizer]
    return {cls.__name__: cls for cls in shipped}


def maker(name, form=""):
    def make(model):
        parameters = [p for p in model.parameters() if name != "Muon" or p.dim() == 2]  # Muon is only for matrices
        return classes()[name](parameters, lr=0.01, **({form: True} if form else {}))

    return make


FORMS = ("capturable", "maximize", "foreach", "fused")
CASES = [
    (name, form)
    for name, cls in classes().items()
    for form in ("", *FORMS)
    if name != "SparseAdam" and (not form or form in inspect.signature(cls).parameters)
]


@pytest.mark.parametrize(("name", "form"), CASES, ids=lambda each: each or "plain")
def test_every_optimizer_trains_on_gpus(name, form):
    """This includes those that keep their counts on the GPU, or update all parameters together."""

    _, optimizer = check_same(maker(name, form), HERE, THERE)
    assert {ds.device_of(leaf.read()) for leaf in leaves(optimizer).values()} <= {ds.gpu(0)}


@pytest.mark.parametrize(("name", "form"), [case for case in CASES if case[1] in ("", "maximize")])
def test_default_optimizers_move_between_host_and_gpus(name, form):
    """By default PyTorch updates all parameters together on accelerators, which rounds differently."""
    check_same(maker(name, form), ["cpu"] * 6, ["cpu", "gpu:0", "gpu:0", "gpu:1", "cpu", "cpu"])


@pytest.mark.parametrize("name", [name for name in classes() if name != "SparseAdam"])
def test_state_is_on_the_device_that_pytorch_chooses(name):
    """Moved to a GPU, each tensor of the state is where an optimizer made on that GPU would have it."""
    _, (_, moved) = trained(maker(name), ["cpu", "cpu", "gpu:1"])
    _, (_, native) = trained(maker(name), ["gpu:1"] * 3)
    for ours, theirs in zip(moved.state.values(), native.state.values(), strict=True):
        assert list(ours) == list(theirs)
        for key, value in theirs.items():
            for a, b in zip(*(x if isinstance(x, list) else [x] for x in (ours[key], value)), strict=True):
                assert not isinstance(b, torch.Tensor) or a.device == b.device, key


def test_lists_of_tensors_in_lbfgs_move():
    def make(model):
        return torch.optim.LBFGS(model.parameters(), history_size=3)

    _, optimizer = check_same(make, HERE, THERE)
    state = next(iter(optimizer.state.values()))
    directions = state["old_dirs"]
    first = directions[0]
    ds.place(optimizer, "gpu:2")
    assert state["old_dirs"] is directions
    assert directions[0] is first
    assert {"state.0.d", "state.0.old_dirs.0", "state.0.H_diag"} <= leaves(optimizer).keys()
    assert {x.device for x in (state["d"], state["H_diag"], *directions)} == {ds.gpu(2).native()}


def test_sparse_adam_and_sparse_gradients():
    """Sparse gradients are ordinary leaves, and stay the same objects."""
    results = []
    for moves in (HERE, THERE, ["cpu"] * 4, ["cpu", "gpu:1", "gpu:0", "cpu"]):
        torch.manual_seed(0)
        model = ds.place(nn.Embedding(5, 3, sparse=True), moves[0])
        optimizer = torch.optim.SparseAdam(model.parameters())
        for move in moves:
            optimizer.zero_grad()
            model(ds.asarray([1, 3, 3], device=ds.device_of(model.weight))).square().sum().backward()
            gradient = model.weight.grad
            assert gradient.is_sparse
            assert "weight.grad" in leaves(model)
            ds.place([model, optimizer], move)
            assert model.weight.grad is gradient
            assert gradient.device == model.weight.device == ds.device(move).native()
            optimizer.step()
        assert list(leaves(optimizer)) == ["state.0.exp_avg", "state.0.exp_avg_sq"]
        results.append(model.weight.detach().cpu())
    assert all(torch.equal(each, results[0]) for each in results)


def test_the_state_of_a_differentiable_optimizer_is_refused():
    weight = torch.ones(2, requires_grad=True)
    stepped = weight.clone()
    optimizer = torch.optim.Adam([stepped], differentiable=True)
    stepped.grad = torch.ones(2, requires_grad=True).clone()
    optimizer.step()
    with pytest.raises(ds.UnsupportedError, match=r"state\.0\.exp_avg is the result of a computation"):
        ds.place(optimizer, "gpu:1")


# ---------------------------------------------------------------- rates, scales and averages
SCHEDULERS = {
    "StepLR": lambda o: schedulers.StepLR(o, 2),
    "LambdaLR": lambda o: schedulers.LambdaLR(o, lambda n: 0.9**n),
    "MultiplicativeLR": lambda o: schedulers.MultiplicativeLR(o, lambda n: 0.9),
    "MultiStepLR": lambda o: schedulers.MultiStepLR(o, [1, 2]),
    "ConstantLR": lambda o: schedulers.ConstantLR(o),
    "LinearLR": lambda o: schedulers.LinearLR(o),
    "ExponentialLR": lambda o: schedulers.ExponentialLR(o, 0.9),
    "SequentialLR": lambda o: schedulers.SequentialLR(o, [schedulers.ConstantLR(o), schedulers.StepLR(o, 1)], [2]),
    "CosineAnnealingLR": lambda o: schedulers.CosineAnnealingLR(o, 5),
    "ChainedScheduler": lambda o: schedulers.ChainedScheduler([schedulers.ConstantLR(o), schedulers.StepLR(o, 1)]),
    "ReduceLROnPlateau": lambda o: schedulers.ReduceLROnPlateau(o, patience=0),
    "CyclicLR": lambda o: schedulers.CyclicLR(o, 0.01, 0.1, cycle_momentum=False),
    "CosineAnnealingWarmRestarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 2),
    "OneCycleLR": lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=6),
    "PolynomialLR": lambda o: schedulers.PolynomialLR(o),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.05),
}


def test_every_scheduler_is_tested():
    shipped = {cls.__name__ for cls in vars(schedulers).values() if inspect.isclass(cls)}
    bases = {"LRScheduler", "_LRScheduler"}
    assert {name for name in shipped if name.endswith(("LR", "Restarts", "Scheduler", "Plateau"))} - bases <= set(
        SCHEDULERS
    )


@pytest.mark.parametrize("form", ["number", "host's", "card's"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers(name, form):
    """Rates are numbers, host tensors, which stay there, and GPU tensors, which move."""

    def make(model):
        rate = {"number": 0.05, "host's": torch.tensor(0.05), "card's": ds.asarray(0.05, device="gpu:0")}[form]
        return torch.optim.Adam(model.parameters(), lr=rate, capturable=form == "card's", foreach=False)

    _, optimizer, scheduler = check_same(make, HERE, THERE, scheduler=SCHEDULERS[name])
    ds.place([optimizer, scheduler], "gpu:2")
    rate = optimizer.param_groups[0]["lr"]
    assert isinstance(rate, torch.Tensor) == (form != "number")
    expected = {"host's": CPU, "card's": ds.gpu(2)}
    assert form == "number" or ds.device_of(rate) is expected[form]
    assert {ds.device_of(leaf.read()) for leaf in leaves(scheduler).values()} <= {ds.gpu(2)}


def test_a_gradient_scaler_moves():
    def make(model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    *_, scaler = check_same(make, HERE, THERE, scaler=lambda: torch.amp.GradScaler("sim", growth_interval=2))
    ds.place(scaler, "gpu:2")
    assert {ds.device_of(leaf.read()) for leaf in leaves(scaler).values()} == {ds.gpu(2)}
    assert {"_scale", "_growth_tracker"} <= leaves(scaler).keys()


def test_a_disabled_scaler_moves(tmp_path):
    """On a machine without CUDA, ``GradScaler("cuda")`` disables itself; it then has no state."""
    model = network()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cuda", enabled=False)
    assert ds.place([model, optimizer, scaler], "gpu:1")[2] is scaler
    copied = ds.copy([model, optimizer, scaler], "gpu:0")[2]
    assert not copied.is_enabled()
    ds.save([model, optimizer, scaler], tmp_path / "a.safetensors")
    ds.load(tmp_path / "a.safetensors", into=[model, optimizer, scaler])
    scaler.scale(model(ds.place(X, "gpu:1")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not scaler.is_enabled()


def test_a_scaler_between_unscale_and_step():
    """Its findings about the gradients are stored by device, and still count after the move."""
    results = []
    for move in ("gpu:0", "gpu:1"):
        model = ds.place(network(), "gpu:0")
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("sim")
        scaler.scale(model(ds.place(X, "gpu:0")).sum()).backward()
        model[0].weight.grad[0, 0] = float("inf")
        scaler.unscale_(optimizer)
        ds.place([model, optimizer, scaler], move)
        scaler.step(optimizer)
        scaler.update()
        results.append((scaler.get_scale(), model[2].bias.tolist()))
    assert results[0] == results[1]
    assert results[0][0] == 2.0**15
    assert results[0][1] == network()[2].bias.tolist()


def test_averaged_weights():
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    results = []
    for moves in (HERE, THERE):
        model = ds.place(network(), "gpu:0")
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for move in moves:
            ds.place({"net": model, "average": average, "optimizer": optimizer}, move)
            optimizer.zero_grad()
            model(ds.place(X, move)).square().mean().backward()
            optimizer.step()
            average.update_parameters(model)
        results.append([p.cpu() for p in average.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


# ---------------------------------------------------------------- state follows its parameter
def test_state_follows_its_parameter_over_devices():
    """For any placement of the optimizer, its state for a parameter is on the parameter's device."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    model(X).sum().backward()
    optimizer.step()
    ds.place({"opt": optimizer, "net": model}, ds.Placement({"net.0": "gpu:1", "net.2": "gpu:2"}))
    for parameter, state in optimizer.state.items():
        assert state["exp_avg"].device == state["exp_avg_sq"].device == parameter.device
        assert state["step"].device.type == "cpu"


def test_each_copy_trains_its_own_model():
    """A copy of only an optimizer would train parameters that no model has."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    model(X).sum().backward()
    optimizer.step()
    model(X).sum().backward()
    twin, copied = ds.copy([model, optimizer], "gpu:1")
    assert [*map(id, copied.param_groups[0]["params"])] == [*map(id, twin.parameters())]
    optimizer.step()
    copied.step()
    assert all(torch.equal(a, b.cpu()) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    for alone in (optimizer, [optimizer], [model, schedulers.StepLR(optimizer, 1)]):
        with pytest.raises(ds.UnsupportedError, match="together with its model"):
            ds.copy(alone, "gpu:1")
