"""Tests of programs that name no framework: networks written with the namespace, trained on two devices."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

IMAGES = np.random.default_rng(0).normal(size=(6, 8, 8, 1)).astype(np.float32)
LABELS = np.array([0, 2, 1, 1, 0, 2])
RATE = 0.1


def initial() -> dict[str, Any]:
    """Return the weights of a convolution with windows of 3 x 3, and of a dense layer."""
    rng = np.random.default_rng(1)
    shapes = {"kernel": (9, 4), "offset": (4,)}, ((36, 3), (3,))
    convolution = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes[0].items()}
    return {"convolution": convolution, "dense": tuple(rng.normal(0, 0.3, s).astype(np.float32) for s in shapes[1])}


def convolution(layer: Any, images: Tensor, xp: Any) -> Tensor:
    """Return the features of images, shape (rows, 36): windows, ReLU, and a max pool by reshape."""
    windows = [images[:, i : i + 6, j : j + 6, :] for i in range(3) for j in range(3)]
    x = xp.matmul(xp.concat(windows, axis=3), layer["kernel"]) + layer["offset"]
    x = xp.where(x > 0, x, xp.zeros_like(x))
    x = xp.max(xp.reshape(x, (x.shape[0], 3, 2, 3, 2, 4)), axis=(2, 4))
    return xp.reshape(x, (x.shape[0], -1))


def cross_entropy(layer: Any, x: Tensor, labels: Tensor, xp: Any) -> Tensor:
    """Return the mean softmax cross entropy, without axes, and a penalty on the weights."""
    scores = x @ layer[0] + layer[1]
    shifted = scores - xp.max(scores, axis=1, keepdims=True)
    chosen = xp.take_along_axis(shifted, xp.expand_dims(labels, axis=1), axis=1)[:, 0]
    loss = xp.mean(xp.log(xp.sum(xp.exp(shifted), axis=1)) - chosen)
    return loss + 0.01 * xp.sum(layer[0] ** 2)


def each(fn: Callable[..., Any], *trees: Any) -> Any:
    """Return a tree of the results for the leaves at each position."""
    if isinstance(trees[0], dict):
        return {key: each(fn, *[tree[key] for tree in trees]) for key in trees[0]}
    if isinstance(trees[0], tuple):
        return tuple(each(fn, *below) for below in zip(*trees, strict=True))
    return fn(*trees)


def _chosen_squares(x: Any, indices: Any, axis: int) -> Any:
    found = ds.namespace(x).take_along_axis(x, indices, axis=axis)
    return ds.namespace(x).sum(found * found)


class NeutralProgramTests(Kit):
    """Networks that name no framework."""

    @feature("namespace", "value_and_grad")
    @pytest.mark.parametrize("dimensions", [4, 5, 6])
    @pytest.mark.parametrize("name", ["max", "min"])
    def test_gradients_of_extrema_over_several_axes(self, device: Device, name: str, dimensions: int) -> None:
        """The gradient arrives at the largest, or smallest, number, and is zero elsewhere."""
        shape = (3, 2, 4, 2, 3, 2)[:dimensions]
        numbers = np.random.default_rng(2).permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
        for axes in [(0, 1), (1, 3), (3, 1), (0, 1, 2)]:
            expected = getattr(np, name)(numbers, axis=axes)
            x, slope = ds.from_numpy(numbers, device), ds.from_numpy(expected, device)
            for _ in range(3):  # memory that was freed is used again
                value, grad = ds.value_and_grad(_scale_and_shift)(x, slope, name, axes)
            there = numbers == getattr(np, name)(numbers, axis=axes, keepdims=True)
            assert np.allclose(ds.to_numpy(value), (expected**2).sum(), rtol=1e-4), axes
            assert np.array_equal(ds.to_numpy(grad), np.where(there, numbers, 0)), axes
            kept = getattr(ds.namespace(x), name)(x, axis=axes, keepdims=True)
            assert np.array_equal(ds.to_numpy(kept), getattr(np, name)(numbers, axis=axes, keepdims=True)), axes

    @feature("namespace", "value_and_grad")
    @pytest.mark.parametrize("dtype", ["int32", "int64"])
    @pytest.mark.parametrize(("axis", "count"), [(-1, 1), (-1, 3), (0, 1), (1, 4)])
    def test_elements_along_an_axis(self, device: Device, dtype: str, axis: int, count: int) -> None:
        """Indices of both integer dtypes, negative and repeated ones, choose elements; gradients are added up."""
        rng = np.random.default_rng(3)
        numbers = rng.normal(size=(4, 3, 5)).astype(np.float32)
        shape = [count if i == axis % 3 else size for i, size in enumerate(numbers.shape)]
        indices = rng.integers(-numbers.shape[axis], numbers.shape[axis], shape).astype(dtype)
        x, chosen = ds.from_numpy(numbers, device), ds.from_numpy(indices, device)
        found = ds.namespace(x).take_along_axis(x, chosen, axis=axis)
        assert np.array_equal(ds.to_numpy(found), np.take_along_axis(numbers, indices, axis))
        value, grad = ds.value_and_grad(_chosen_squares)(x, chosen, axis)
        slope = np.zeros_like(numbers)
        for place in np.ndindex(*shape):
            source = tuple(indices[place] if i == axis % 3 else at for i, at in enumerate(place))
            slope[source] += 2 * numbers[source]
        assert np.allclose(ds.to_numpy(value), (np.take_along_axis(numbers, indices, axis) ** 2).sum(), rtol=1e-5)
        assert np.allclose(ds.to_numpy(grad), slope, rtol=1e-5)
        assert ds.device_of(found) is ds.device_of(grad) is device

    @feature("namespace", "gradient")  # the scalars of NumPy are not arrays
    def test_operators_on_numbers_of_the_namespace(self, device: Device) -> None:
        """A tensor without axes takes part in the operators of Python, in every thread."""
        found: list[Tensor] = []

        def compute() -> None:
            x = ds.from_numpy(np.array([[1, 2], [3, 6]], np.float32), device)
            mean = ds.namespace(x).mean(x)
            with self.scope_of(device):
                found.extend([mean * 0.5, mean + mean, -mean, mean / 2 + 1, x - mean, 2 * mean])

        ds.run(compute)
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
        expected = [1.5, 6.0, -3.0, 2.5, [[-2.0, -1.0], [0.0, 3.0]], 6.0] * 2
        assert [ds.to_numpy(x).tolist() for x in found] == expected
        assert all(ds.device_of(x) is device or self.adapter.ran_on(x) is device for x in found)

    @feature("namespace", "value_and_grad")
    def test_a_function_continues_on_another_device(self, away: tuple[Device, Device]) -> None:
        """Operators compute on the GPU on which the function places a tensor; on the CPU, they do in a scope."""
        first, second = away

        def compute(w: Tensor) -> Tensor:
            x = ds.place(w, second)
            xp = ds.namespace(x)
            with nullcontext() if second.kind == "gpu" else ds.on(second):
                y = 2.0 * x**2 + xp.mean(x, axis=0) - 1
                return xp.sum(y @ ds.ones((2, 2), like=y))

        w = ds.from_numpy(np.array([[1, 2], [3, 4]], np.float32), first)
        for found in (ds.run(compute, w), ds.value_and_grad(compute)(w)[0]):
            assert float(ds.to_numpy(found)) == 132.0
            assert ds.device_of(found) is second or not self.adapter.simulated
        value, grad = ds.run(ds.value_and_grad(compute), w)
        assert float(ds.to_numpy(value)) == 132.0
        assert ds.to_numpy(grad).tolist() == [[10.0, 18.0], [26.0, 34.0]]
        assert ds.device_of(grad) is first

    # ------------------------------------------------------------------ training
    @feature("namespace", "data_parallel", "value_and_grad", "checkpoints")
    def test_two_devices_train_as_one_does(self, away: tuple[Device, Device], tmp_path: Path) -> None:
        """Data parallel, model parallel, and across a checkpoint, a program reaches the losses of one device."""
        step = ds.value_and_grad(self.program_loss)
        rounding = 1e-5 if self.adapter.simulated else 1e-3  # real GPUs may round float32 products to TF32
        first, second = away
        alone, _ = self.train_program(step, ds.Placement(default="cpu"), "cpu")
        assert alone[-1] < alone[0] - 0.1, "it does not learn"
        both, _ = self.train_program(ds.data_parallel(step, away), ds.Placement(default=second), "cpu")
        assert np.allclose(both, alone, rtol=rounding)
        split = ds.Placement({"*convolution.*": first, "*dense.*": second})
        parts, state = self.train_program(step, split, first, steps=3)
        assert [str(ds.device_of(x)) for x in state["params"]["dense"]] == [str(second)] * 2
        ds.save(state, tmp_path / "state.safetensors")
        rest, _ = self.train_program(step, split, first, 3, ds.load(tmp_path / "state.safetensors", split))
        assert np.allclose([*parts, *rest], alone, rtol=rounding)

    def program_loss(self, params: Any, batch: Any) -> Tensor:
        """Return the loss; the dense layer computes where it is."""
        images, labels = batch
        xp = ds.namespace(images)
        with self.scope_of(ds.device_of(images)):
            features = convolution(params["convolution"], images, xp)
        there = ds.device_of(params["dense"][0])
        x, labels = ds.place((features, labels), there)
        with self.scope_of(there):
            return cross_entropy(params["dense"], x, labels, xp)

    def _new_momentum(self, momentum: Any, grad: Any) -> Any:
        with self.scope_of(ds.device_of(momentum)):
            return 0.9 * momentum + grad

    def _new_parameter(self, x: Any, momentum: Any) -> Any:
        with self.scope_of(ds.device_of(x)):
            return x - RATE * momentum

    def train_program(
        self, step: Any, placement: Any, source: Any, steps: int = 6, state: Any = None
    ) -> tuple[list[float], Any]:
        """Return the losses of some steps with momentum, and the state afterwards."""
        if state is None:
            params = each(ds.from_numpy, initial())
            state = ds.place({"params": params, "momenta": each(ds.zeros_like, params)}, placement)
        params, momenta, log = state["params"], state["momenta"], ds.MetricLog()
        for batch in ds.prefetch([(IMAGES, LABELS)] * steps, source):
            value, grads = step(params, batch)
            momenta = each(self._new_momentum, momenta, grads)
            params = each(self._new_parameter, params, momenta)
            assert each(ds.device_of, params) == each(ds.device_of, state["params"])
            log.append(value)
        return log.flush().tolist(), {"params": params, "momenta": momenta}


def _scale_and_shift(x: Tensor, slope: Tensor, name: str, axes: tuple[int, ...]) -> Tensor:
    xp = ds.namespace(x)
    return xp.sum(getattr(xp, name)(x, axis=axes) * slope)
