"""Tests of Keras models and tf.Modules on simulated GPUs: their leaves, what moves, and that nothing else changes.

The conformance kit (`test_conformance.py`) has the plain cases; these tests cover Keras itself: its layers, its names,
`compile` and `fit`, compiled functions, and copies.
"""

from __future__ import annotations

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf
from model_leaves import devices, leaves

import devshim as ds

layers = keras.layers

pytestmark = pytest.mark.usefixtures("three_cards")

CPU = ds.cpu()
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 4)).astype("float32"), RNG.standard_normal((8, 3)).astype("float32")


def network(**compiled):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(3)])
    model.build((None, 4))
    if compiled:
        model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse", metrics=["mae"], **compiled)
    return model


def small():
    """Return a small model for XLA, which takes seconds to compile each call of `fit`."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([layers.Dense(3)])
    model.build((None, 4))
    model.compile(optimizer=keras.optimizers.SGD(0.05, momentum=0.9), loss="mse", jit_compile=True)
    return model


def fit(model, epochs=1):
    model.fit(X, Y, batch_size=8, epochs=epochs, verbose=0, shuffle=False)


def same(a, b):
    assert [x.shape for x in a] == [x.shape for x in b]
    assert all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


# ---------------------------------------------------------------------- names
def test_names_are_those_of_the_layers_numbered_within_the_model():
    """An equal model made later in the same process has the same names; explicit names are kept."""
    nested = [layers.Dense(4), layers.LSTM(2), layers.Dense(3, name="head"), layers.Dropout(0.1)]

    def made():
        model = keras.Sequential([layers.Embedding(5, 3), *[type(x).from_config(_plain(x)) for x in nested]])
        model.build((None, 6))
        return model

    def _plain(layer):
        config = layer.get_config()
        if config["name"] != "head":
            config.pop("name")
        return config

    first, second = made(), made()
    assert list(leaves(first)) == list(leaves(second))
    assert {"embedding.embeddings", "dense.kernel", "lstm.lstm_cell.kernel", "head.bias"} <= leaves(first).keys()
    assert "dropout.seed_generator_state" in leaves(first)
    assert {path: leaf.kind for path, leaf in leaves(network()).items()}["batch_normalization.moving_mean"] == "buffer"
    both = [keras.Sequential([keras.Input((5, 3)), layers.Bidirectional(layers.GRU(2))]) for _ in range(2)]
    assert list(leaves(both[0])) == list(leaves(both[1]))
    assert "bidirectional.backward_gru.gru_cell.kernel" in leaves(both[1])


# ---------------------------------------------------------------------- layers
SEQUENCE = (2, 5, 4)
IMAGE = (2, 8, 8, 3)
KINDS = {
    "conv": (lambda: layers.Conv2D(4, 3), IMAGE),
    "depthwise": (lambda: layers.SeparableConv2D(4, 3), IMAGE),
    "conv_transpose": (lambda: layers.Conv2DTranspose(4, 3), IMAGE),
    "group_norm": (lambda: layers.GroupNormalization(3), IMAGE),
    "noise": (lambda: layers.GaussianNoise(0.1, seed=1), SEQUENCE),
    "augmentation": (lambda: layers.RandomFlip(seed=1), IMAGE),
    "lstm": (lambda: layers.LSTM(3, return_sequences=True, dropout=0.2, recurrent_dropout=0.2, seed=1), SEQUENCE),
    "gru": (lambda: layers.GRU(3), SEQUENCE),
    "stateful": (lambda: layers.SimpleRNN(3, stateful=True), SEQUENCE),
    "bidirectional": (lambda: layers.Bidirectional(layers.SimpleRNN(2)), SEQUENCE),
    "distributed": (lambda: layers.TimeDistributed(layers.Dense(2)), SEQUENCE),
    "layer_norm": (lambda: layers.LayerNormalization(), SEQUENCE),
    "spectral": (lambda: layers.SpectralNormalization(layers.Dense(3)), SEQUENCE),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_layer_computes_where_it_was_placed(name):
    """In training and inference, including state changes, it equals the CPU bit for bit, on the GPU and after moving
    back.
    """
    make, shape = KINDS[name]
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")

    def run(moves):
        keras.utils.set_random_seed(0)
        layer = make()
        if "moved first" in moves:
            ds.place(layer, "gpu:1")  # built there
        layer.build(shape) if name != "augmentation" else None
        results = []
        for device in moves[-3:]:
            ds.place(layer, device)
            given = ds.from_numpy(x, device)
            for training in (True, False):
                y = layer(given, training=training)
                assert ds.device_of(y) is ds.device(device)
                results.append(ds.to_numpy(y))
            assert devices(layer) <= {ds.device(device)}
        return results + [ds.to_numpy(v) for v in layer.variables]

    expected = run(["cpu"] * 3)
    same(run(["moved first", "gpu:1", "cpu", "gpu:0"]), expected)


def test_attention_embeddings_and_masks():
    def run(moves):
        keras.utils.set_random_seed(0)
        tokens = keras.Input((5,), dtype="int64")
        h = layers.Embedding(7, 4)(tokens)
        h = layers.GlobalAveragePooling1D()(layers.Add()([h, layers.MultiHeadAttention(2, 2)(h, h)]) * 2.0)
        masked = layers.LSTM(4)(layers.Embedding(7, 4, mask_zero=True)(tokens))
        model = keras.Model(tokens, layers.Concatenate()([h, masked]))
        results = []
        for device in moves:
            ds.place(model, device)
            y = model(ds.from_numpy(np.array([[1, 2, 3, 0, 0], [4, 5, 6, 1, 0]]), device))
            assert ds.device_of(y) is ds.device(device)
            results.append(ds.to_numpy(y))
        return results

    same(run(["cpu", "gpu:1", "gpu:0"]), run(["cpu"] * 3))


def test_variables_stay_the_same_objects():
    model = network()
    before = [(v, v._value) for v in model.variables]
    ds.place(model, "gpu:1")
    assert all(v is a and v._value is b for v, (a, b) in zip(model.variables, before, strict=True))
    assert {v._value.device for v in model.variables} == {before[0][1].device}
    assert devices(model) == {ds.gpu(1)}
    before[0][1].assign(tf.ones_like(before[0][1]))  # through an existing reference
    assert (leaves(model)["dense.kernel"].read().numpy() == 1).all()


def test_numpy_inputs_and_single_layers_compute_on_the_models_device():
    model = ds.place(network(), "gpu:1")
    assert ds.device_of(model(X)) is ds.gpu(1)
    assert ds.device_of(model.layers[0](X)) is ds.gpu(1)
    with ds.on("gpu:2"):
        assert ds.device_of(model(X)) is ds.gpu(1)
    with pytest.raises(ds.DeviceMismatchError):
        model(ds.from_numpy(X))


def test_on_the_host_no_hook_is_left():
    gc.collect()  # models of other tests
    call, apply = keras.layers.Layer.__call__, keras.optimizers.Optimizer.apply
    model, before_fit = network(), keras.Model.fit
    before = [set(vars(x)) for x in (model, *model.layers)], model.build
    ds.place(model, "gpu:1")
    assert keras.layers.Layer.__call__ is not call
    ds.place(model, "cpu")
    assert ([set(vars(x)) for x in (model, *model.layers)], model.build) == before
    assert keras.layers.Layer.__call__ is call
    other = ds.place(network(run_eagerly=True), "gpu:1")
    assert keras.optimizers.Optimizer.apply is not apply
    del other
    gc.collect()
    assert (keras.layers.Layer.__call__, keras.optimizers.Optimizer.apply, keras.Model.fit) == (call, apply, before_fit)


# ---------------------------------------------------------------------- compile, fit, evaluate, predict
@pytest.mark.parametrize("how", ["run_eagerly", "xla"])
def test_moves_between_calls_of_fit_do_not_change_results(how):
    """Moved between calls of fit, weights stay equal bit for bit; optimizer and metrics are on the model's device."""

    def run(moves):
        model, outputs = network(run_eagerly=True) if how == "run_eagerly" else small(), []
        for device in moves:
            ds.place(model, device)
            fit(model)
            assert devices(model) == {ds.device(device)}
        assert devices(model.optimizer) == {ds.device(moves[-1])}
        if how == "run_eagerly":
            outputs = [
                *model.evaluate(X, Y, verbose=0),
                *model.predict(X, verbose=0).ravel(),
                *model.train_on_batch(X, Y),
            ]
        return [*ds.place(model, "cpu").get_weights(), np.array(outputs)]

    same(run(["gpu:1", "gpu:2"]), run(["cpu"] * 2))


