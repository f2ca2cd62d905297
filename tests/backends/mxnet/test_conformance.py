"""The conformance kit on MXNet, 1.9 and 2.0."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
import pytest

import devshim as ds
from devshim.testing import Conformance
from devshim.testing.behaviours.compiled_calls import DRAWN, EFFECTS, MADE
from devshim.testing.behaviours.native_names import NativeGpus
from devshim.testing.values import feature, hook

IS_2 = version("mxnet").startswith("2")


class TestMxnet(Conformance):
    backend = "mxnet"

    def mixing_error(self) -> Any:
        return ds.framework("mxnet").MXNetError

    def gradient(self, fn: Any, x: Any) -> Any:
        mx = ds.framework("mxnet")
        leaf = x.copy()
        leaf.attach_grad()
        with mx.autograd.record():
            y = fn(leaf)
            loss = (y * y).sum()
        loss.backward()
        return leaf.grad

    def compiled(self, fn: Any) -> Any:
        mx = ds.framework("mxnet")

        def forward(self: Any, x: Any) -> Any:
            return fn(x)

        def hybrid_forward(self: Any, F: Any, x: Any) -> Any:
            return fn(x)

        is_2 = hasattr(mx, "device")  # 1.9 compiles a block with symbols, but no block that defines `forward` itself
        methods = {"forward": forward} if is_2 else {"hybrid_forward": hybrid_forward}
        Block: Any = type("Block", (mx.gluon.HybridBlock,), methods)

        block = Block()
        block.hybridize()
        return block

    _moving = ("all_reduce_", "data_parallel", "from_numpy", "load", "parallel", "shrink_batch", "value_and_grad")
    _moving = (*_moving, "asarray like", "asarray of numbers", "random.Generator.normal", *EFFECTS)
    _of_symbols = () if IS_2 else ("dtype_of", "gather", "split", *MADE, *DRAWN)
    compiler_refuses: ClassVar[Any] = {"compiled": {*_moving, *_of_symbols}}

    @hook("compiled")
    def test_compiled_like_is_where_its_model_is(self, device: ds.Device) -> None:
        """With 1.9 it is refused: a symbol has neither a dtype nor a shape."""
        with nullcontext() if IS_2 else pytest.raises(ds.TracingError):
            super().test_compiled_like_is_where_its_model_is(device)

    @feature("namespace")
    @hook("compiled")
    def test_compiled_like_is_an_operand(self, device: ds.Device) -> None:
        """With 1.9 it is refused."""
        with nullcontext() if IS_2 else pytest.raises(ds.TracingError):
            super().test_compiled_like_is_an_operand(device)

    def native_zeros(self) -> Any:
        return ds.framework("mxnet").np.zeros((2, 2))

    def native_gpus(self) -> NativeGpus:
        mx = ds.framework("mxnet")
        return NativeGpus(
            count=mx.context.num_gpus,
            ones=lambda i: mx.np.ones((3, 4), ctx=mx.gpu(i)),
            moved=lambda x, i: x.copyto(mx.gpu(i)),
            name=lambda x: str(x.device if hasattr(mx, "Device") else x.ctx),
            names=("gpu(0)", "gpu(1)"),
            packages=("mxnet",),
            failure=mx.MXNetError,
        )

    def loaders(self, values: np.ndarray) -> dict[str, Any]:
        from mxnet.gluon.data import ArrayDataset, DataLoader

        return {"plain": DataLoader(ArrayDataset(values), 3), "pairs": DataLoader(ArrayDataset(values, values), 4)}

    def model(self) -> Any:
        nn = ds.framework("mxnet").gluon.nn
        return self.built(
            nn.Dense(8, in_units=4, use_bias=False),
            nn.BatchNorm(in_channels=8),
            nn.Activation("relu"),
            nn.Dense(3, in_units=8),
        )

    def unbuilt_model(self) -> Any:
        nn = ds.framework("mxnet").gluon.nn
        return chain(nn.Dense(8), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(3))

    def tied_model(self) -> Any:
        nn = ds.framework("mxnet").gluon.nn
        first = nn.Dense(4, in_units=4)
        if hasattr(first, "share_parameters"):  # 2.0
            net = self.built(first, nn.Activation("tanh"), nn.Dense(4, in_units=4), nn.BatchNorm(in_channels=4))
            net[2].share_parameters(first.collect_params())
            return net
        second = nn.Dense(4, in_units=4, params=first.params)
        return self.built(first, nn.Activation("tanh"), second, nn.BatchNorm(in_channels=4))

    def built(self, *layers: Any) -> Any:
        """Return a chain of layers whose shapes are known, always with the same weights."""
        net = chain(*layers)
        rng = np.random.default_rng(0)
        for parameter in dict.fromkeys(net._collect_params_with_prefix().values()):
            values = rng.standard_normal(parameter.shape).astype("float32") / 2
            if parameter.grad_req != "null":
                parameter.set_data(self.interface(ds.from_numpy(values)))
        return net

    def optimizer(self, model: Any) -> Any:
        return ds.framework("mxnet").gluon.Trainer(model.collect_params(), "adam", {"learning_rate": 0.05})

    def optimizers(self) -> dict[str, Any]:
        """Return every class that MXNet registers, except those in test_models_optimizers.py, which says why."""
        optimizer = ds.framework("mxnet").optimizer
        made: dict[str, Any] = {}
        for name in sorted(optimizer.Optimizer.opt_registry):
            if name in EXCLUDED:
                continue
            made[name] = trainer(name)
            made.update({f"{name}-{key}": trainer(name, **{key: value}) for key, value in FORMS.get(name, ())})
        return made

    def forward(self, model: Any, x: Any) -> Any:
        return model(self.interface(x))

    def train_step(self, model: Any, optimizer: Any, x: Any, y: Any, between: Any) -> None:
        mx = ds.framework("mxnet")
        with mx.autograd.record():
            loss = mx.gluon.loss.L2Loss()(self.forward(model, x), self.interface(y))
        loss.backward()
        between()
        optimizer.step(len(x))

    def global_state(self) -> object:
        mx = ds.framework("mxnet")
        current = mx.device.current_device if hasattr(mx, "device") else mx.context.current_context
        return str(current()), mx.autograd.is_recording(), mx.util.is_np_array(), mx.util.is_np_shape()

    def train(self, device: ds.Device, inputs: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
        mx = ds.framework("mxnet")
        where, native = "device" if hasattr(mx, "Device") else "ctx", ds.device(device).native("mxnet")
        mx.random.seed(3, native)  # with a device: the same numbers on each
        nn, net = mx.gluon.nn, mx.gluon.nn.HybridSequential()
        for layer in (
            *(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Dropout(0.5)),
            *(nn.Flatten(), nn.Dense(4)),
        ):
            net.add(layer)
        net.initialize(**{where: native})
        x, y = (self.interface(ds.from_numpy(a.astype("float32"), device)) for a in (inputs, labels))
        net(x)  # the layers infer their shapes
        rng = np.random.default_rng(1)
        for parameter in net.collect_params().values():
            parameter.set_data(self.interface(ds.from_numpy(rng.standard_normal(parameter.shape).astype("float32"))))
        trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        for _ in range(3):
            with mx.autograd.record():
                loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()(net(x), y)
            loss.backward()
            trainer.step(len(inputs))
        found = [parameter.data() for parameter in net.collect_params().values()]
        assert {ds.device_of(each) for each in [*found, loss]} == {device}
        return [each.asnumpy() for each in found]

    def interface(self, x: Any) -> Any:
        """Return an array of the interface that Gluon currently expects: 1.9 starts with the older one."""
        return x if ds.framework("mxnet").util.is_np_array() else x.as_nd_ndarray()

    def model_input(self, x: Any) -> Any:
        return self.interface(x)


def chain(*layers: Any) -> Any:
    """Return a chain of layers, initialized on the host."""
    net = ds.framework("mxnet").gluon.nn.HybridSequential()
    for layer in layers:
        net.add(layer)
    net.initialize()
    return net


EXCLUDED = frozenset({"sgld"})
"""It draws from the device's generator; see test_models_optimizers.py."""
SETTINGS: dict[str, dict[str, Any]] = {"adamax": {"wd": 0.01}}  # 1.9 divides 0 by 0 if a gradient has always been 0
FORMS = {
    "sgd": [("momentum", 0.9)],
    "nag": [("momentum", 0.9)],
    "rmsprop": [("centered", True)],
}
"""Optimizers that have more state with an option."""


def trainer(name: str, **options: Any) -> Any:
    """Return a factory of a trainer for a model's parameters."""

    def make(model: Any) -> Any:
        settings = {"learning_rate": 0.05, **SETTINGS.get(name, {}), **options}
        parameters = dict(model.collect_params().items())
        if name == "groupadagrad":  # only for matrices
            parameters = {key: each for key, each in parameters.items() if len(each.shape) == 2}
        return ds.framework("mxnet").gluon.Trainer(parameters, name, settings)

    return make
