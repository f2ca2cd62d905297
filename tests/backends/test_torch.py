"""The conformance kit on PyTorch."""

from __future__ import annotations

from typing import Any

from devshim.testing import Conformance


class TestTorch(Conformance):
    backend = "torch"

    def gradient(self, fn: Any, x: Any) -> Any:
        leaf = x.detach().clone().requires_grad_()
        y = fn(leaf)
        (y * y).sum().backward()
        return leaf.grad

    def compiled(self, fn: Any) -> Any:
        import torch

        torch._dynamo.reset()
        return torch.compile(fn, fullgraph=True, backend="eager")

    def trainable(self, x: Any) -> Any:
        return x.detach().clone().requires_grad_()

    def is_trainable(self, x: Any) -> bool:
        return bool(x.requires_grad)

    def native_zeros(self) -> Any:
        import torch

        return torch.zeros(2, 2)

    def model(self) -> Any:
        import torch

        return torch.nn.Linear(2, 2)

    def global_state(self) -> object:
        import torch

        flags = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads()
        return torch.get_default_dtype(), torch.get_default_device(), flags
