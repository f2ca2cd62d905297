"""Tests of the reported structure of Gluon models: where they may be cut, and which weight is in which layer."""

from __future__ import annotations

import itertools
import math

import pytest
from gluon_arrays import IS_2

import devshim as ds
from devshim.contract.models import Weight

mx = ds.framework("mxnet")
nn, rnn = mx.gluon.nn, mx.gluon.rnn
pytestmark = pytest.mark.usefixtures("current", "numpy_semantics", "old_calls")


def built(*blocks, shape=(2, 4)):
    model = nn.HybridSequential()
    model.add(*blocks)
    model.initialize(force_reinit=True)  # one that occurs twice, too
    model(mx.np.ones(shape))
    return model


class Residual(nn.HybridSequential):
    def forward(self, x):
        for block in self:
            x = x + block(x)
        return x


# ---------------------------------------------------------------- blocks
def paths(blocks):
    return [block.path for block in blocks]


def test_chains_are_opened_and_user_blocks_are_not(backend):
    residual, chain = Residual(), nn.HybridSequential()
    residual.add(nn.Dense(4), nn.Dense(4))
    chain.add(nn.Dense(4), nn.Activation("relu"), nn.LayerNorm())
    model = built(nn.Dense(4), chain, residual)
    blocks = backend.blocks(model)
    assert paths(blocks) == ["0", "1.0", "1.2", "2"]
    assert paths(blocks[-1].children) == ["2.0", "2.1"]
    listed = [leaf.path for leaf in backend.leaves(model) if leaf.kind in ("parameter", "buffer")]
    assert [path for block in blocks for path in block.leaves] == listed
    assert paths(backend.blocks(nn.Dense(2, in_units=2))) == [""]


def test_a_hybridized_chain_is_opened_too_and_recurrent_layers_never(backend):
    model = built(rnn.LSTM(3, 2, layout="NTC"), nn.Dense(2), shape=(2, 5, 4))
    model.hybridize()
    assert [(block.path, block.children) for block in backend.blocks(model)] == [("0", ()), ("1", ())]


# ---------------------------------------------------------------- layers
KINDS = {
    "linear": (lambda: nn.Dense(3), (2, 4), "bias weight", {}),
    "linear of no bias": (lambda: nn.Dense(3, use_bias=False), (2, 4), "weight", {}),
    "conv": (lambda: nn.Conv2D(4, 3, groups=2), (2, 4, 5, 5), "bias weight", {"groups": 2}),
    "conv_transpose": (lambda: nn.Conv1DTranspose(4, 3), (2, 4, 5), "bias weight", {"groups": 1}),
    "batch_norm": (lambda: nn.BatchNorm(epsilon=0.1), (2, 4), "bias mean variance weight", {"epsilon": 0.1}),
    "batch_norm of no scale": (lambda: nn.BatchNorm(scale=False), (2, 4), "bias mean variance", {"epsilon": 1e-5}),
    "batch_norm of no shift": (lambda: nn.BatchNorm(center=False), (2, 4), "mean variance weight", {"epsilon": 1e-5}),
    "layer_norm": (lambda: nn.LayerNorm(epsilon=0.1), (2, 4), "bias weight", {"epsilon": 0.1}),
    "layer_norm of no shift": (lambda: nn.LayerNorm(center=False), (2, 4), "weight", {"epsilon": 1e-5}),
    "embedding": (lambda: nn.Embedding(5, 2), (2, 4), "weight", {}),
    "rnn": (
        lambda: rnn.RNN(3, activation="relu"),
        (2, 3, 4),
        "bias_hh bias_ih weight_hh weight_ih",
        {"activation": "relu"},
    ),
    "lstm": (lambda: rnn.LSTM(3), (2, 3, 4), "bias_hh bias_ih weight_hh weight_ih", {}),
    "gru": (lambda: rnn.GRU(3), (2, 3, 4), "bias_hh bias_ih weight_hh weight_ih", {}),
    "other": (lambda: nn.PReLU(), (2, 4), "alpha", {}),
    "other along another axis": (lambda: nn.LayerNorm(axis=1), (2, 4, 3), "beta gamma", {}),
}
if IS_2:  # 1.9 has neither for NumPy-interface arrays
    KINDS["group_norm"] = (lambda: nn.GroupNorm(2), (2, 4, 3), "bias weight", {"epsilon": 1e-5, "groups": 2})
    instances = {"epsilon": 1e-5, "groups": 4}
    KINDS["group_norm of instances"] = (lambda: nn.InstanceNorm(scale=True), (2, 4, 3), "bias weight", instances)


