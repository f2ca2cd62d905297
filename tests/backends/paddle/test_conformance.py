"""The conformance kit on PaddlePaddle."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pytest

import devshim as ds
from devshim.testing import Conformance
from devshim.testing.behaviours.compiled_calls import DRAWN, EFFECTS, MADE_ON_A_DEVICE
from devshim.testing.behaviours.native_names import NativeGpus

pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track")  # of BatchNorm, in threads


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

    _once = ("all_reduce_", "data_parallel", "load", "parallel", "shrink_batch", "value_and_grad", *DRAWN, *EFFECTS)
    _of_gpus = ("Device as a scope", "asarray", "broadcast", "convert", "copy", "device_of", "gather", "on", "place")
    _of_gpus = (*_of_gpus, "placement_of", "require_same_device", "run", "same_device", "split", *MADE_ON_A_DEVICE)
    compiler_refuses: ClassVar[Any] = {"full_graph": {*_once, *_of_gpus}}

    def compilers(self) -> Any:
        import paddle

        def whole(fn: Any) -> Any:
            as_it_is = paddle.jit.not_to_static(fn)

            def call(x: Any) -> Any:
                return as_it_is(x)

            return paddle.jit.to_static(call, full_graph=True)

        return {"symbolic": (self.compiled, False), "full_graph": (whole, True)}

    def trainable(self, x: Any) -> Any:
        leaf = x.detach().clone()
        leaf.stop_gradient = False
        return leaf

    def is_trainable(self, x: Any) -> bool:
        return not x.stop_gradient

    def native_zeros(self) -> Any:
        import paddle

        return paddle.zeros([2, 2])

    def native_gpus(self) -> NativeGpus:
        paddle = ds.framework("paddle")
        return NativeGpus(
            count=lambda: paddle.device.cuda.device_count(),
            ones=lambda i: paddle.to_tensor(np.ones((3, 4), "float32"), place=paddle.CUDAPlace(i)),
            moved=lambda x, i: x.cuda(i),
            name=lambda x: str(x.place),
            names=("Place(gpu:0)", "Place(gpu:1)"),
            packages=("paddle",),
            failure=OSError,
        )

    def loaders(self, values: np.ndarray) -> dict[str, Any]:
        import paddle

        class Rows(paddle.io.Dataset):  # type: ignore[misc]  # Paddle is Any
            def __getitem__(self, index: int) -> Any:
                return values[index]

            def __len__(self) -> int:
                return len(values)

        host = paddle.CPUPlace()
        return {
            "plain": paddle.io.DataLoader(Rows(), batch_size=3, places=host),
            "workers": paddle.io.DataLoader(Rows(), batch_size=3, places=host, num_workers=2),
        }

    def model(self) -> Any:
        from paddle import nn

        with ds.on("cpu"), _drawn():
            return nn.Sequential(nn.Linear(4, 8, bias_attr=False), nn.BatchNorm1D(8), nn.ReLU(), nn.Linear(8, 3))

    def unbuilt_model(self) -> Any:
        import paddle

        with paddle.LazyGuard():
            return self.model()

    def tied_model(self) -> Any:
        from paddle import nn

        with ds.on("cpu"):
            model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.BatchNorm1D(4))
        model[2].weight = model[0].weight
        return model

    def forward(self, model: Any, x: Any) -> Any:
        for parameter in model.parameters():
            if not parameter._is_initialized():  # made under LazyGuard
                parameter.initialize()
        with _quiet():
            return model(x)

    def optimizer(self, model: Any) -> Any:
        import paddle

        return paddle.optimizer.Adam(0.05, parameters=model.parameters())

    def optimizers(self) -> dict[str, Any]:
        """Return every class in paddle.optimizer."""
        import inspect

        import paddle

        made: dict[str, Any] = {}
        for name, cls in vars(paddle.optimizer).items():
            if not inspect.isclass(cls) or cls is paddle.optimizer.Optimizer:
                continue
            options = inspect.signature(cls).parameters
            made[name] = _made(cls)
            for more in ("amsgrad", "use_nesterov", "centered", "use_multi_tensor", "lazy_mode", "always_adapt"):
                if more in options:
                    made[f"{name}-{more}"] = _made(cls, **{more: True})
        return made

    def train_step(self, model: Any, optimizer: Any, x: Any, y: Any, between: Any) -> None:
        import paddle

        def loss() -> Any:
            optimizer.clear_grad()
            made = self.forward(model, ds.place(x, ds.device_of(model[0].weight)))
            lost = paddle.nn.functional.mse_loss(made, ds.place(y, ds.device_of(made)))
            lost.backward()
            return lost

        loss()
        between()
        with _quiet():
            optimizer.step(loss) if isinstance(optimizer, paddle.optimizer.LBFGS) else optimizer.step()

    def train(self, device: Any, inputs: Any, labels: Any) -> list[Any]:
        import paddle
        from paddle import nn

        ds.random.seed(0)  # dropout uses the host's kernel, and so its generator, on every device
        with ds.on(device):
            net = nn.Sequential(
                nn.Conv2D(1, 4, 3), nn.BatchNorm2D(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 4)
            )
            optimizer = paddle.optimizer.Adam(0.01, parameters=net.parameters())
        x, y = ds.from_numpy(inputs, device), ds.from_numpy(labels, device)
        with _quiet():
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


@contextmanager
def _drawn() -> Iterator[None]:
    """Draw the same first weights each time, and restore Paddle's generator."""
    import paddle

    generator = paddle.base.core.default_cpu_generator()
    before = generator.get_state()
    paddle.seed(0)
    try:
        yield
    finally:
        generator.set_state(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore two warnings: every BatchNorm of Paddle warns about tracking statistics, and LBFGS about its own code."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "To copy construct from a tensor", UserWarning)
        warnings.filterwarnings("ignore", "Op `.*` is executed through `append_op`", DeprecationWarning)  # Adagrad, 2.6
        warnings.filterwarnings("ignore", "When training, we now always track", UserWarning)
        yield


def _made(cls: Any, **options: Any) -> Any:
    """Return a factory of an optimizer of this class, with momentum or weight decay if it has them."""
    import inspect

    known = inspect.signature(cls).parameters
    given = {"momentum": 0.9, "weight_decay": 0.01, "max_iter": 4, "history_size": 3}
    more = {name: value for name, value in given.items() if name in known}
    return lambda model: cls(learning_rate=0.05, parameters=model.parameters(), **more, **options)
