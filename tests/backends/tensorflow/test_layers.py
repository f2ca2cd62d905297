"""Tests of the reported structure of Keras models: where a model may be cut, its layers' weights, and their order."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from devshim.contract.models import Weight

kl = keras.layers
BOTH = "bias weight"
LSTM = "bias_ih+bias_hh weight_hh weight_ih"
UNCLEAR = "the order cannot be determined in this model"


pytestmark = pytest.mark.usefixtures("current")


def chain(*layers, shape):
    return keras.Sequential([kl.Input(shape), *layers])


def alone(call, shape, **layers):
    """Return a model with its own ``call``."""

    class Alone(keras.Model):
        def __init__(self):
            super().__init__()
            for name, layer in layers.items():
                setattr(self, name, layer)

    Alone.call = call
    model = Alone()
    model(np.zeros((2, *shape), "f4"))
    return model


# ---------------------------------------------------------------- blocks
def paths(blocks):
    return [block.path for block in blocks]


def residual(channels=4):
    return alone(lambda self, x: self.second(self.first(x)) + x, (4,), first=kl.Dense(channels), second=kl.Dense(4))


def test_chains_are_cut_and_user_layers_are_blocks(backend):
    inner = chain(kl.Dense(4), kl.Dropout(0.5), kl.LayerNormalization(), shape=(4,))
    model = chain(kl.Dense(4), inner, residual(), shape=(4,))
    blocks = backend.blocks(model)
    assert [len(block.leaves) for block in blocks] == [2, 2, 1, 2, 4]  # the state of a dropout's generator is one
    assert [len(block.children) for block in blocks] == [0, 0, 0, 0, 2]
    listed = [leaf.path for leaf in backend.leaves(model) if leaf.kind in ("parameter", "buffer")]
    assert [path for block in blocks for path in block.leaves] == listed
    for block in blocks:
        assert all(path.startswith(f"{block.path}.") for path in block.leaves)


def test_layers_of_keras_are_never_cut(backend):
    x = kl.Input((3, 4))
    model = keras.Model(x, kl.Bidirectional(kl.LSTM(2))(kl.MultiHeadAttention(2, 2)(x, x)))
    assert [block.children for block in backend.blocks(model)] == [(), ()]
    dense = kl.Dense(2)
    dense.build((2, 2))
    assert paths(backend.blocks(dense)) == [""]
    module = tf.Module()
    module.v = tf.Variable([1.0])
    assert [block.leaves for block in backend.blocks(module)] == [tuple(leaf.path for leaf in backend.leaves(module))]


# ---------------------------------------------------------------- layers
KINDS = {
    "linear": (lambda: kl.Dense(3, activation="relu"), (4,), BOTH, {}),
    "conv": (lambda: kl.Conv2D(4, 3, groups=2), (5, 5, 4), BOTH, {"groups": 2}),
    "conv in one dimension": (lambda: kl.Conv1D(4, 3, use_bias=False), (5, 4), "weight", {"groups": 1}),
    "conv of depth": (lambda: kl.DepthwiseConv2D(3), (5, 5, 4), BOTH, {"groups": 4}),
    "conv_transpose": (lambda: kl.Conv3DTranspose(4, 3), (5, 5, 5, 2), BOTH, {"groups": 1}),
    "batch_norm": (lambda: kl.BatchNormalization(), (4,), "bias mean variance weight", {"epsilon": 1e-3}),
    "batch_norm of statistics alone": (
        lambda: kl.BatchNormalization(scale=False, center=False, epsilon=0.1),
        (4,),
        "mean variance",
        {"epsilon": 0.1},
    ),
    "layer_norm": (lambda: kl.LayerNormalization(), (4,), BOTH, {"epsilon": 1e-3}),
    "layer_norm of no shift": (lambda: kl.LayerNormalization(center=False), (4,), "weight", {"epsilon": 1e-3}),
    "group_norm": (lambda: kl.GroupNormalization(2), (4,), BOTH, {"epsilon": 1e-3, "groups": 2}),
    "group_norm of instances": (lambda: kl.GroupNormalization(-1), (3, 4), BOTH, {"epsilon": 1e-3, "groups": 4}),
    "embedding": (lambda: kl.Embedding(5, 2), (4,), "weight", {}),
    "rnn": (lambda: kl.SimpleRNN(3, activation="relu"), (2, 4), LSTM, {"activation": "relu"}),
    "lstm": (lambda: kl.LSTM(3, dropout=0.5), (2, 4), LSTM, {}),
    "lstm of another activation": (lambda: kl.LSTM(3, activation="relu"), (2, 4), LSTM, {"activation": "relu"}),
    "lstm from the end": (lambda: kl.LSTM(3, go_backwards=True), (2, 4), LSTM, {"reverse": True}),
    "gru": (lambda: kl.GRU(3), (2, 4), "bias_hh bias_ih weight_hh weight_ih", {}),
    "gru as it once was": (lambda: kl.GRU(3, reset_after=False), (2, 4), LSTM, {"reset_after": False}),
    "other": (lambda: kl.PReLU(), (4,), "alpha", {}),
    "other with statistics": (lambda: kl.Normalization(), (4,), "count mean variance", {}),
}


@pytest.mark.parametrize("name", KINDS)
def test_layers(backend, name):
    make, shape, roles, settings = KINDS[name]
    model = chain(make(), shape=shape)
    layers = backend.layers(model)
    assert {layer.kind for layer in layers} == {name.partition(" ")[0]}
    (layer,) = layers
    assert sorted(layer.weights) == roles.split()
    assert dict(layer.settings) == pytest.approx(settings)
    held = {leaf.path for leaf in backend.leaves(model) if leaf.kind in ("parameter", "buffer")}
    assert {weight.path for weight in layer.weights.values()} == {path for path in held if "seed" not in path}


def test_a_separable_convolution_is_two(backend):
    first, second = backend.layers(chain(kl.SeparableConv2D(3, 2, depth_multiplier=2), shape=(5, 5, 4)))
    assert (first.kind, list(first.weights), first.settings) == ("conv", ["weight"], {"groups": 4})
    assert (second.kind, sorted(second.weights), second.settings) == ("conv", ["bias", "weight"], {"groups": 1})


def test_each_direction_of_a_recurrent_layer_is_one(backend):
    layers = backend.layers(chain(kl.Bidirectional(kl.GRU(3)), shape=(2, 4)))
    assert [(layer.kind, layer.settings.get("reverse", False)) for layer in layers] == [("gru", False), ("gru", True)]


def test_a_dense_layer_with_additional_weights_has_no_kind(backend):
    model = chain(kl.Dense(4), shape=(4,))
    model.layers[0].enable_lora(2)
    assert [layer.kind for layer in backend.layers(model)] == ["other"]


# ---------------------------------------------------------------- the order of features
def kernel_of(backend, model):
    """Return the weight of the only Dense layer with five units."""
    shapes = {leaf.path: backend.shape(leaf.read()) for leaf in backend.leaves(model)}
    found = [layer.weights["weight"] for layer in backend.layers(model) if layer.kind == "linear"]
    (weight,) = [each for each in found if shapes[each.path][1] == 5]
    return weight


PIECES = {
    "flattened": (lambda: [kl.Conv2D(4, 3), kl.Flatten()], (6, 5, 3), (4, 4, 3)),
    "through a norm and a sum": (
        lambda: [kl.Conv2D(4, 3), kl.BatchNormalization(), kl.Activation("relu"), kl.Flatten(), kl.Dropout(0.1)],
        (6, 5, 3),
        (4, 4, 3),
    ),
    "reshaped": (lambda: [kl.Conv2D(4, 3), kl.Reshape((-1,))], (6, 5, 3), (4, 4, 3)),
    "of a sequence": (lambda: [kl.Conv1D(4, 3), kl.MaxPooling1D(), kl.Flatten()], (8, 3), (4, 3)),
    "averaged": (lambda: [kl.Conv2D(4, 3), kl.GlobalAveragePooling2D()], (6, 5, 3), None),
    "of one channel": (lambda: [kl.Conv2D(1, 3), kl.Flatten()], (6, 5, 3), None),
    "of pixels of one channel": (lambda: [kl.Flatten()], (6, 5, 1), None),
    "of pixels with statistics": (lambda: [kl.BatchNormalization(), kl.Flatten()], (6, 5, 3), (3, 6, 5)),
    "of a table": (lambda: [kl.Flatten()], (6, 5), None),
    "of steps": (lambda: [kl.LSTM(4, return_sequences=True), kl.Flatten()], (6, 5), None),
    "of pixels": (lambda: [kl.Flatten()], (6, 5, 3), UNCLEAR),
    "turned": (lambda: [kl.Conv2D(4, 3), kl.Permute((2, 1, 3)), kl.Flatten()], (6, 5, 3), UNCLEAR),
    "of an unknown order": (
        lambda: [kl.Conv2D(4, 3), kl.Lambda(lambda x: x[:, 0, 0]), kl.Flatten()],
        (6, 5, 3),
        UNCLEAR,
    ),
    "of other features": (lambda: [kl.Conv2D(4, 3), kl.Dense(2), kl.Flatten()], (6, 5, 3), UNCLEAR),
}


@pytest.mark.parametrize("name", PIECES)
def test_the_order_of_features_before_a_dense_layer(backend, name):
    pieces, shape, expected = PIECES[name]
    model = chain(*pieces(), kl.Dense(5), shape=shape)
    weight = kernel_of(backend, model)
    if expected == UNCLEAR:
        assert UNCLEAR in weight.unclear
    elif expected is None:
        assert weight == Weight(weight.path, (1, 0))
    else:
        assert weight == Weight(weight.path, (*range(2, len(expected) + 1), 1, 0), ((5,), expected))


def test_across_nested_models_and_sums(backend):
    x = kl.Input((6, 5, 3))
    y = kl.Conv2D(4, 3)(x)
    y = keras.ops.relu(y + kl.Conv2D(4, 3)(x))
    head = chain(kl.Flatten(), kl.Dense(5), shape=(4, 3, 4))
    assert kernel_of(backend, keras.Model(x, head(y))).folded == ((5,), (4, 4, 3))
    pooled = kl.GlobalAveragePooling2D()(kl.Multiply()([y, kl.Reshape((1, 1, 4))(kl.Dense(4)(kl.Flatten()(y)))]))
    assert kernel_of(backend, keras.Model(x, kl.Dense(5)(pooled))) == Weight("dense_1.kernel", (1, 0))


def test_a_dense_layer_before_a_map_has_its_order(backend):
    model = chain(
        *(kl.Dense(24), kl.BatchNormalization(), kl.ReLU(), kl.Reshape((2, 3, 4))),
        *(kl.BatchNormalization(), kl.Conv2DTranspose(2, 3)),
        shape=(5,),
    )
    dense, first, second, _ = backend.layers(model)
    assert dense.weights["weight"] == Weight(dense.weights["weight"].path, (3, 1, 2, 0), ((4, 2, 3), (5,)))
    assert dense.weights["bias"].folded == first.weights["mean"].folded == ((4, 2, 3),)
    assert second.weights["mean"].folded is None
    undecided = chain(kl.Dense(24), kl.Reshape((2, 3, 4)), shape=(5,))
    assert UNCLEAR in backend.layers(undecided)[0].weights["weight"].unclear


MAKERS = {
    "steps": lambda x: kl.Reshape((4, 6))(kl.Dense(24)(x)),
    "steps with statistics": lambda x: kl.Flatten()(kl.BatchNormalization()(kl.Reshape((4, 6))(kl.Dense(24)(x)))),
    "a map by unknown code": lambda x: kl.Conv2D(3, 2)(
        kl.Lambda(lambda y: keras.ops.reshape(y, (-1, 2, 3, 4)))(kl.Dense(24)(x))
    ),
    "a map and something else": lambda x: kl.Concatenate()(
        [kl.Flatten()(kl.Conv2D(3, 2)(kl.Reshape((2, 3, 4))(made := kl.Dense(24)(x)))), kl.Dense(2)(made)]
    ),
    "a map of rows": lambda x: kl.Conv2D(3, 2)(kl.Reshape((2, 3, 4))(kl.Dense(12)(kl.RepeatVector(2)(x)))),
}


@pytest.mark.parametrize("name", MAKERS)
def test_features_that_may_become_a_map_are_unclear(backend, name):
    x = kl.Input((5,))
    model = keras.Model(x, MAKERS[name](x))
    assert UNCLEAR in backend.layers(model)[0].weights["weight"].unclear


def test_pixels_reshaped_into_a_map_are_unclear(backend):
    for shape, unclear in (((2, 2, 6), True), ((4, 6, 1), False)):
        (conv,) = backend.layers(chain(kl.Reshape(shape), kl.Conv2D(3, 2), shape=(24,)))
        assert (UNCLEAR in conv.weights["weight"].unclear) == unclear


def test_a_functional_model_that_overrides_call_is_not_trusted(backend):
    class Turned(keras.Sequential):
        def call(self, x):
            convolve, flatten, dense = self.layers
            return dense(flatten(keras.ops.transpose(convolve(x), (0, 2, 1, 3))))

    turned = Turned([kl.Input((6, 5, 3)), kl.Conv2D(4, 3), kl.Flatten(), kl.Dense(5)])
    assert UNCLEAR in kernel_of(backend, turned).unclear


def through(self, x):
    for layer in self.layers:
        x = layer(x)
    return x


def test_models_with_a_call_of_their_own(backend):
    image = (6, 5, 3)
    mlp = alone(through, (4,), a=kl.Dense(6), b=kl.LayerNormalization(), c=chain(kl.Dense(5), shape=(6,)))
    assert kernel_of(backend, mlp) == Weight(kernel_of(backend, mlp).path, (1, 0))
    pooled = alone(through, image, a=kl.Conv2D(4, 3), b=kl.GlobalAveragePooling2D(), c=kl.Dense(5))
    assert not kernel_of(backend, pooled).unclear
    flat = alone(through, image, a=kl.Conv2D(4, 3), b=kl.Flatten(), n=kl.BatchNormalization(), c=kl.Dense(5))
    assert kernel_of(backend, flat).folded == ((5,), (4, 4, 3))
    assert all(weight.folded == ((4, 4, 3),) for weight in backend.layers(flat)[1].weights.values())
    inside = alone(through, image, net=keras.Sequential([kl.Conv2D(4, 3), kl.Flatten(), kl.Dense(5)]))
    assert kernel_of(backend, inside).folded == ((5,), (4, 4, 3))
    maker = alone(
        lambda self, x: self.b(keras.ops.reshape(self.a(x), (-1, 2, 3, 4))), (5,), a=kl.Dense(24), b=kl.Conv2D(2, 2)
    )
    assert backend.layers(maker)[0].weights["bias"].folded == ((4, 2, 3),)


def test_code_that_has_no_graph_is_unclear(backend):
    def flattened(self, x):
        return self.c(self.n(tf.reshape(self.a(x), (-1, 48))))

    flat = alone(flattened, (6, 5, 3), a=kl.Conv2D(4, 3), n=kl.BatchNormalization(), c=kl.Dense(5))
    assert UNCLEAR in kernel_of(backend, flat).unclear
    assert all(weight.unclear for weight in backend.layers(flat)[1].weights.values())
    shared = alone(
        lambda self, x: self.b(tf.reshape(self.a(x), (-1, 2, 3, 4))), (5,), a=kl.Dense(24), b=kl.Conv2D(2, 2)
    )
    assert UNCLEAR in backend.layers(shared)[0].weights["weight"].unclear


def test_tracing_for_a_graph_has_no_lasting_effect(backend):
    class Counting(keras.Model):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = kl.Conv2D(4, 3), kl.Flatten(), kl.Dense(5)
            self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, x):
            self.calls.assign_add(1.0)
            return self.c(self.b(self.a(x)))

    model = Counting()
    model(np.zeros((2, 6, 5, 3), "f4"))
    before = {leaf.path: leaf.read().numpy().tobytes() for leaf in backend.leaves(model)}
    assert kernel_of(backend, model).folded == ((5,), (4, 4, 3))
    assert {leaf.path: leaf.read().numpy().tobytes() for leaf in backend.leaves(model)} == before
    assert [(each._inbound_nodes, each._outbound_nodes) for each in (model, *model.layers)] == [([], [])] * 4


def test_blocks_of_convolutions_in_a_chain(backend):
    def block(channels):
        return alone(
            lambda self, x: self.n(self.b(self.a(x))) + self.c(x),
            (6, 5, 3),
            a=kl.Conv2D(channels, 3, padding="same"),
            b=kl.Conv2D(channels, 3, padding="same"),
            c=kl.Conv2D(channels, 1),
            n=kl.BatchNormalization(),
        )

    model = chain(block(6), kl.GlobalAveragePooling2D(), kl.Dense(5), shape=(6, 5, 3))
    assert not any(weight.unclear for layer in backend.layers(model) for weight in layer.weights.values())
    flat = chain(block(6), kl.Flatten(), kl.Dense(5), shape=(6, 5, 3))
    assert kernel_of(backend, flat).folded == ((5,), (6, 6, 5))
