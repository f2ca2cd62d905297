"""Tests of Keras models over several simulated GPUs: activations and gradients cross devices in training."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_leaves import leaves

import devshim as ds

layers = keras.layers

pytestmark = pytest.mark.usefixtures("three_cards")

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 4)).astype("float32"), RNG.standard_normal((8, 3)).astype("float32")


def chain():
    model = keras.Sequential(
        [layers.Dense(8), layers.BatchNormalization(), layers.ReLU(), layers.Dropout(0.3, seed=1), layers.Dense(3)]
    )
    model.build((None, 4))
    return model


def graph():
    """Return a model with skips over the cut, an operator that is not a layer, and a layer that is used twice."""
    x = keras.Input((4,))
    twice = layers.Dense(4, name="dense_1")
    h = layers.Dense(4, name="dense")(x)
    h = layers.Add()([x, twice(twice(h))])
    h = layers.Concatenate()([h * 2.0 + x, layers.Activation("tanh")(h)])
    return keras.Model(x, layers.Dense(3, name="dense_2")(h))


@keras.saving.register_keras_serializable("devshim_tests")
class Own(keras.Model):
    """A model whose own code combines tensors of two GPUs."""

    def __init__(self, **options):
        super().__init__(**options)
        self.first, self.second, self.last = layers.Dense(4), layers.Dense(4), layers.Dense(3)

    def call(self, x):
        h = self.first(x)
        y = self.second(h) * tf.reduce_mean(h, keepdims=True) + h
        return self.last(tf.concat([y, h], 1) + 1.0)


def own():
    model = Own()
    model(X)
    return model


CUTS = {
    chain: ds.Placement({"dense": "gpu:0", "batch_normalization": "gpu:1"}, default="gpu:2"),
    graph: ds.Placement({"dense": "gpu:0", "dense_1": "gpu:1"}, default="gpu:0"),
    own: ds.Placement({"dense": "gpu:1", "dense_1": "gpu:0"}, default="gpu:2"),
}


def made(make, **compiled):
    keras.utils.set_random_seed(0)
    model = make()
    model.compile(optimizer=keras.optimizers.Adam(0.05, global_clipnorm=0.5), loss="mse", **compiled)
    return model


def trained(model, placement=None):
    """Train for two steps of a custom loop; return the gradients too."""
    if placement is not None:
        ds.place(model, placement)
        assert {path: ds.device_of(leaf.read()) for path, leaf in leaves(model).items() if leaf.kind != "state"} == {
            path: placement[path] for path, leaf in leaves(model).items() if leaf.kind != "state"
        }
    for _ in range(2):
        with tf.GradientTape() as tape:
            y = model(X, training=True)
            loss = tf.reduce_mean((y - ds.from_numpy(Y, ds.device_of(y))) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
    return [g.numpy() for g in gradients], ds.place(model, "cpu").get_weights()


@pytest.mark.parametrize("make", CUTS)
def test_a_split_model_computes_and_learns_the_same(make):
    """This covers forward, backward, clipping by the norm of all gradients, and Adam."""
    expected = trained(made(make))
    found = trained(made(make), CUTS[make])
    for a, b in zip(found[0] + found[1], expected[0] + expected[1], strict=True):
        assert np.allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("make", CUTS)
def test_the_result_is_on_the_device_of_the_last_part(make):
    model = made(make)
    expected = model(X).numpy()
    ds.place(model, CUTS[make])
    y = model(X)
    assert y.numpy().tobytes() == expected.tobytes()
    assert ds.device_of(y) is {chain: ds.gpu(2), graph: ds.gpu(0), own: ds.gpu(2)}[make]


@pytest.mark.parametrize("how", ["run_eagerly", "compiled"])
def test_fit_trains_a_split_model(how):
    """Keras' XLA, which computes on one device, is disabled meanwhile, and then restored."""
    eager = how == "run_eagerly"

    def run(placement):
        model = made(graph, run_eagerly=eager)
        jit = model.jit_compile
        if placement is not None:
            ds.place(model, placement)
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0, shuffle=False)
        reported = [model.evaluate(X, Y, verbose=0), *model.predict(X, verbose=0).ravel()]
        assert model.jit_compile == jit
        if placement is not None:
            where = {path: str(device) for path, device in ds.placement_of(model).items()}
            assert where["dense_1.kernel"] == where["optimizer.state.2.momentum"] == "gpu:1"
        return [np.array(reported), *ds.place(model, "cpu").get_weights()]

    for a, b in zip(run(CUTS[graph]), run(None), strict=True):
        assert np.allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_compiled_function_runs_a_split_model():
    model = made(graph)
    expected = model(X).numpy()
    ds.place(model, CUTS[graph])

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = model(x)
            loss = tf.reduce_sum(y)
        return y, tape.gradient(loss, model.trainable_variables)

    y, gradients = step(X)
    assert np.allclose(y, expected, rtol=1e-6)
    assert all(g is not None for g in gradients)


