"""Equal models of each framework, by name: how to make one, and its output for an input in PyTorch's layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import devshim as ds

FRAMEWORKS = ("torch", "tensorflow", "mxnet", "paddle")
INPUTS: dict[str, Any] = {
    "mlp with batch norm": np.random.default_rng(1).normal(size=(4, 6)).astype("f4"),
    "convolutions, flattened": np.random.default_rng(2).normal(size=(2, 3, 9, 12)).astype("f4"),
    "generator": np.random.default_rng(3).normal(size=(2, 5)).astype("f4"),
    "embedding and lstm": np.random.default_rng(4).integers(0, 11, size=(3, 7)),
    "grus in both directions": np.random.default_rng(5).normal(size=(2, 5, 4)).astype("f4"),
    "layer norm and rnn": np.random.default_rng(6).normal(size=(2, 5, 4)).astype("f4"),
    "group norm and depthwise": np.random.default_rng(7).normal(size=(2, 4, 6, 6)).astype("f4"),
}
NAMES = tuple(INPUTS)


def stir(backend: Any, model: Any) -> None:
    """Give a model's weights and statistics new values, all different, and all positive, as variances are."""
    rng = np.random.default_rng(8)
    for leaf in {id(leaf.owner): leaf for leaf in backend.leaves(model)}.values():
        x = leaf.read()
        if leaf.kind in ("parameter", "buffer") and backend.dtype_name(x) == "float32":  # not a count of batches
            values = rng.uniform(0.1, 0.6, size=backend.shape(x)).astype("f4")
            leaf.write(backend.from_numpy(values, backend.device_of(x), copy=True))


# ---------------------------------------------------------------------- PyTorch
def torch(name: str) -> Any:
    from torch import nn

    class Last(nn.Module):
        """The last step of a recurrent layer, or all of them."""

        def __init__(self, inner: Any, every: bool = False) -> None:
            super().__init__()
            self.inner, self.every = inner, every

        def forward(self, x: Any) -> Any:
            x = self.inner(x)[0]
            return x if self.every else x[:, -1]

    made = {
        "mlp with batch norm": lambda: [nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3, bias=False)],
        "convolutions, flattened": lambda: [
            *(
                nn.Conv2d(3, 4, 3),
                nn.ReLU(),
                nn.BatchNorm2d(4, eps=1e-3),
                nn.MaxPool2d(2),
                nn.Conv2d(4, 6, 2, groups=2),
            ),
            *(nn.Flatten(), nn.BatchNorm1d(48), nn.Linear(48, 5), nn.Sigmoid(), nn.Linear(5, 2)),
        ],
        "generator": lambda: [
            *(nn.Linear(5, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Unflatten(1, (4, 3, 2)), nn.BatchNorm2d(4)),
            nn.ConvTranspose2d(4, 3, 3, stride=2),
        ],
        "embedding and lstm": lambda: [nn.Embedding(11, 4), Last(nn.LSTM(4, 5, batch_first=True)), nn.Linear(5, 2)],
        "grus in both directions": lambda: [
            Last(nn.GRU(4, 3, 2, batch_first=True, bidirectional=True), every=True),
            nn.Linear(6, 2),
        ],
        "layer norm and rnn": lambda: [
            *(nn.Linear(4, 4), nn.LayerNorm(4), Last(nn.RNN(4, 3, batch_first=True)), nn.Linear(3, 2)),
        ],
        "group norm and depthwise": lambda: [
            *(nn.Conv2d(4, 8, 3, groups=4, bias=False), nn.GroupNorm(2, 8), nn.Conv2d(8, 4, 1), nn.Flatten()),
            nn.Linear(64, 2),
        ],
    }
    return nn.Sequential(*made[name]()).eval()


def of_torch(model: Any, x: np.ndarray) -> np.ndarray:
    import torch as framework

    with framework.no_grad():
        given = framework.from_numpy(x).to(next(model.parameters()).device)
        return model(given).cpu().numpy()


