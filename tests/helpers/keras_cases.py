"""Keras models on simulated GPUs: the same cases for its PyTorch and JAX backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from programs import run_program

import devshim as ds

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 4)).astype("float32")
Y = RNG.standard_normal((12, 3)).astype("float32")
GPU = ds.gpu(1)

UNBUILT_THEN = {
    "called": lambda model: model(ds.from_numpy(X, GPU)),
    "built": lambda model: model.build((None, 4)),
    "predicted": lambda model: model.predict(X, verbose=0),
    "fitted": lambda model: model.fit(X, Y, verbose=0),
    "trained on a batch": lambda model: model.train_on_batch(X, Y),
}


class KerasCases:
    """Tests that need two simulated GPUs.

    Attributes:
        name: The framework.
    """

    name: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _two(self, two_cards: None) -> None:
        import keras

        keras.utils.set_random_seed(1)

    def net(self, *, build: bool = True, compile: bool = True) -> Any:
        import keras

        layers = keras.layers
        model = keras.Sequential(
            [layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.5, seed=3), layers.Dense(3)]
        )
        if build:
            model.build((None, 4))
        if compile:
            model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        return model

    def devices(self, obj: Any) -> set[ds.Device]:
        return set(ds.placement_of(obj).devices)

    # ------------------------------------------------------------------ compute follows data
    def test_operators_answer_where_their_arguments_are(self) -> None:
        from keras import ops

        x = ds.from_numpy(X, GPU)
        made = {
            "one": ops.sin(x),
            "with a number": ops.add(2.0, x),
            "with an array": ops.add(X, x),
            "a list": ops.concatenate([x, x]),
            "a tensor": ops.convert_to_tensor(x),
            "an image": ops.image.resize(ops.reshape(x, (1, 4, 4, 3)), (2, 2)),
        }
        assert {name: str(ds.device_of(y)) for name, y in made.items()} == dict.fromkeys(made, "gpu:1")
        assert ds.device_of(ops.sin(ds.from_numpy(X))) is ds.cpu()

    def test_a_scope_is_where_things_are_made_and_not_where_they_go(self) -> None:
        import keras

        x = ds.from_numpy(X, GPU)
        with ds.on("gpu:0"):
            assert ds.device_of(keras.ops.ones((3,))) is ds.gpu(0)
            assert ds.device_of(keras.ops.sin(x)) is GPU
            assert self.devices(self.net(compile=False)) == {ds.gpu(0)}
        assert ds.device_of(keras.ops.ones((3,))) is ds.cpu()

    @pytest.mark.parametrize("scope", [None, "cpu", "gpu:0"])
    def test_a_model_answers_where_it_is(self, scope: str | None) -> None:
        model = self.net()
        expected = ds.to_numpy(model(ds.from_numpy(X)))
        ds.place(model, GPU)
        if scope is None:
            y = model(ds.from_numpy(X, GPU))
        else:
            with ds.on(scope):
                y = model(ds.from_numpy(X, GPU))
        assert ds.device_of(y) is GPU
        assert np.allclose(ds.to_numpy(y), expected, atol=1e-6)

    def test_every_kind_of_layer(self) -> None:
        import keras

        layers = keras.layers
        sequence = RNG.standard_normal((2, 5, 4)).astype("float32")
        image = RNG.standard_normal((2, 8, 8, 3)).astype("float32")
        cases: list[tuple[Any, Any]] = [
            *((make(3), sequence) for make in (layers.LSTM, layers.GRU, layers.SimpleRNN, layers.Dense)),
            *((make(4, 3), image) for make in (layers.Conv2D, layers.Conv2DTranspose, layers.SeparableConv2D)),
            (layers.Bidirectional(layers.LSTM(3)), sequence),
            (layers.Embedding(5, 3, mask_zero=True), np.arange(10, dtype="int32").reshape(2, 5) % 5),
            (layers.LayerNormalization(), sequence),
            (layers.Dropout(0.5), sequence),
            (layers.Resizing(4, 4), image),
            (layers.GlobalAveragePooling2D(), image),
        ]
        for layer, a in cases:
            ds.place(layer, GPU)
            y = layer(ds.from_numpy(a, GPU))
            assert ds.device_of(y) is GPU, layer
            if layer.weights:
                assert self.devices(layer) == {GPU}, layer
        attention = ds.place(layers.MultiHeadAttention(2, 4), GPU)
        x = ds.from_numpy(sequence, GPU)
        assert ds.device_of(attention(x, x)) is GPU
        assert self.devices(attention) == {GPU}

    # ------------------------------------------------------------------ what is moved
    def test_variables_stay_themselves(self) -> None:
        model = self.net()
        model.fit(X, Y, verbose=0)
        held = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
        ds.place(model, GPU)
        now = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
        assert all(a is b for a, b in zip(held, now, strict=True))
        assert self.devices(model) == {GPU}
        assert len(ds.placement_of(model)) == len(held)

    def test_names_are_the_same_on_every_framework(self) -> None:
        self.net()  # Keras continues the numbering of layers in a second model
        found = list(ds.placement_of(self.net(compile=False)))
        assert found == [
            *("dense.kernel", "dense.bias", "batch_normalization.gamma", "batch_normalization.beta"),
            *("batch_normalization.moving_mean", "batch_normalization.moving_variance"),
            *("dropout.seed_generator_state", "dense_1.kernel", "dense_1.bias"),
        ]

    # ------------------------------------------------------------------ variables made after the move
    @pytest.mark.parametrize("then", ["called", "fitted"])
    def test_a_layer_added_to_a_placed_model(self, then: str) -> None:
        import keras

        model = self.net()
        ds.place(model, GPU)
        model.add(keras.layers.Dense(3, name="added"))
        model.compile(keras.optimizers.SGD(0.01), "mse")
        UNBUILT_THEN[then](model)
        assert "added.kernel" in ds.placement_of(model)
        assert self.devices(model) == {GPU}

    def test_the_weights_of_lora(self) -> None:
        model = self.net()
        ds.place(model, GPU)
        model.layers[0].enable_lora(2)
        assert self.devices(model) == {GPU}
        assert ds.device_of(model(ds.from_numpy(X, GPU))) is GPU
        model.compile("sgd", "mse")
        model.fit(X, Y, verbose=0)
        assert self.devices(model) == {GPU}

    @pytest.mark.parametrize("name", ["F1Score", "R2Score"])
    def test_a_metric_that_makes_its_variables_with_its_first_values(self, name: str) -> None:
        import keras

        metric = ds.place(getattr(keras.metrics, name)(), GPU)
        metric.update_state(ds.from_numpy((Y > 0).astype("float32"), GPU), ds.from_numpy(abs(Y) / 9, GPU))
        assert self.devices(metric) == {GPU}
        metric.reset_state()
        assert self.devices(metric) == {GPU}

    def test_a_metric_moves_by_itself(self) -> None:
        import keras

        metric = ds.place(keras.metrics.AUC(), GPU)
        metric.update_state(ds.from_numpy((Y > 0).astype("float32"), GPU), ds.from_numpy(abs(Y) / 9, GPU))
        assert self.devices(metric) == {GPU}
        assert 0 <= float(metric.result()) <= 1

    def test_a_variable_moves_and_stays_itself(self) -> None:
        import keras

        variable = keras.Variable(X)
        assert ds.place({"w": variable}, GPU)["w"] is variable
        assert self.devices(variable) == {GPU}
        assert ds.device_of(variable.value) is GPU
        assert np.array_equal(keras.ops.convert_to_numpy(variable), X)

    def test_a_variable_is_asked_and_copied_as_a_tensor(self) -> None:
        import keras

        variable = keras.Variable(X, trainable=False, name="table")
        if self.name == "torch":
            trained = keras.Variable(X)
            trained.value.sum().backward()  # so that it has a gradient, too
            assert ds.device_of(ds.place(trained, GPU)) is GPU
        assert ds.device_of(variable) is ds.cpu()
        ds.place(variable, GPU)
        assert ds.device_of(variable) is GPU
        assert np.array_equal(ds.to_numpy(variable), X)
        assert np.array_equal(ds.convert(variable, "numpy", "cpu"), X)
        assert ds.device_of(ds.zeros_like(variable)) is GPU
        for made, place in (
            (ds.copy(variable, "gpu:0"), "gpu:0"),
            (ds.place({"w": variable}, GPU, copy=True)["w"], GPU),
            (ds.broadcast(variable, ["gpu:0"])[0], "gpu:0"),
        ):
            assert made is not variable
            assert isinstance(made, keras.Variable)
            assert (made.name, made.trainable) == ("table", False)
            assert ds.device_of(made) is ds.device(place)
            assert np.array_equal(ds.to_numpy(made), X)
            made.assign(X + 1)
            assert ds.device_of(made) is ds.device(place)
        assert np.array_equal(ds.to_numpy(variable), X)

    def test_an_error_inside_a_layer_keeps_its_hint(self) -> None:
        model = ds.place(self.net(compile=False), GPU)
        with pytest.raises(ds.DeviceMismatchError, match=r"when calling Dense\.call") as caught:
            model(ds.from_numpy(X, "gpu:0"))
        assert "\n\nHint: move one of them to the other's device: ds.place(x, ds.device_of(y))" in str(caught.value)
        assert caught.value.hint == "move one of them to the other's device: ds.place(x, ds.device_of(y))"

    def test_what_holds_several_tensors_is_no_tensor(self) -> None:
        model = self.net()
        with pytest.raises(ds.NotATensorError, match=r"Hint: ds.placement_of\(x\) shows where"):
            ds.device_of(model)
        with pytest.raises(ds.ArgumentError, match=r"part\.value for part in parts"):
            ds.gather([model.variables[0], model.variables[0]], "gpu:0")

    # ------------------------------------------------------------------ training
    def test_training_goes_on_with_fit(self) -> None:
        moved, stayed = self.net(), self.net()
        stayed.set_weights(moved.get_weights())
        results = []
        for model, journey in ((stayed, ["cpu"] * 3), (moved, ["gpu:1", "cpu", "gpu:0"])):
            for place in journey:
                ds.place(model, place)
                model.fit(X, Y, epochs=2, batch_size=4, shuffle=False, verbose=0, validation_data=(X, Y))
                assert self.devices(model) == {ds.device(place)}
            results.append([*model.get_weights(), model.evaluate(X, Y, verbose=0), model.predict(X, verbose=0)])
        for a, b in zip(*results, strict=True):
            assert np.array_equal(a, b)

    def test_fit_inside_a_scope_trains_there(self) -> None:
        """`fit` shuffles its batches, for which PyTorch uses a generator on the host."""
        with ds.on(GPU):
            model = self.net(build=False)
            model.fit(X, Y, epochs=2, batch_size=5, verbose=0, validation_data=(X, Y))
            assert model.predict(X, verbose=0).shape == Y.shape
        assert self.devices(model) == {GPU}

    def test_what_a_normalization_computes_with_follows(self, tmp_path: Path) -> None:
        import keras

        adapted = keras.layers.Normalization()
        adapted.adapt(3 * X + 1)
        expected = ds.to_numpy(adapted(ds.from_numpy(X)))
        assert abs(expected - X).max() > 0.1
        ds.place(adapted, GPU)
        y = adapted(ds.from_numpy(X, GPU))
        assert ds.device_of(y) is GPU
        assert np.allclose(ds.to_numpy(y), expected, atol=1e-6)
        ds.save(adapted, tmp_path / "adapted")
        other = keras.layers.Normalization()
        other.build((None, 4))
        ds.load(tmp_path / "adapted", into=other)
        assert np.allclose(ds.to_numpy(other(ds.from_numpy(X))), expected, atol=1e-6)

    def test_a_model_moves_in_the_middle_of_fit(self) -> None:
        """During `fit`, Keras on JAX takes the arrays out of the variables."""
        import keras

        class Move(keras.callbacks.Callback):
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                ds.place(self.model, "gpu:1" if batch % 2 else "gpu:0")

        moved, stayed = self.net(), self.net()
        stayed.set_weights(moved.get_weights())
        stayed.fit(X, Y, batch_size=3, epochs=2, shuffle=False, verbose=0)
        moved.fit(X, Y, batch_size=3, epochs=2, shuffle=False, verbose=0, callbacks=[Move()])
        assert self.devices(moved) == {GPU}
        assert all(np.array_equal(a, b) for a, b in zip(moved.get_weights(), stayed.get_weights(), strict=True))

    @pytest.mark.parametrize("then", UNBUILT_THEN)
    def test_an_unbuilt_model_is_built_where_it_was_placed(self, then: str) -> None:
        model = ds.place(self.net(build=False), GPU)
        assert ds.placement_of(model).devices <= {GPU}
        UNBUILT_THEN[then](model)
        assert self.devices(model) == {GPU}

    def test_an_unbuilt_optimizer_follows(self) -> None:
        import keras

        model, optimizer = self.net(compile=False), keras.optimizers.Adam(0.01)
        ds.place([model, optimizer], GPU)
        optimizer.build(model.trainable_variables)
        assert self.devices([model, optimizer]) == {GPU}

    def test_what_compile_gives_later_goes_along(self) -> None:
        import keras

        model = ds.place(self.net(compile=False), GPU)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=[keras.metrics.MeanSquaredError()])
        model.fit(X, Y, verbose=0)
        assert self.devices(model) == {GPU}

    def test_weights_set_from_arrays_stay(self) -> None:
        model = ds.place(self.net(), GPU)
        model.set_weights([np.zeros_like(each) for each in model.get_weights()])
        model.reset_metrics()
        assert self.devices(model) == {GPU}
        assert not np.any(ds.to_numpy(model(ds.from_numpy(X, GPU))))

    def test_a_model_with_a_call_of_its_own(self) -> None:
        import keras

        class Net(keras.Model):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = keras.layers.Dense(4), keras.layers.Dense(3)
                self.scale = self.add_weight(shape=(4,), initializer="ones")

            def call(self, x: Any) -> Any:
                return self.second(keras.ops.relu(self.first(x)) * self.scale + keras.ops.arange(4, dtype="float32"))

        model = ds.place(Net(), GPU)
        assert ds.device_of(model(ds.from_numpy(X, GPU))) is GPU
        model.compile("sgd", "mse")
        model.fit(X, Y, verbose=0)
        assert self.devices(model) == {GPU}

    # ------------------------------------------------------------------ copies and files
    def test_replicas_are_independent(self) -> None:
        model = self.net(compile=False)
        twins = ds.replicate(model, ["gpu:0", "gpu:1"])
        for twin, place in zip(twins, ("gpu:0", "gpu:1"), strict=True):
            assert self.devices(twin) == {ds.device(place)}
            y = twin(ds.from_numpy(X, place))
            assert ds.device_of(y) is ds.device(place)
            assert np.allclose(ds.to_numpy(y), ds.to_numpy(model(ds.from_numpy(X))), atol=1e-6)

    def test_a_checkpoint_goes_on(self, tmp_path: Path) -> None:
        first = ds.place(self.net(), GPU)
        first.fit(X, Y, shuffle=False, verbose=0)
        ds.save(first, tmp_path / "run.safetensors")
        second = self.net()
        assert ds.load(tmp_path / "run.safetensors", "gpu:0", into=second) is second
        assert self.devices(second) == {ds.gpu(0)}
        for model in (first, second):
            model.fit(X, Y, shuffle=False, verbose=0)
        assert all(np.array_equal(a, b) for a, b in zip(first.get_weights(), second.get_weights(), strict=True))

    def test_an_unbuilt_model_is_built_for_a_file_that_fits(self, tmp_path: Path) -> None:
        import keras

        saved, layers = self.net(compile=False), keras.layers
        ds.save(saved, tmp_path / "fits")
        unbuilt = ds.place(self.net(build=False, compile=False), GPU)
        ds.load(tmp_path / "fits", into=unbuilt)
        assert self.devices(unbuilt) == {GPU}
        assert all(np.array_equal(a, b) for a, b in zip(saved.get_weights(), unbuilt.get_weights(), strict=True))

        other = keras.Sequential([layers.Dense(8), layers.Dense(3)])
        with pytest.raises(ds.CheckpointError, match="does not fit the Sequential"):
            ds.load(tmp_path / "fits", into=other)
        assert not other.built
        assert not other.layers[0].built
        assert not other.weights
        x = np.ones((2, 7), "float32")  # not the shape of the file
        assert tuple(other(x).shape) == (2, 3)
        assert len(other.trainable_variables) == 4

    # ------------------------------------------------------------------ importing
    @pytest.mark.parametrize("first", ["keras", "devshim"])
    def test_keras_on_one_framework_imports_no_other(self, first: str) -> None:
        code = f"""
import sys, os
os.environ["KERAS_BACKEND"] = {self.name!r}
sys.modules["tensorflow"] = None  # an import of it fails
if {first!r} == "keras":
    import keras
import devshim as ds
ds.use({self.name!r})
ds.simulate(2)
import keras, numpy as np
x = ds.from_numpy(np.ones((2, 4), "float32"), "gpu:1")
assert ds.device_of(keras.ops.sin(x)) is ds.gpu(1)
model = ds.place(keras.Sequential([keras.layers.Dense(3)]), "gpu:1")
assert ds.device_of(model(x)) is ds.gpu(1)
assert ds.placement_of(model).devices == {{ds.gpu(1)}}
"""
        run_program(code)
