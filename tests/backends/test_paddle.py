"""The conformance kit on PaddlePaddle."""

from __future__ import annotations

import warnings
from typing import Any

import devshim as ds
from devshim.testing import Conformance


class TestPaddle(Conformance):
    backend = "paddle"

    def gradient(self, fn: Any, x: Any) -> Any:
        leaf = self.trainable(x)
        y = fn(leaf)
        (y * y).sum().backward()
        return leaf.grad

    def compiled(self, fn: Any) -> Any:
        import paddle

        return paddle.jit.to_static(fn)

    def trainable(self, x: Any) -> Any:
        leaf = x.detach().clone()
        leaf.stop_gradient = False
        return leaf

    def is_trainable(self, x: Any) -> bool:
        return not x.stop_gradient

    def native_zeros(self) -> Any:
        import paddle

        return paddle.zeros([2, 2])

    def model(self) -> Any:
        import paddle

        return paddle.nn.Linear(2, 2)

    def train(self, device: Any, inputs: Any, labels: Any) -> list[Any]:
        import paddle
        from paddle import nn

        ds.random.seed(0)  # dropout draws with the host's kernel, and so with its generator, wherever it is
        with ds.on(device):
            net = nn.Sequential(
                nn.Conv2D(1, 4, 3), nn.BatchNorm2D(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 4)
            )
            optimizer = paddle.optimizer.Adam(0.01, parameters=net.parameters())
        x, y = ds.from_numpy(inputs, device), ds.from_numpy(labels, device)
        with warnings.catch_warnings():  # every BatchNorm of Paddle's warns that it tracks what it is there to track
            warnings.filterwarnings("ignore", "When training, we now always track", UserWarning)
            for _ in range(3):
                paddle.nn.functional.cross_entropy(net(x), y).backward()
                optimizer.step()
                optimizer.clear_grad()
        assert {ds.device_of(weight) for weight in net.parameters()} == {device}
        return [ds.to_numpy(x) for x in net.state_dict().values()]

    def global_state(self) -> object:
        import paddle

        modes = paddle.is_grad_enabled(), paddle.in_dynamic_mode()
        return paddle.get_default_dtype(), paddle.device.get_device(), modes
