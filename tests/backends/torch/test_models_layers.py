"""Tests of the reported structure of PyTorch models, and of the operations that combine tensors of several devices."""

from __future__ import annotations

import threading

import pytest
import torch

from devshim.contract.models import Weight

nn = torch.nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.act = nn.LayerNorm(4), nn.ReLU()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x + self.layers[1](self.act(self.layers[0](self.norm(x)))) * self.gain


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.position = nn.Parameter(torch.ones(4))
        self.register_buffer("mask", torch.ones(4))
        self.stem = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.blocks = nn.ModuleDict({"a": Block(), "b": Block()})
        self.attention = nn.MultiheadAttention(4, 2)
        self.head = nn.Linear(4, 2)


def paths(blocks):
    return [block.path for block in blocks]


# ---------------------------------------------------------------- blocks
def test_chains_are_opened_and_custom_modules_are_not(backend):
    blocks = backend.blocks(Model())
    assert paths(blocks) == ["position", "stem.0", "stem.2", "blocks.a", "blocks.b", "attention", "head"]
    by_path = {block.path: block for block in blocks}
    assert by_path["position"].leaves == ("position", "mask")
    assert by_path["blocks.a"].leaves == tuple(f"blocks.a.{name}" for name in Block().state_dict())
    inside = by_path["blocks.a"].children
    assert paths(inside) == ["blocks.a.gain", "blocks.a.norm", "blocks.a.layers.0", "blocks.a.layers.1"]
    assert by_path["attention"].children == ()  # it uses its last layer's weight without calling it
    assert by_path["stem.0"].children == ()


def test_every_leaf_is_in_one_block(backend):
    def of(blocks):
        return [path for block in blocks for path in block.leaves]

    for model in (
        Model(),
        nn.Linear(2, 2),
        torch.optim.swa_utils.AveragedModel(Model()),
        nn.Transformer(4, 2, 2, 2, 8, batch_first=True),
    ):
        listed = {leaf.path for leaf in backend.leaves(model) if leaf.kind != "gradient"}
        assert set(of(backend.blocks(model))) == listed
        assert len(of(backend.blocks(model))) == len(listed)
        for block in backend.blocks(model):
            assert not block.children or sorted(of(block.children)) == sorted(block.leaves)


def test_wrappers_are_opened(backend):
    chain = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert paths(backend.blocks(torch.compile(chain, backend="eager"))) == ["_orig_mod.0", "_orig_mod.1"]
    assert paths(backend.blocks(nn.DataParallel(chain))) == ["module.0", "module.1"]
    assert paths(backend.blocks(nn.Linear(2, 2))) == [""]


# ---------------------------------------------------------------- layers
KINDS = {
    "linear": (nn.Linear(2, 3), "weight bias", {}),
    "linear of no bias": (nn.Linear(2, 3, bias=False), "weight", {}),
    "conv": (nn.Conv2d(4, 2, 3, groups=2), "weight bias", {"groups": 2}),
    "conv_transpose": (nn.ConvTranspose1d(2, 4, 3), "weight bias", {"groups": 1}),
    "batch_norm": (nn.BatchNorm2d(3, eps=0.1), "weight bias mean variance", {"epsilon": 0.1}),
    "batch_norm of statistics alone": (nn.BatchNorm1d(3, affine=False), "mean variance", {"epsilon": 1e-5}),
    "layer_norm": (nn.LayerNorm(3, eps=0.1), "weight bias", {"epsilon": 0.1}),
    "group_norm": (nn.GroupNorm(2, 4), "weight bias", {"epsilon": 1e-5, "groups": 2}),
    "group_norm of instances": (nn.InstanceNorm1d(4, affine=True), "weight bias", {"epsilon": 1e-5, "groups": 4}),
    "embedding": (nn.Embedding(5, 2), "weight", {}),
    "rnn": (
        nn.RNN(2, 3, nonlinearity="relu"),
        "weight_ih weight_hh bias_ih bias_hh",
        {"activation": "relu"},
    ),
    "rnn of one step": (nn.RNNCell(2, 3), "weight_ih weight_hh bias_ih bias_hh", {"activation": "tanh"}),
    "lstm": (nn.LSTM(2, 3, bias=False), "weight_ih weight_hh", {}),
    "lstm with a projection": (nn.LSTM(2, 3, bias=False, proj_size=2), "weight_ih weight_hh weight_hr", {}),
    "lstm of one step": (nn.LSTMCell(2, 3, bias=False), "weight_ih weight_hh", {}),
    "gru": (nn.GRU(2, 3), "weight_ih weight_hh bias_ih bias_hh", {}),
    "other": (nn.PReLU(), "weight", {}),
    "other of statistics": (
        nn.InstanceNorm1d(2, track_running_stats=True),
        "running_mean running_var num_batches_tracked",
        {},
    ),
    "other of a computed weight": (nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), "bias", {}),
}


@pytest.mark.parametrize("name", KINDS)
def test_layers(backend, name):
    module, roles, settings = KINDS[name]
    layer = backend.layers(nn.ModuleDict({"x": module}))[0]
    assert (layer.kind, layer.path) == (name.partition(" ")[0], "x")
    assert list(layer.weights) == roles.split()
    assert dict(layer.settings) == settings
    listed = {leaf.path for leaf in backend.leaves(nn.ModuleDict({"x": module}))}
    assert {weight.path for weight in layer.weights.values()} <= listed
    assert all(weight.axes is None for weight in layer.weights.values())