# ---------------------------------------------------------------------- Keras
def tensorflow(name: str) -> Any:
    import keras
    from keras import layers as kl

    eps = {"epsilon": 1e-5}
    made = {
        "mlp with batch norm": lambda: [
            *(kl.Input((6,)), kl.Dense(6), kl.BatchNormalization(**eps)),
            *(kl.ReLU(), kl.Dense(3, use_bias=False)),
        ],
        "convolutions, flattened": lambda: [
            *(kl.Input((9, 12, 3)), kl.Conv2D(4, 3, activation="relu"), kl.BatchNormalization(), kl.MaxPooling2D()),
            *(kl.Conv2D(6, 2, groups=2), kl.Flatten(), kl.BatchNormalization(**eps)),
            *(kl.Dense(5, activation="sigmoid"), kl.Dense(2)),
        ],
        "generator": lambda: [
            *(kl.Input((5,)), kl.Dense(24), kl.BatchNormalization(**eps), kl.ReLU(), kl.Reshape((3, 2, 4))),
            *(kl.BatchNormalization(**eps), kl.Conv2DTranspose(3, 3, strides=2)),
        ],
        "embedding and lstm": lambda: [kl.Input((7,)), kl.Embedding(11, 4), kl.LSTM(5), kl.Dense(2)],
        "grus in both directions": lambda: [
            kl.Input((5, 4)),
            *(kl.Bidirectional(kl.GRU(3, return_sequences=True)), kl.Bidirectional(kl.GRU(3, return_sequences=True))),
            kl.Dense(2),
        ],
        "layer norm and rnn": lambda: [
            *(kl.Input((5, 4)), kl.Dense(4), kl.LayerNormalization(**eps), kl.SimpleRNN(3), kl.Dense(2)),
        ],
        "group norm and depthwise": lambda: [
            *(kl.Input((6, 6, 4)), kl.DepthwiseConv2D(3, depth_multiplier=2, use_bias=False)),
            *(kl.GroupNormalization(2, **eps), kl.Conv2D(4, 1), kl.Flatten(), kl.Dense(2)),
        ],
    }
    return keras.Sequential(made[name]())


def of_tensorflow(model: Any, x: np.ndarray) -> np.ndarray:
    y = model(np.moveaxis(x, 1, -1) if x.ndim == 4 else x).numpy()
    return np.moveaxis(y, -1, 1) if y.ndim == 4 else y


# ---------------------------------------------------------------------- Gluon
def mxnet(name: str) -> Any:
    import mxnet as mx
    from mxnet.gluon import nn, rnn

    class Last(nn.HybridSequential):
        """The last step of a recurrent layer, or all of them."""

        def __init__(self, inner: Any, every: bool = False) -> None:
            super().__init__()
            self.add(inner)
            self.every = every

        def forward(self, x: Any) -> Any:
            x = self[0](x)
            return x if self.every else x[:, -1]

    class Unflatten(nn.HybridSequential):
        def forward(self, x: Any) -> Any:
            return x.reshape((-1, 4, 3, 2))

    def recurrent(kind: Any, *args: Any, every: bool = False, **kwargs: Any) -> Any:
        return Last(kind(*args, layout="NTC", **kwargs), every)

    made = {
        "mlp with batch norm": lambda: [
            *(nn.Dense(6), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(3, use_bias=False)),
        ],
        "convolutions, flattened": lambda: [
            *(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(epsilon=1e-3), nn.MaxPool2D()),
            *(nn.Conv2D(6, 2, groups=2), nn.Flatten(), nn.BatchNorm(), nn.Dense(5, activation="sigmoid"), nn.Dense(2)),
        ],
        "generator": lambda: [
            *(nn.Dense(24), nn.BatchNorm(), nn.Activation("relu"), Unflatten(), nn.BatchNorm()),
            nn.Conv2DTranspose(3, 3, strides=2),
        ],
        "embedding and lstm": lambda: [nn.Embedding(11, 4), recurrent(rnn.LSTM, 5), nn.Dense(2)],
        "grus in both directions": lambda: [
            recurrent(rnn.GRU, 3, 2, every=True, bidirectional=True),
            nn.Dense(2, flatten=False),
        ],
        "layer norm and rnn": lambda: [
            *(nn.Dense(4, flatten=False), nn.LayerNorm(), recurrent(rnn.RNN, 3, activation="tanh"), nn.Dense(2)),
        ],
        "group norm and depthwise": lambda: [
            *(nn.Conv2D(8, 3, groups=4, use_bias=False), nn.GroupNorm(2), nn.Conv2D(4, 1), nn.Dense(2)),
        ],
    }
    model = nn.HybridSequential()
    model.add(*made[name]())
    model.initialize()
    model(mx.np.array(INPUTS[name], dtype="float32"))
    return model


