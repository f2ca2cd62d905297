"""Tests of PyTorch models over several devices: results and gradients are the same as on one device."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import devshim as ds

nn = torch.nn
F = nn.functional

CPU = ds.cpu()


@pytest.fixture(autouse=True)
def _nothing_stays(three_cards):
    torch.manual_seed(0)
    yield
    assert torch._C._len_torch_function_stack() == 0


class Residual(nn.Module):
    """Two parts, with the input added to their result."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, scale=1.0):
        return x * scale + self.b(torch.relu(self.a(x)))


class Within(nn.Module):
    """A residual block between two parts."""

    def __init__(self):
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(4, 4), Residual(), nn.Linear(4, 4)

    def forward(self, x):
        return self.head(self.block(self.stem(x), scale=2.0))


class Skipping(nn.Module):
    """A model that combines results of several parts: joined, added in place, and scaled by its own parameter."""

    def __init__(self):
        super().__init__()
        self.down, self.middle = nn.Conv1d(2, 4, 3, padding=1), nn.Conv1d(4, 4, 3, padding=1)
        self.up, self.norm = nn.Conv1d(8, 2, 3, padding=1), nn.BatchNorm1d(2)
        self.gain = nn.Parameter(torch.full((1,), 2.0))

    def forward(self, x):
        down = self.down(x)
        y = self.up(torch.cat([self.middle(down), down], 1))
        y += x
        y[:, 0] = x[:, 1]
        return self.norm(y) * self.gain