def test_an_optimizer_compiled_after_placement_is_on_the_models_device():
    model = ds.place(network(), "gpu:1")
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer=optimizer, loss="mse", run_eagerly=True)
    fit(model)
    assert devices(optimizer) == devices(model) == {ds.gpu(1)}


def test_an_unbuilt_model_is_built_by_fit_where_it_was_placed():
    model = keras.Sequential([layers.Dense(4), layers.BatchNormalization(), layers.Dense(3)])
    ds.place(model, "gpu:2")
    model.compile(optimizer="adam", loss="mse")
    fit(model)
    assert len(leaves(model)) > 8
    assert devices(model) == {ds.gpu(2)}
    other = ds.place(keras.Sequential([layers.Dense(4)]), "gpu:1")
    other.build((None, 4))
    assert devices(other) == {ds.gpu(1)}


def test_weights_added_after_a_move_are_on_the_new_device():
    """This includes the weights of LoRA, and of a layer that was added to the model later."""
    model = ds.place(network(), "gpu:1")
    model.layers[0].enable_lora(2)
    model.add(layers.Dense(3))
    found = list(ds.placement_of(model))
    assert {"dense.lora_kernel_a", "dense.lora_kernel_b", "dense_2.kernel"} <= set(found)
    assert devices(model) == {ds.gpu(1)}
    assert ds.device_of(model(X)) is ds.gpu(1)
    model.compile("sgd", "mse")
    fit(model)
    assert devices(model) == {ds.gpu(1)}


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras 3.15, saving, on NumPy 2
@pytest.mark.parametrize("place", ["gpu:1", ds.Placement({"dense": "gpu:0"}, default="gpu:1")], ids=["one", "several"])
def test_weights_from_the_host_are_set_and_loaded(place, tmp_path):
    """Keras' own functions that fill a model, and callbacks that use them, work."""
    model, other = network(run_eagerly=True), network(run_eagerly=True)
    model.layers[0].kernel.assign(model.layers[0].kernel * 2)
    ds.place(model, place)
    where = ds.placement_of(model)
    expected = [w + 1 for w in other.get_weights()]
    model.set_weights(expected)
    same(model.get_weights(), expected)
    other.save_weights(tmp_path / "m.weights.h5")
    model.load_weights(tmp_path / "m.weights.h5")
    same(model.get_weights(), other.get_weights())
    assert ds.placement_of(model) == where
    best = keras.callbacks.EarlyStopping("loss", patience=0, restore_best_weights=True)
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[best])