def test_an_unbuilt_model_is_built_where_each_layer_was_placed():
    model = keras.Sequential([layers.Dense(4), layers.ReLU(), layers.Dense(3)])
    ds.place(model, ds.Placement({"dense": "gpu:1", "dense_1": "gpu:2"}))
    y = model(X)
    assert ds.device_of(y) is ds.gpu(2)
    assert ds.placement_of(model).devices == {ds.gpu(1), ds.gpu(2)}


def test_a_split_model_moves_to_one_gpu_and_back():
    model = made(chain)
    expected = model(X).numpy()
    for target in (CUTS[chain], "gpu:1", CUTS[chain], "cpu"):
        ds.place(model, target)
        assert model(X).numpy().tobytes() == expected.tobytes()
    ds.place(model, "gpu:1")
    with pytest.raises(ds.DeviceMismatchError):
        model(ds.from_numpy(X, "gpu:0"))  # nothing is copied to a model on one GPU


def test_the_weights_of_one_layer_cannot_be_split():
    model = made(chain)
    with pytest.raises(ds.UnsupportedError, match="dense"):
        ds.place(model, ds.Placement({"dense.kernel": "gpu:0"}, default="gpu:1"))
    assert ds.placement_of(model).devices == {ds.cpu()}


def test_a_planned_placement_runs():
    model = keras.Sequential([layers.Dense(64), layers.Dense(64), layers.Dense(64), layers.Dense(3)])
    model.build((None, 4))
    expected = model(X).numpy()
    plan = ds.Placement.balanced(model, ["gpu:0", "gpu:1"])
    ds.place(model, plan)
    assert plan.devices == {ds.gpu(0), ds.gpu(1)}
    assert np.allclose(model(X), expected, rtol=1e-6)


class Body(keras.layers.Layer):
    """The body of a language model: an embedding, and layers."""

    def __init__(self):
        super().__init__()
        self.embed = layers.Embedding(50, 32)
        self.steps = [layers.Dense(32, activation="relu") for _ in range(8)]

    def call(self, words):
        x = self.embed(words)
        for step in self.steps:
            x = step(x)
        return x


class LanguageModel(keras.Model):
    """A body and a head, which can compute with the embedding's weight."""

    def __init__(self, tied):
        super().__init__()
        self.body, self.head = Body(), None if tied else layers.Dense(50, use_bias=False)

    def call(self, words):
        x = self.body(words)
        return self.head(x) if self.head else tf.matmul(x, self.body.embed.embeddings, transpose_b=True)


@pytest.mark.parametrize("tied", [False, True])
def test_a_plan_cuts_the_body_of_a_model_between_its_layers(tied):
    """A model that computes with the embedding's weight itself does so on the device of the weight."""
    model = LanguageModel(tied)
    words = np.arange(6).reshape(2, 3)
    expected = model(words).numpy()
    plan = ds.Placement.balanced(model, ["gpu:0", "gpu:1"])
    loads = [
        sum(leaf.read().numpy().nbytes for path, leaf in leaves(model).items() if plan[path] is ds.gpu(i))
        for i in (0, 1)
    ]
    assert max(loads) < 0.55 * sum(loads)
    ds.place(model, plan)
    found = model(words)
    assert np.allclose(found, expected, rtol=1e-6)
    model._no_split_modules = ["Body"]
    assert (len(ds.Placement.balanced(model, ["gpu:0", "gpu:1"]).devices) == 1) is tied


def test_the_ledger_records_each_activation_and_gradient_once():
    model = ds.place(made(chain), CUTS[chain])
    x = ds.from_numpy(X, "gpu:0")
    with ds.transfers() as log:
        model(x)
    assert [(r.source, r.target) for r in log.records] == [(ds.gpu(0), ds.gpu(1)), (ds.gpu(1), ds.gpu(2))]