@pytest.mark.parametrize("name", KINDS)
def test_layers_have_their_roles_and_settings(backend, name):
    make, shape, roles, settings = KINDS[name]
    model = built(make(), shape=shape)
    (layer,) = backend.layers(model)
    assert (layer.kind, layer.path) == (name.partition(" ")[0], "0")
    assert sorted(layer.weights) == roles.split()
    assert dict(layer.settings) == settings
    held = {leaf.path for leaf in backend.leaves(model) if leaf.kind in ("parameter", "buffer")}
    assert {weight.path for weight in layer.weights.values()} | {*layer.unused} == held


def test_each_cell_is_a_layer(backend):
    for make, kind in ((rnn.LSTMCell, "lstm"), (rnn.GRUCell, "gru"), (rnn.RNNCell, "rnn")):
        cell = make(3, input_size=4)
        cell.initialize()
        (layer,) = backend.layers(cell)
        assert layer.kind == kind
        assert layer.weights["weight_hh"] == Weight("h2h_weight")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_each_layer_and_direction_of_a_recurrent_block_is_a_layer(backend, kind):
    model = built(getattr(rnn, kind)(3, 2, bidirectional=True), shape=(5, 2, 4))
    layers = backend.layers(model)
    assert [layer.path for layer in layers] == ["0.l0", "0.r0", "0.l1", "0.r1"]
    assert [layer.settings.get("reverse", False) for layer in layers] == [False, True, False, True]
    if not IS_2:
        assert layers[1].weights["bias_hh"] == Weight("0.r0_h2h_bias")
        return
    gates = {"LSTM": 12, "GRU": 9, "RNN": 3}[kind]
    assert layers[0].weights["weight_ih"] == Weight("0.rnn_param", None, ((gates,), (4,)), None, (0, gates * 4))
    assert_covered(backend, model, layers)
    assert layers[3].weights["weight_ih"].folded == ((gates,), (6,))


def assert_covered(backend, model, layers):
    """Assert that every number of the one array belongs to one weight."""
    parts = sorted(weight.part for layer in layers for weight in layer.weights.values())
    assert parts[0][0] == 0
    assert all(before[1] == after[0] for before, after in itertools.pairwise(parts))
    size = math.prod(backend.shape(next(leaf.read() for leaf in backend.leaves(model) if leaf.kind == "parameter")))
    assert parts[-1][1] == size


@pytest.mark.skipif(not IS_2, reason="1.9 has a parameter for each weight")
@pytest.mark.parametrize("bidirectional", [False, True])
def test_projections_in_the_fused_array(backend, bidirectional):
    layer = rnn.LSTM(5, 2, bidirectional=bidirectional, projection_size=3)
    layer.infer_shape(mx.np.ones((2, 3, 4)), *[None] * 2)
    layer.initialize()
    layers = backend.layers(layer)
    assert layers[0].weights["weight_ih"].folded == ((20,), (4,))
    assert layers[-1].weights["weight_hr"].folded == ((3,), (5,))
    assert_covered(backend, layer, layers)


def test_channels_last_permute_axes_and_make_later_layers_unclear(backend):
    conv = nn.Conv2D(3, (2, 2), layout="NHWC", in_channels=4)
    conv.weight.shape = (3, 2, 2, 4)  # 2.0 forgets the declared inputs
    model = nn.HybridSequential()
    model.add(conv, nn.Dense(2, in_units=12))
    model.initialize()
    first, second = backend.layers(model)
    assert first.weights["weight"] == Weight("0.weight", (0, 2, 3, 1))
    assert "the order in which features reach this layer is unknown" in second.weights["weight"].unclear


def test_a_shared_block_is_listed_once(backend):
    dense = nn.Dense(4)
    model = built(dense, nn.Activation("relu"), dense)
    assert [layer.path for layer in backend.layers(model)] == ["0"]
    assert [block.leaves for block in backend.blocks(model)] == [("0.weight", "0.bias"), ("2.weight", "2.bias")]