def test_a_compiled_model_within_a_model_keeps_training():
    """As the halves of a GAN do: each has its own optimizer, which moves with the whole model."""

    def run(moves):
        half = network(run_eagerly=True)
        model = keras.Sequential([layers.Dense(4, kernel_initializer="ones"), half])
        model.build((None, 4))
        model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
        for device in moves:
            ds.place(model, device)
            fit(half)
            fit(model)
        assert devices(half.optimizer) == devices(model.optimizer) == {ds.device(moves[-1])}
        return model.get_weights()

    same(run(["gpu:0", "gpu:1"]), run(["cpu"] * 2))


def test_mixed_precision_training_continues_after_a_move():
    def run(moves):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([layers.Dense(8, dtype="mixed_float16"), layers.Dense(3, dtype="float32")])
        model.build((None, 4))
        inner = keras.optimizers.Adam(0.05)
        optimizer = keras.optimizers.LossScaleOptimizer(inner, dynamic_growth_steps=2)
        model.compile(optimizer=optimizer, loss="mse", run_eagerly=True)
        for device in moves:
            ds.place(model, device)
            fit(model)
        assert devices(optimizer) == {ds.device(moves[-1])}
        return model.get_weights()

    same(run(["cpu", "gpu:1", "gpu:0"]), run(["cpu"] * 3))


# ---------------------------------------------------------------------- compiled functions
def test_a_compiled_function_follows_the_model():
    """A function compiled before the move is compiled again, and does not read old weights."""
    model = network()
    step = tf.function(lambda x: model(x) + 1)
    loose = tf.Variable(2.0)
    product = tf.function(lambda: loose * 3)
    first = step(X).numpy(), product().numpy()
    ds.place(model, "gpu:1")
    y = step(X)
    assert y.numpy().tobytes() == first[0].tobytes()
    model.layers[0].kernel.assign(model.layers[0].kernel * 0)
    model.layers[-1].bias.assign(model.layers[-1].bias + 5)
    assert not np.allclose(step(X), first[0])
    assert product().numpy() == first[1]
    ds.place(model, "cpu")
    assert np.allclose(step(X), model(X) + 1)