class Tied(nn.Module):
    """A language model whose last layer is the embedding's weight, used without its module."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 4)
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        return F.linear(self.encoder(self.words(ids)), self.words.weight)


class Recurrent(nn.Module):
    """Inputs and results that are trees, and a keyword that is a tensor."""

    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, batch):
        h = torch.zeros(1, batch["x"].shape[0], 3)
        y, (h, _) = self.rnn(batch["x"], (h, h.clone()))
        return self.out(input=y[:, -1]) + self.out(h[0])


X = torch.linspace(-1, 1, 12).reshape(3, 4)
CASES = {
    "chain": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)),
        X,
        {"0": "gpu:0", "2": "gpu:1"},
        "gpu:1",
    ),
    "chain of chains": (
        lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.Linear(4, 4)),
        X,
        {"0.0": "gpu:0", "0.1": "gpu:1", "1": "gpu:2"},
        "gpu:2",
    ),
    "residual": (Residual, X, {"a": "gpu:0", "b": "gpu:1"}, "gpu:1"),
    "back to the host": (Residual, X, {"a": "gpu:1", "b": "cpu"}, "cpu"),
    "whole blocks": (Within, X, {"stem": "gpu:0", "block": "gpu:1", "head": "gpu:2"}, "gpu:2"),
    "inside a block": (Within, X, {"stem": "gpu:0", "block.a": "gpu:1", "block.b": "gpu:2", "head": "gpu:0"}, "gpu:0"),
    "skipping": (
        Skipping,
        torch.linspace(-1, 1, 30).reshape(3, 2, 5),
        {"down": "gpu:0", "middle": "gpu:1", "up": "gpu:2", "norm": "gpu:1", "gain": "gpu:0"},
        "gpu:0",
    ),
    "tied": (
        Tied,
        torch.tensor([[1, 2, 3]]),
        {"words": "gpu:0", "encoder.layers.0": "gpu:1", "encoder.layers.1": "gpu:2"},
        "gpu:0",
    ),
    "recurrent": (Recurrent, {"x": X[None]}, {"rnn": "gpu:0", "out": "gpu:1"}, "gpu:1"),
}


def answers(model, x):
    y = model(x)
    y.square().sum().backward()
    return y.detach().cpu(), [p.grad.cpu() for p in model.parameters()], [b.cpu() for b in model.buffers()]


def check_equal(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_split_model_computes_what_it_computes_on_one_device(case):
    """Results, gradients and statistics are equal; moved back to one device, the model is as it was made."""
    make, x, places, last = CASES[case]
    model = make()
    plain = copy.deepcopy(model)
    expected = answers(plain, x)
    ds.place(model, ds.Placement(places))
    found = answers(model, x)
    check_equal(found, expected)
    assert ds.device_of(model(x)) is ds.device(last)
    ds.place(model, "cpu")
    assert not any(vars(module).get("forward") for module in model.modules())
    assert not any(module._forward_pre_hooks for module in model.modules())
    model.zero_grad(), plain.zero_grad()
    ds.place(plain, "cpu")


@pytest.mark.parametrize("case", CASES)
def test_training_a_split_model(case):
    """Moved from one split to another during training, the weights are those of a model that stayed."""
    make, x, places, _ = CASES[case]
    model = make()
    plain = copy.deepcopy(model)
    turned = {path: f"gpu:{(ds.device(place).index + 1) % 3}" for path, place in places.items()}
    for net, moves in ((plain, ["cpu"] * 3), (model, [ds.Placement(places), ds.Placement(turned), "cpu"])):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        for move in moves:
            optimizer.zero_grad()
            answers(net, x)
            ds.place([net, optimizer], move if isinstance(move, str) else prefixed(move))
            optimizer.step()
    check_equal([list(model.parameters())], [list(plain.parameters())])


def prefixed(placement):
    """Return the placement of a model, for a list in which it comes first."""
    return ds.Placement({f"0.{path}": device for path, device in placement.items()})


# ---------------------------------------------------------------- what cannot run on several devices
TORN = {
    "a layer": (lambda: nn.Linear(4, 4), {"weight": "gpu:0", "bias": "gpu:1"}, "the model .Linear."),
    "attention": (
        lambda: nn.ModuleDict({"at": nn.MultiheadAttention(4, 2)}),
        {"at.in_proj_weight": "gpu:0", "at.in_proj_bias": "gpu:0", "at.out_proj": "gpu:1"},
        "at .MultiheadAttention.",
    ),
    "a computed weight": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
        {"bias": "gpu:0", "parametrizations": "gpu:1"},
        "ParametrizedLinear",
    ),
    "statistics": (
        lambda: nn.Sequential(nn.BatchNorm1d(4)),
        {"0.weight": "gpu:0", "0.bias": "gpu:0", "0": "gpu:1"},
        "0 .BatchNorm1d.",
    ),
}


@pytest.mark.parametrize("case", TORN)
def test_a_module_that_computes_with_all_its_tensors_is_not_split(case):
    make, places, named = TORN[case]
    model = make()
    before = ds.placement_of(model)
    with pytest.raises(ds.UnsupportedError, match=named) as caught:
        ds.place(model, ds.Placement(places))
    assert "gpu:0" in str(caught.value)
    assert "gpu:1" in str(caught.value)
    assert ds.placement_of(model) == before
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_not_split_and_can_be_a_part():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    with pytest.raises(ds.UnsupportedError, match="TorchScript"):
        ds.place(scripted, ds.Placement({"0": "gpu:0", "1": "gpu:1"}))
    model = nn.Sequential(scripted, nn.Linear(4, 4))
    expected = model(X)
    ds.place(model, ds.Placement({"0": "gpu:0", "1": "gpu:1"}))
    assert torch.allclose(model(X).cpu(), expected, atol=1e-6)


def test_a_model_on_one_device_has_no_hooks():
    model = ds.place(Residual(), "gpu:1")
    with pytest.raises(RuntimeError, match="same device"):
        model(X)
    ds.place(model, ds.Placement({"a": "gpu:0", "b": "gpu:1"}))
    model(X)
    model.to(ds.gpu(2).native())  # not by devshim
    with pytest.raises(RuntimeError, match="same device"):
        model(X)


# ---------------------------------------------------------------- a split model is a model like any other
def split():
    return ds.place(Residual(), ds.Placement({"a": "gpu:0", "b": "gpu:1"}))


def through_torch(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), through_torch])
def test_copies_of_a_split_model_are_split_themselves(way):
    model = split()
    twin = way(model)
    assert ds.placement_of(twin) == ds.placement_of(model)
    expected = model(X)
    assert torch.equal(twin(X), expected)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert torch.equal(twin(X), expected)
    ds.place(twin, "gpu:2")
    assert torch.allclose(twin(ds.place(X, "gpu:2")).cpu(), expected.cpu(), atol=1e-6)


def test_a_split_model_keeps_its_signature():
    model = split()
    assert list(model.state_dict()) == list(Residual().state_dict())
    assert str(inspect.signature(model.forward)) == "(x, scale=1.0)"
    assert torch.equal(model(x=X, scale=0.0), model(X, 0.0))


def test_a_forward_attribute_of_a_module_is_kept():
    model = Residual()
    own = model.forward = lambda x: model.b(model.a(x))
    expected = model(X)
    ds.place(model, ds.Placement({"a": "gpu:0", "b": "gpu:1"}))
    assert torch.allclose(model(X).cpu(), expected, atol=1e-6)
    ds.place(model, "cpu")
    assert model.forward is own


def test_hooks_of_the_user_see_the_copied_inputs():
    model, seen = Residual(), []
    model.b.register_forward_pre_hook(lambda _, args: seen.append(ds.device_of(args[0])))
    ds.place(model, ds.Placement({"a": "gpu:0", "b": "gpu:1"}))
    model(X)
    ds.place(model, "cpu")
    model(X)
    assert seen == [ds.gpu(1), CPU]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_failed_forward_pass_leaves_no_state(error):
    model = split()

    def fail(*_):
        raise error

    handle = model.b.register_forward_hook(fail)
    with pytest.raises(error):
        model(X)
    with pytest.raises(RuntimeError, match="same device"):
        ds.zeros(2, device="gpu:0") + ds.zeros(2, device="gpu:1")
    handle.remove()
    assert ds.device_of(model(X)) is ds.gpu(1)


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_works(reentrant):
    """Activations recomputed in the backward pass is copied across devices again."""
    from torch.utils.checkpoint import checkpoint

    class Saving(Within):
        def forward(self, x):
            return self.head(checkpoint(self.block, self.stem(x), use_reentrant=reentrant))

    model = Saving()
    expected = answers(copy.deepcopy(model), X)
    ds.place(model, ds.Placement({"stem": "gpu:0", "block.a": "gpu:1", "block.b": "gpu:2", "head": "gpu:0"}))
    check_equal(answers(model, X), expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # PyTorch's compiler reads it, and hides this
@pytest.mark.parametrize("make", [Residual, lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))])
def test_compiled_models_can_be_split(make):
    """In chains of parts, tensors that meet inside a compiled function must already be on one device."""
    torch._dynamo.reset()
    model = make()
    expected = model(X)
    model = torch.compile(model, backend="eager")
    first = next(iter(dict(model.named_parameters()))).rpartition(".")[0]
    ds.place(model, ds.Placement({first: "gpu:0"}, default="gpu:1"))
    x = X if isinstance(model._orig_mod, nn.Sequential) else ds.place(X, "gpu:1")
    assert torch.allclose(model(x).cpu(), expected, atol=1e-6)
    torch._dynamo.reset()


def test_operands_are_aligned_before_the_first_part_runs():
    """In a new thread, no part of a split model has run yet."""

    class Adding(Residual):
        def forward(self, x, y):
            return super().forward(x + y)

    model = Adding()
    ds.place(model, ds.Placement({"a": "gpu:0", "b": "gpu:1"}))
    with ThreadPoolExecutor(1) as pool:
        y = pool.submit(model, ds.ones((3, 4)), ds.ones((3, 4), device="gpu:1")).result()
    assert torch.equal(y.cpu(), model(ds.ones((3, 4), device="gpu:1"), ds.ones((3, 4))).cpu())


def test_the_ledger_records_copied_inputs():
    model = split()
    with ds.transfers() as log:
        model(X)
    assert [(str(each.source), str(each.target)) for each in log.records] == [
        ("cpu", "gpu:0"),
        ("gpu:0", "gpu:1"),
        ("cpu", "gpu:1"),
    ]


# ---------------------------------------------------------------- plans
class Body(nn.Module):
    """The body of a language model: an embedding, and layers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(8))

    def forward(self, words):
        x = self.embed(words)
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x


