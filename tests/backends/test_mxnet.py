"""The conformance kit on MXNet, 1.9 and 2.0."""

from __future__ import annotations

from typing import Any

import numpy as np

import devshim as ds
from devshim.testing import Conformance


class TestMxnet(Conformance):
    backend = "mxnet"

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

        class Block(mx.gluon.HybridBlock):  # type: ignore[misc, name-defined]
            def forward(self, x: Any) -> Any:
                return fn(x)

        block = Block()
        block.hybridize()
        return block

    def native_zeros(self) -> Any:
        return ds.framework("mxnet").np.zeros((2, 2))

    def model(self) -> Any:
        return ds.framework("mxnet").gluon.nn.Dense(2)

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
        net(x)  # the layers learn their shapes
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
        """An array of the interface that Gluon expects at present: 1.9 starts with the older one."""
        return x if ds.framework("mxnet").util.is_np_array() else x.as_nd_ndarray()