def of_mxnet(model: Any, x: np.ndarray) -> np.ndarray:
    there = next(iter(model.collect_params().values())).data()
    with ds.using("mxnet"):
        return model(ds.from_numpy(x.astype("f4"), ds.device_of(there))).asnumpy()


# ---------------------------------------------------------------------- PaddlePaddle
def paddle(name: str) -> Any:
    from paddle import nn

    class Last(nn.Layer):
        """The last step of a recurrent layer, or all of them."""

        def __init__(self, inner: Any, every: bool = False) -> None:
            super().__init__()
            self.inner, self.every = inner, every

        def forward(self, x: Any) -> Any:
            x = self.inner(x)[0]
            return x if self.every else x[:, -1]

    made = {
        "mlp with batch norm": lambda: [
            *(nn.Linear(6, 6), nn.BatchNorm1D(6), nn.ReLU(), nn.Linear(6, 3, bias_attr=False)),
        ],
        "convolutions, flattened": lambda: [
            *(nn.Conv2D(3, 4, 3), nn.ReLU(), nn.BatchNorm2D(4, epsilon=1e-3), nn.MaxPool2D(2)),
            *(nn.Conv2D(4, 6, 2, groups=2), nn.Flatten(), nn.BatchNorm1D(48), nn.Linear(48, 5), nn.Sigmoid()),
            nn.Linear(5, 2),
        ],
        "generator": lambda: [
            *(nn.Linear(5, 24), nn.BatchNorm1D(24), nn.ReLU(), nn.Unflatten(1, (4, 3, 2)), nn.BatchNorm2D(4)),
            nn.Conv2DTranspose(4, 3, 3, stride=2),
        ],
        "embedding and lstm": lambda: [nn.Embedding(11, 4), Last(nn.LSTM(4, 5)), nn.Linear(5, 2)],
        "grus in both directions": lambda: [Last(nn.GRU(4, 3, 2, direction="bidirect"), every=True), nn.Linear(6, 2)],
        "layer norm and rnn": lambda: [
            *(nn.Linear(4, 4), nn.LayerNorm(4), Last(nn.SimpleRNN(4, 3)), nn.Linear(3, 2)),
        ],
        "group norm and depthwise": lambda: [
            *(nn.Conv2D(4, 8, 3, groups=4, bias_attr=False), nn.GroupNorm(2, 8), nn.Conv2D(8, 4, 1), nn.Flatten()),
            nn.Linear(64, 2),
        ],
    }
    model = nn.Sequential(*made[name]())
    model.eval()
    return model


def of_paddle(model: Any, x: np.ndarray) -> np.ndarray:
    import paddle as framework

    with framework.no_grad():
        return model(framework.to_tensor(x, place=model.parameters()[0].place)).numpy()


MAKE: dict[str, Callable[[str], Any]] = {"torch": torch, "tensorflow": tensorflow, "mxnet": mxnet, "paddle": paddle}
GIVES: dict[str, Callable[[Any, np.ndarray], np.ndarray]] = {
    "torch": of_torch,
    "tensorflow": of_tensorflow,
    "mxnet": of_mxnet,
    "paddle": of_paddle,
}
