"""The conformance kit on MXNet, 1.9 and 2.0."""

from __future__ import annotations

from typing import Any

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