class LanguageModel(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.body, self.head = Body(), nn.Linear(32, 50, bias=False)
        if tied:
            self.head.weight = self.body.embed.weight

    def forward(self, words):
        return self.head(self.body(words))


def loads(model, plan):
    sizes = {id(x): (plan[path], x.nbytes) for path, x in model.named_parameters(remove_duplicate=False)}
    return [sum(size for device, size in sizes.values() if device is each) for each in sorted(plan.devices)]


@pytest.mark.parametrize(("tied", "expected"), [(False, [23_296, 23_296]), (True, [19_072, 21_120])])
def test_a_plan_cuts_the_body_of_a_model_between_its_layers(tied, expected):
    """Tied weights stay on one device, so that the head computes on the device of the embedding."""
    model = LanguageModel(tied)
    words = torch.arange(6).reshape(2, 3)
    answer = model(words)
    answer.sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    plan = ds.Placement.balanced(model, ["gpu:0", "gpu:1"])
    assert sorted(loads(model, plan)) == sorted(expected)
    assert plan["head.weight"] is (plan["body.embed.weight"] if tied else ds.gpu(1))
    ds.place(model, plan)
    found = model(words)
    assert ds.device_of(found) is plan["head.weight"]
    assert torch.equal(ds.place(found, CPU), answer)
    found.sum().backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.allclose(ds.place(parameter.grad, CPU), gradient)


def test_a_plan_keeps_the_classes_whole_that_the_model_names():
    """The attribute is that of Hugging Face's models."""
    model = nn.Sequential(nn.Linear(4, 4), Within(), nn.Linear(4, 4))
    assert len({ds.Placement.balanced(model, [0, 1])[path] for path in ("1.stem.weight", "1.head.weight")}) == 2
    model._no_split_modules = ["Within"]
    plan = ds.Placement.balanced(model, [0, 1])
    assert len({device for path, device in plan.items() if path.startswith("1.")}) == 1
    plan = ds.Placement.balanced(model, [0, 1], budgets=[240, 320])
    assert len({device for path, device in plan.items() if path.startswith("1.")}) == 2, "it fits on no device"