def test_a_move_frees_memory_that_a_compiled_function_refers_to():
    gc.collect()
    before = ds.memory("gpu:1").used
    model = ds.place(network(jit_compile=False), "gpu:1")
    kept = tf.function(lambda x: model(x)).get_concrete_function(tf.TensorSpec((None, 4)))
    fit(model)
    assert ds.memory("gpu:1").used > before
    ds.place(model, "cpu")
    gc.collect()
    assert ds.memory("gpu:1").used - before <= 512, "Keras may keep the last batch's loss"
    with pytest.raises(tf.errors.OpError):
        kept(tf.constant(X))  # never old weights


def test_a_custom_loop_with_an_optimizer_that_was_never_placed():
    model, optimizer = ds.place(network(), "gpu:1"), keras.optimizers.Adam(0.01)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(X, training=True) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    assert {ds.device_of(g) for g in gradients} == {ds.gpu(1)}
    optimizer.apply(gradients, model.trainable_variables)
    slots = {ds.device_of(leaf.read()) for path, leaf in leaves(optimizer).items() if path.startswith("state.")}
    assert slots == {ds.gpu(1)}


def test_place_inside_a_compiled_function_is_refused():
    model = network()
    with pytest.raises(ds.TracingError):
        tf.function(lambda: ds.place(model, "gpu:1") and 1, autograph=False)()


# ---------------------------------------------------------------------- tf.Module
class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.ones((4, 4)), name="weights")
        self.parts = [keras.layers.Dense(4, kernel_initializer="ones"), {"scale": tf.Variable(2.0, trainable=False)}]
        self.draws = tf.random.Generator.from_seed(1)
        self.same = self.w

    def __call__(self, x):
        return self.parts[0](tf.matmul(x, self.w)) * self.parts[1]["scale"] + self.draws.normal((4,))


def test_tf_modules_move():
    def run(moves):
        module, results = Module(), []
        for device in moves:
            assert ds.place(module, device) is module
            y = module(ds.from_numpy(X, device))
            assert ds.device_of(y) is ds.device(device)
            results.append(y.numpy())
        return results

    same(run(["cpu", "gpu:1", "gpu:0", "cpu"]), run(["cpu"] * 4))
    module = Module()
    module(X)
    found = leaves(module)
    assert {"w", "same", "parts.1.scale", "parts.0.kernel", "parts.0.bias", "draws"} == found.keys()
    assert found["w"].owner is found["same"].owner
    assert found["parts.1.scale"].kind == "buffer"
    twin = ds.copy(module, "gpu:2")
    assert type(twin) is Module
    assert devices(twin) == {ds.gpu(2)}
    assert twin.w is twin.same
    assert twin.w is not module.w


# ---------------------------------------------------------------------- atomicity
def test_faults_at_every_allocation_change_nothing_and_name_the_leaf():
    model = network(run_eagerly=True)
    fit(model)
    state = {path: ds.to_numpy(leaf.read()) for path, leaf in leaves(model).items()}
    gc.collect()
    used = ds.memory("gpu:1").used
    texts = []
    for at in range(1, 60):
        with ds.simulate(gpus=3, faults=ds.Fault("gpu:1", "allocation", at=at)):
            try:
                ds.place(model, "gpu:1")
                break
            except ds.OutOfMemoryError as error:
                texts.append(error.problem)
        assert devices(model) == {CPU}
    assert all("(at the leaf " in each for each in texts)
    assert len(texts) >= len(state)
    ds.place(model, "cpu")
    assert {path: ds.to_numpy(leaf.read()).tobytes() for path, leaf in leaves(model).items()} == {
        path: value.tobytes() for path, value in state.items()
    }
    gc.collect()
    assert ds.memory("gpu:1").used == used
    fit(model)


def test_an_out_of_memory_error_names_the_leaf_and_the_bytes():
    model = keras.Sequential([layers.Dense(64), layers.Dense(64)])
    model.build((None, 64))
    gc.collect()
    used = ds.memory("gpu:1").used  # Keras' caches
    with ds.simulate(gpus=3, memory=used + 20 * 1024):
        with pytest.raises(ds.OutOfMemoryError, match=r"16,384 bytes.*dense_1\.kernel"):
            ds.place(model, "gpu:1")
        assert devices(model) == {CPU}
        assert ds.memory("gpu:1").used == used


def test_variables_of_a_strategy_are_refused():
    strategy = tf.distribute.MirroredStrategy([ds.gpu(i).native().to_string() for i in range(2)])
    with strategy.scope():
        module = tf.Module()
        module.w = tf.Variable(1.0)
    with pytest.raises(ds.UnsupportedError, match="strategy"):
        ds.place(module, "gpu:1")


