"""Tests of the reported structure of Paddle models: where they may be cut, and which weight is in which layer."""

from __future__ import annotations

import pytest

import devshim as ds
from devshim.contract.models import Weight

paddle = ds.framework("paddle")

nn = paddle.nn
BOTH = "bias weight"
GATED = "bias_hh bias_ih weight_hh weight_ih"


pytestmark = pytest.mark.usefixtures("current")


class Residual(nn.Layer):
    def __init__(self):
        super().__init__()
        self.norm, self.layers = nn.LayerNorm(4), nn.LayerList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.gain = self.create_parameter([1])

    def forward(self, x):
        return x + self.layers[1](self.layers[0](self.norm(x))) * self.gain


# ---------------------------------------------------------------- blocks
def paths(blocks):
    return [block.path for block in blocks]


def test_chains_are_opened_and_user_defined_layers_are_not(backend):
    model = nn.Sequential(
        nn.Linear(4, 4),
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1D(4)),
        Residual(),
        nn.LSTM(4, 3, 2),
        nn.MultiHeadAttention(4, 2),
    )
    blocks = backend.blocks(model)
    assert paths(blocks) == ["0", "1.0", "1.2", "2", "3", "4"]
    assert paths(blocks[3].children) == ["2.gain", "2.norm", "2.layers.0", "2.layers.1"]
    assert blocks[4].children == blocks[5].children == ()
    listed = {leaf.path for leaf in backend.leaves(model) if leaf.kind in ("parameter", "buffer")}
    assert {path for block in blocks for path in block.leaves} == listed
    assert paths(backend.blocks(nn.Linear(2, 2))) == [""]


# ---------------------------------------------------------------- layers
KINDS = {
    "linear": (lambda: nn.Linear(4, 3), BOTH, {}),
    "linear of no bias": (lambda: nn.Linear(4, 3, bias_attr=False), "weight", {}),
    "conv": (lambda: nn.Conv2D(4, 2, 3, groups=2), BOTH, {"groups": 2}),
    "conv_transpose": (lambda: nn.Conv3DTranspose(2, 4, 3), BOTH, {"groups": 1}),
    "batch_norm": (lambda: nn.BatchNorm2D(3, epsilon=0.1), "bias mean variance weight", {"epsilon": 0.1}),
    "batch_norm of no scale": (
        lambda: nn.BatchNorm1D(3, weight_attr=False),
        "bias mean variance",
        {"epsilon": 1e-5},
    ),
    "layer_norm": (lambda: nn.LayerNorm(3, epsilon=0.1), BOTH, {"epsilon": 0.1}),
    "group_norm": (lambda: nn.GroupNorm(2, 4), BOTH, {"epsilon": 1e-5, "groups": 2}),
    "group_norm of instances": (lambda: nn.InstanceNorm1D(4), BOTH, {"epsilon": 1e-5, "groups": 4}),
    "embedding": (lambda: nn.Embedding(5, 2), "weight", {}),
    "rnn": (lambda: nn.SimpleRNN(2, 3, activation="relu"), GATED, {"activation": "relu"}),
    "lstm": (lambda: nn.LSTM(2, 3), GATED, {}),
    "lstm of one step": (lambda: nn.LSTMCell(2, 3), GATED, {}),
    "gru": (lambda: nn.GRU(2, 3), GATED, {}),
    "gru from the end": (lambda: nn.RNN(nn.GRUCell(2, 3), is_reverse=True), GATED, {"reverse": True}),
    "other": (lambda: nn.PReLU(), "_weight", {}),
    "other of a computed weight": (lambda: nn.utils.weight_norm(nn.Linear(2, 2)), "bias weight weight_g weight_v", {}),
}


@pytest.mark.parametrize("name", KINDS)
def test_layers(backend, name):
    make, roles, settings = KINDS[name]
    model = nn.LayerDict({"x": make()})
    (layer,) = backend.layers(model)
    assert layer.kind == name.partition(" ")[0]
    assert layer.path.split(".")[0] == "x"
    assert sorted(layer.weights) == roles.split()
    assert dict(layer.settings) == settings
    owners = {leaf.path: id(leaf.owner) for leaf in backend.leaves(model) if leaf.kind in ("parameter", "buffer")}
    named = {owners[weight.path] for weight in layer.weights.values()} | {owners[path] for path in layer.unused}
    assert named == set(owners.values())


def test_only_linear_weights_are_transposed(backend):
    linear, conv = backend.layers(nn.Sequential(nn.Linear(4, 3), nn.Conv2D(4, 2, 3)))
    assert linear.weights["weight"] == Weight("0.weight", (1, 0))
    assert conv.weights["weight"] == Weight("1.weight")


def test_a_recurrent_layer_is_reported_by_depth_and_direction(backend):
    layers = backend.layers(nn.LSTM(2, 3, 2, direction="bidirect"))
    assert [layer.path for layer in layers] == ["0.cell_fw", "0.cell_bw", "1.cell_fw", "1.cell_bw"]
    assert [layer.settings.get("reverse", False) for layer in layers] == [False, True, False, True]


def test_channels_last(backend):
    conv, linear = backend.layers(nn.Sequential(nn.Conv2D(4, 2, 3, data_format="NHWC"), nn.Linear(4, 3)))
    assert conv.weights["weight"] == Weight("0.weight")
    assert "the order in which features reach this layer is unknown" in linear.weights["weight"].unclear


def test_a_shared_layer_is_reported_once(backend):
    linear = nn.Linear(4, 4)
    model = nn.Sequential(linear, nn.ReLU(), linear)
    assert [layer.path for layer in backend.layers(model)] == ["0"]
    assert [block.leaves for block in backend.blocks(model)] == [("0.weight", "0.bias"), ("2.weight", "2.bias")]
