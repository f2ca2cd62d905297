"""The conformance kit on PaddlePaddle."""

from __future__ import annotations

from typing import Any

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

    def global_state(self) -> object:
        import paddle

        modes = paddle.is_grad_enabled(), paddle.in_dynamic_mode()
        return paddle.get_default_dtype(), paddle.device.get_device(), modes