def test_each_recurrent_layer_and_direction_is_listed(backend):
    layers = backend.layers(nn.ModuleDict({"x": nn.LSTM(2, 3, 2, bidirectional=True)}))
    assert [(layer.kind, layer.path, dict(layer.settings)) for layer in layers] == [
        ("lstm", "x.l0", {}),
        ("lstm", "x.l0_reverse", {"reverse": True}),
        ("lstm", "x.l1", {}),
        ("lstm", "x.l1_reverse", {"reverse": True}),
    ]
    assert layers[1].weights["bias_hh"] == Weight("x.bias_hh_l0_reverse")


def test_a_shared_module_is_listed_once(backend):
    shared = nn.Linear(2, 2)
    assert [layer.path for layer in backend.layers(nn.Sequential(shared, nn.ReLU(), shared))] == ["0"]


def test_layers_of_a_model(backend):
    layers = backend.layers(Model())
    assert [(layer.kind, layer.path) for layer in layers[:4]] == [
        ("other", ""),
        ("linear", "stem.0"),
        ("linear", "stem.2"),
        ("other", "blocks.a"),
    ]
    by_path = {layer.path: layer for layer in layers}
    assert by_path["attention"].kind == "other"
    assert by_path["attention.out_proj"].kind == "linear"
    assert by_path["head"].weights["weight"] == Weight("head.weight")
    assert backend.layers(nn.LazyLinear(2)) == []


# ---------------------------------------------------------------- several devices
@pytest.mark.parametrize(
    "name", ["uint8", "uint16", "uint32", "uint64", "int8", "int64", "float16", "bfloat16", "float64"]
)
def test_combining_in_every_dtype(backend, name):
    """PyTorch cannot add or compare unsigned integers wider than a byte."""
    dtype = getattr(torch, name)
    high = 2**63 + 5 if name == "uint64" else 100
    xs = [torch.tensor([1, high]).to(dtype) if name != "uint64" else torch.tensor([1, high], dtype=dtype) for _ in "ab"]
    xs.append(torch.tensor([3, 7]).to(dtype))
    assert backend.combine(xs, "max").tolist() == [3, high]
    assert backend.combine(xs, "min").tolist() == [1, 7]
    bits = {"uint8": 8, "int8": 8, "uint16": 16, "uint64": 64}.get(name)
    total = 2 * high + 7
    if name == "int8":
        total = (total + 128) % 256 - 128
    elif bits:
        total %= 2**bits
    expected = torch.tensor(float(total)).to(dtype).item() if name == "bfloat16" else total
    assert abs(backend.combine(xs, "sum").tolist()[1] - expected) <= (1 if name == "bfloat16" else 0)
    assert backend.combine(xs, "sum").dtype is dtype
    assert xs[0].tolist() == [1, high]


def test_combining_floats(backend):
    xs = [torch.tensor([1.0, float("nan")]), torch.tensor([4.0, 2.0])]
    assert backend.combine(xs, "mean")[0] == 2.5
    for op in ("sum", "mean", "max", "min"):
        assert backend.combine(xs, op).isnan().tolist() == [False, True]
    small = [torch.tensor([1.0]).to(torch.float8_e4m3fn)] * 2
    assert backend.combine(small, "sum").float().item() == 2
    assert not backend.combine([x.requires_grad_() for x in xs], "sum").requires_grad


def test_assigning_to_a_parameter(backend):
    parameter = nn.Parameter(torch.zeros(2))
    backend.assign(parameter, torch.ones(2))
    assert parameter.tolist() == [1.0, 1.0]
    assert parameter.is_leaf
    with torch.inference_mode():
        frozen = torch.zeros(2)
    assert not backend.supports_inplace(frozen)
    assert backend.supports_inplace(parameter)


def test_sums_over_real_gpus_use_nccl(backend, monkeypatch):
    """If each is on its own GPU, PyTorch's engine computes; otherwise no engine is used."""
    calls = []

    class Card(torch.Tensor):
        device = property(lambda self: torch.device("cuda", self.index))
        is_cuda = True

    def cards(*indices, dtype=torch.float32):
        made = [torch.ones(2, dtype=dtype).as_subclass(Card) for _ in indices]
        for each, index in zip(made, indices, strict=True):
            each.index = index
        return made

    def engine(inputs, outputs):
        calls.append(len(inputs))
        for each in outputs:
            each.copy_(sum(x.as_subclass(torch.Tensor) for x in inputs))

    monkeypatch.setattr(torch._C, "_nccl_all_reduce", None, raising=False)
    monkeypatch.setattr(torch.cuda.nccl, "all_reduce", engine)
    assert [x.tolist() for x in backend.all_reduce(cards(0, 1), "sum")] == [[2.0, 2.0]] * 2
    assert [x.tolist() for x in backend.all_reduce(cards(0, 1), "mean")] == [[1.0, 1.0]] * 2
    assert calls == [2, 2]
    assert backend.all_reduce(cards(0, 1), "max") is None  # NCCL promises nothing about NaN
    assert backend.all_reduce(cards(0, 0), "sum") is None
    assert backend.all_reduce(cards(0, 1, dtype=torch.complex64), "sum") is None
    assert backend.all_reduce([torch.ones(1), torch.ones(1)], "sum") is None


def test_thread_state_can_be_entered_in_another_thread(backend):
    def seen():
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")

    def elsewhere(modes):
        found = []

        def look():
            with modes():
                found.append((*seen(), torch.get_autocast_dtype("cpu")))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return found[0]

    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode(), torch.autocast("cpu", dtype=torch.float16):
            assert elsewhere(backend.capture_thread_state()) == (*seen(), torch.float16)
    assert elsewhere(backend.capture_thread_state())[:3] == seen() == (True, False, False)
