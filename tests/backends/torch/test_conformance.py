"""The conformance kit on PyTorch."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import numpy as np

import devshim as ds
from devshim.testing import Conformance
from devshim.testing.behaviours.compiled_calls import EFFECTS


class TestTorch(Conformance):
    backend = "torch"

    def mixing_error(self) -> type[Exception]:
        return RuntimeError

    def native_gpus(self) -> Any:
        import torch

        from devshim.testing.behaviours.native_names import NativeGpus

        return NativeGpus(
            count=lambda: torch.cuda.device_count(),  # looked up at each call: native names replace it
            ones=lambda index: torch.ones(3, 4, device=f"cuda:{index}"),
            moved=lambda x, index: x.cuda(index),
            name=lambda x: str(x.device),
            names=("cuda:0", "cuda:1"),
            packages=("torch",),
        )

    def gradient(self, fn: Any, x: Any) -> Any:
        leaf = x.detach().clone().requires_grad_()
        y = fn(leaf)
        (y * y).sum().backward()
        return leaf.grad

    def compiled(self, fn: Any) -> Any:
        import torch

        torch._dynamo.reset()
        return torch.compile(fn, fullgraph=True, backend="eager")

    _once = ("all_reduce_", "data_parallel", "parallel", "shrink_batch", "using", *EFFECTS)
    compiler_refuses: ClassVar[Any] = {"fullgraph": {*_once, "from_numpy", "load", "random.Generator.normal"}}

    def compilers(self) -> Any:
        import torch

        def breaking(fn: Any) -> Any:
            torch._dynamo.reset()
            return torch.compile(fn, backend="eager")

        return {"fullgraph": (self.compiled, True), "breaking off": (breaking, False)}

    @property
    def compiler_fails(self) -> Any:  # type: ignore[override]
        """Dynamo enters no context manager that it has not seen being made, such as a `Device` or a `torch.device`.

        Before 2.13, it also fails on more of Python: on `id`, comprehensions, and NumPy.
        """
        import torch

        scopes = {"Device as a scope": torch._dynamo.exc.Unsupported}
        if torch.__version__ >= "2.13":
            return scopes
        calls = ("backends", "broadcast", "describe", "gather", "MetricLog.flush", "placement_of", "split", "to_numpy")
        return {**scopes, **dict.fromkeys(calls, torch._dynamo.exc.TorchDynamoException)}

    def trainable(self, x: Any) -> Any:
        return x.detach().clone().requires_grad_()

    def is_trainable(self, x: Any) -> bool:
        return bool(x.requires_grad)

    def containers(self, x: Any) -> Any:
        import torch
        from torch.nn.utils.rnn import PackedSequence

        order = ds.place(torch.arange(3), ds.device_of(x))
        packed = PackedSequence(x, torch.tensor([3]), order, order)
        assert packed.batch_sizes.is_cpu
        return {
            "class": (_registered()(x, "note"), lambda t: t.x),
            "keyed": (_keyed()(x, "note"), lambda t: t.x),
            "dataclass": (_dataclass()(x, "note"), lambda t: t.x if t.note == "note" else None),
            "packed": (packed, lambda t: t.data),
        }

    def native_zeros(self) -> Any:
        import torch

        return torch.zeros(2, 2)

    def loaders(self, values: np.ndarray) -> dict[str, Any]:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        rows = TensorDataset(torch.from_numpy(values.copy()))
        return {
            "plain": DataLoader(rows, 3),
            "workers": DataLoader(rows, 3, num_workers=2, multiprocessing_context="fork"),
            "pinned": DataLoader(rows, 3, pin_memory=torch.cuda.is_available() and not self.adapter.simulated),
        }

    def model(self) -> Any:
        import torch
        from torch import nn

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    def unbuilt_model(self) -> Any:
        from torch import nn

        return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))

    def tied_model(self) -> Any:
        from torch import nn

        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.BatchNorm1d(4))
        model[2].weight = model[0].weight
        return model

    def optimizer(self, model: Any) -> Any:
        import torch

        return torch.optim.Adam(model.parameters(), lr=0.05)

    def optimizers(self) -> dict[str, Any]:
        """Return every class in torch.optim except SparseAdam: see test_models_optimizers.py."""
        import inspect

        import torch

        made: dict[str, Any] = {}
        for name, cls in vars(torch.optim).items():
            if not inspect.isclass(cls) or cls in (torch.optim.Optimizer, torch.optim.SparseAdam):
                continue
            options = inspect.signature(cls).parameters
            # These two round differently, and by default PyTorch chooses by the device.
            single = {"foreach": False} if "foreach" in options else {}
            made[name] = _made(cls, **single)
            for more in ("foreach", "fused", "amsgrad", "nesterov", "centered", "decoupled_weight_decay"):
                if more in options:
                    made[f"{name}-{more}"] = _made(cls, **{**single, more: True})
        return made

    def train_step(self, model: Any, optimizer: Any, x: Any, y: Any, between: Any) -> None:
        import torch

        def loss() -> Any:
            there = model[0].weight.device
            optimizer.zero_grad()
            lost = torch.nn.functional.mse_loss(model(x.to(there)), y.to(model[-1].weight.device))
            lost.backward()
            return lost

        loss()
        between()
        optimizer.step(loss) if isinstance(optimizer, torch.optim.LBFGS) else optimizer.step()

    def global_state(self) -> object:
        import torch

        flags = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_num_threads()
        return torch.get_default_dtype(), torch.get_default_device(), flags


def _made(cls: Any, **options: Any) -> Any:
    """Return a factory of an optimizer of this class, with momentum, weight decay and iterations if it has them."""
    import inspect

    known = inspect.signature(cls).parameters
    # After the 20 iterations of LBFGS's default, one rounding of the inputs changes a weight by 1.5e-3.
    chosen = {"momentum": 0.9, "weight_decay": 0.01, "max_iter": 4}
    more = {name: value for name, value in chosen.items() if name in known}

    def make(model: Any) -> Any:
        # Muon is only for matrices.
        parameters = [p for p in model.parameters() if cls.__name__ != "Muon" or p.dim() == 2]
        return cls(parameters, lr=0.05, **more, **options)

    return make


class Pair:
    def __init__(self, x: Any, note: str) -> None:
        self.x, self.note = x, note


class Keyed(Pair):
    pass


@dataclasses.dataclass
class Data:
    x: Any
    note: str


@functools.cache
def _registered() -> Any:
    """Return a class registered with functions."""
    from torch.utils import _pytree

    _pytree.register_pytree_node(Pair, lambda node: ([node.x], node.note), lambda xs, note: Pair(*xs, note))
    return Pair


@functools.cache
def _keyed() -> Any:
    """Return a class registered with the names of its children."""
    from torch.utils import _pytree

    _pytree.register_pytree_node(
        Keyed,
        lambda node: ([node.x], node.note),
        lambda xs, note: Keyed(*xs, note),
        flatten_with_keys_fn=lambda node: ([(_pytree.GetAttrKey("x"), node.x)], node.note),
    )
    return Keyed


@functools.cache
def _dataclass() -> Any:
    """Return a dataclass, with one field that is not a child."""
    from torch.utils import _pytree

    _pytree.register_dataclass(Data, field_names=["x"], drop_field_names=["note"])
    return Data