# ---------------------------------------------------------------------- copies
def test_a_copy_of_a_compiled_model_and_its_optimizer_trains_alike():
    model = network(run_eagerly=True)
    fit(model)
    ds.place(model, "gpu:1")
    twin, optimizer = ds.copy([model, model.optimizer], "gpu:2")
    assert twin.optimizer is optimizer
    assert devices(twin) == {ds.gpu(2)}
    fit(model)
    assert any((a != b).any() for a, b in zip(model.get_weights(), twin.get_weights(), strict=True))
    fit(twin)
    same(model.get_weights(), twin.get_weights())


def test_an_optimizer_is_not_copied_without_its_model():
    model = network()
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    with pytest.raises(ds.UnsupportedError, match="without the model whose variables"):
        ds.copy(optimizer, "gpu:1")


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [layers.Dense(4), layers.Dense(4)]
        self.drop = layers.Dropout(0.5, seed=1)

    def call(self, x, training=False):
        return self.drop(self.blocks[1](self.blocks[0](x)) + x, training=training)


def test_subclassed_models_move_and_are_copied_where_keras_can():
    model = Own()
    model(X)
    expected = model(X).numpy()
    ds.place(model, "gpu:1")
    assert model(X).numpy().tobytes() == expected.tobytes()
    twin = ds.copy(model, "gpu:0")
    assert ds.device_of(twin(X)) is ds.gpu(0)
    assert twin(X).numpy().tobytes() == expected.tobytes()


# ---------------------------------------------------------------------- checkpoints
def test_a_compiled_model_resumes_from_one_file(tmp_path):
    """The optimizer's state belongs to the model, and is restored into a new one.

    A plain model takes only the weights.
    """
    model = ds.place(network(run_eagerly=True), "gpu:1")
    fit(model)
    ds.save(model, tmp_path / "m.safetensors")
    fresh = ds.load(tmp_path / "m.safetensors", "gpu:2", into=network(run_eagerly=True))
    plain = ds.load(tmp_path / "m.safetensors", "gpu:0", into=network())
    same(plain.get_weights(), model.get_weights())
    fit(model)
    fit(fresh)
    same(fresh.get_weights(), model.get_weights())


NEW = {
    "adam": lambda: keras.optimizers.Adam(),
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()),
}


@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("order", [1, -1])
def test_loading_builds_an_optimizer_on_its_models_devices(name, order, tmp_path):
    """Keras' optimizers do not know their variables before they are built: the model beside one defines them."""

    def step(model, optimizer):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(ds.from_numpy(X, ds.device_of(model.weights[0]))) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    saved = [network(), NEW[name]()]
    step(*saved)
    path = tmp_path / "run.safetensors"
    ds.save(saved[::order], path)
    again = [network(), NEW[name]()]
    ds.load(path, "gpu:1", into=again[::order])
    assert ds.placement_of(again).devices == {ds.gpu(1)}
    step(*again)
    step(*saved)
    for mine, its in zip(again, saved, strict=True):
        for a, b in zip(mine.variables, its.variables, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6, atol=1e-7)
    before = dict(vars(unbuilt := NEW["momentum"]()))
    with pytest.raises(ds.CheckpointError):
        ds.load(path, "gpu:1", into=[network(), unbuilt, "more"])
    assert vars(unbuilt).keys() == before.keys()
    assert not unbuilt.built


def test_an_optimizer_that_is_not_built_is_placed_by_a_plan_of_its_model():
    model, optimizer = network(), keras.optimizers.Adam()
    plan = ds.Placement.balanced(model, ["gpu:1", "gpu:2"])
    ds.place([model, optimizer], plan)
    assert ds.device_of(optimizer.iterations) is ds.gpu(1), "the first device"
    assert ds.placement_of(model).devices == {ds.gpu(1), ds.gpu(2)}


def test_settings_are_restored_and_other_optimizers_are_refused(tmp_path):
    def made(cls, **settings):
        model = network()
        optimizer = cls(**settings)
        optimizer.build(model.trainable_variables)
        return [model, optimizer]

    path = tmp_path / "o.safetensors"
    ds.save(made(keras.optimizers.SGD, momentum=0.5, clipnorm=2.0), path)
    other = made(keras.optimizers.SGD, momentum=0.25)
    ds.load(path, "cpu", into=other)
    assert (other[1].momentum, other[1].clipnorm) == (0.5, 2.0)
    adam = made(keras.optimizers.Adam)
    with pytest.raises(ds.CheckpointError, match="SGD"):
        ds.load(path, "cpu", into=adam)
    with pytest.raises(ds.CheckpointError, match="build"):
        ds.load(path, "cpu", into=[None, keras.optimizers.SGD(momentum=0.5)])
