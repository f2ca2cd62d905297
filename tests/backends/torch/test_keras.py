"""Tests of Keras 3 with its PyTorch backend: its models on GPUs, and behaviour that only PyTorch has."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from keras_cases import GPU, KerasCases, X, Y
from keras_kit import filtered, keras_on

import devshim as ds

keras_on("torch")

keras = pytest.importorskip("keras")

pytestmark = filtered()


class TestKerasOnTorch(KerasCases):
    name = "torch"


@pytest.fixture(autouse=True)
def _two(two_cards):
    keras.utils.set_random_seed(1)


def net():
    layers = keras.layers
    model = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dropout(0.0), layers.Dense(3)])
    model.build((None, 4))
    model.compile(keras.optimizers.Adam(0.01, global_clipnorm=0.5, weight_decay=0.01), "mse", metrics=["mae"])
    return model


@pytest.mark.parametrize("optimizer", ["adam", "nadam", "sgd", "rmsprop", "lion", "adafactor"])
def test_a_split_model_trains_like_one_on_a_single_gpu(optimizer):
    split, single = net(), net()
    split.set_weights(single.get_weights())
    for model in (split, single):
        model.compile(optimizer, "mse", metrics=["mae"])
    ds.place(split, ds.Placement({"dense": "gpu:0"}, default="gpu:1"))
    ds.place(single, GPU)
    for model in (split, single):
        model.fit(X, Y, epochs=3, shuffle=False, verbose=0)
    assert ds.placement_of(split).devices == {ds.gpu(0), GPU}
    assert ds.device_of(split(ds.from_numpy(X))) is GPU
    for a, b in zip(split.get_weights(), single.get_weights(), strict=True):
        assert np.allclose(a, b, atol=1e-6)


def test_a_model_placed_by_a_balanced_plan_computes():
    model = net()
    expected = ds.to_numpy(model(ds.from_numpy(X)))
    ds.place(model, ds.Placement.balanced(model, ["gpu:0", "gpu:1"], [1000, 1000]))
    assert ds.placement_of(model)["dense.kernel"] is ds.gpu(0)
    assert ds.placement_of(model)["dense_1.kernel"] is GPU
    assert np.allclose(ds.to_numpy(model(ds.from_numpy(X))), expected, atol=1e-6)
    model.fit(X, Y, verbose=0)


def test_a_layer_cannot_be_split():
    model = net()
    with pytest.raises(ds.UnsupportedError, match=r"the weights of dense \(Dense\) would be on gpu:0 and cpu"):
        ds.place(model, ds.Placement({"dense.kernel": "gpu:0"}, default="cpu"))
    assert ds.placement_of(model).devices == {ds.cpu()}


def test_tensors_on_two_gpus_are_refused():
    x, y = ds.from_numpy(X, "gpu:0"), ds.from_numpy(X, "gpu:1")
    with pytest.raises(RuntimeError, match="same device"):
        keras.ops.add(x, y)
    model = ds.place(net(), "gpu:1")
    for elsewhere in (x, ds.from_numpy(X)):
        with pytest.raises(RuntimeError, match="same device"):
            model(elsewhere)
        with pytest.raises(RuntimeError, match="same device"):
            keras.ops.add(y, elsewhere)
    assert ds.device_of(model(X)) is GPU


def test_keras_device_takes_precedence():
    x = ds.from_numpy(X, "gpu:0")
    with keras.device("gpu:1"):
        assert ds.device_of(keras.ops.sin(x)) is GPU
        assert ds.device_of(keras.ops.ones((2,))) is GPU
    with keras.device("cpu"):
        assert ds.device_of(keras.ops.sin(x)) is ds.cpu()


def test_gradients_move_with_their_variables():
    model = net()
    torch.mean(model(ds.from_numpy(X)) ** 2).backward()
    before = [variable.value.grad.numpy().copy() for variable in model.trainable_variables]
    ds.place(model, GPU)
    for variable, gradient in zip(model.trainable_variables, before, strict=True):
        assert ds.device_of(variable.value.grad) is GPU
        assert np.array_equal(ds.to_numpy(variable.value.grad), gradient)


def test_a_pytorch_module_in_a_keras_model_moves_with_its_buffers():
    inside = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5))
    model = keras.Sequential([keras.layers.TorchModuleWrapper(inside), keras.layers.Dense(3)])
    model.build((None, 4))
    ds.place(model, GPU)
    assert {str(x.device) for x in (*inside.parameters(), *inside.buffers())} == {"sim:1"}
    assert ds.device_of(model(ds.from_numpy(X, GPU))) is GPU
    assert "torch_module_wrapper.module.1.running_mean" in ds.placement_of(model)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # torch.compile's own
def test_a_compiled_model_continues_to_train_after_moves(monkeypatch):
    """Keras compiles with the default of `torch.compile`, which builds C++ code for a minute; another one is enough.

    On a simulated GPU PyTorch's compiler (inductor) generates no code, as for any other model.
    """
    compiled = []
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda fn: compiled.append(fn) or real(fn, backend="aot_eager"))
    model, stayed = net(), net()
    stayed.set_weights(model.get_weights())
    ds.place(ds.place(model, GPU), "cpu")
    for each in (model, stayed):
        each.compile("sgd", "mse", jit_compile=True)
        each.fit(X, Y, shuffle=False, verbose=0)
    assert compiled
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(model.get_weights(), stayed.get_weights(), strict=True))


def test_a_scope_of_the_host_applies_where_keras_prefers_a_gpu(monkeypatch):
    """If CUDA is available, Keras creates everything on the first GPU, although PyTorch's default is the CPU."""
    from keras.src.backend.torch import core

    monkeypatch.setattr(core, "DEFAULT_DEVICE", "sim:1")
    assert ds.device_of(keras.ops.ones(3)) is ds.gpu(1)
    with ds.on("cpu"):
        assert ds.device_of(keras.ops.ones(3)) is ds.cpu()
        assert ds.placement_of(net()).devices == {ds.cpu()}
        with ds.on("gpu:0"):
            assert ds.device_of(keras.ops.ones(3)) is ds.gpu(0)
    assert ds.device_of(keras.ops.ones(3)) is ds.gpu(1)
