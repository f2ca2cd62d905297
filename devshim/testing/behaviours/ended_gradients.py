"""Tests that a function which ends early, by an error, Ctrl-C or a closed generator, leaves no recording open."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, hook

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device


def _raise(error: type[BaseException]) -> None:
    raise error


def _close(device: Device) -> None:
    """Close a generator that waits inside a default device, and leave a loop over prefetched batches."""

    def batches() -> Generator[np.ndarray, None, None]:
        with ds.on(device):
            while True:
                yield np.ones((1, 3), np.float32)

    inside = batches()
    next(inside)
    inside.close()
    for batch in ds.prefetch(batches(), device):
        assert ds.device_of(batch) is device
        break
    raise GeneratorExit


ENDINGS: dict[str, tuple[type[BaseException], Callable[[Device], None]]] = {
    "an error": (KeyError, lambda _: _raise(KeyError)),
    "Ctrl-C": (KeyboardInterrupt, lambda _: _raise(KeyboardInterrupt)),
    "an exhausted iterator": (StopIteration, lambda _: _raise(StopIteration)),
    "a closed generator": (GeneratorExit, _close),
    "a framework's error": (Exception, lambda _: _raise(ds.DeviceMismatchError)),
}
"""Ways in which a function may end: the error that its caller gets, and how it ends."""


class EndedGradientTests(Kit):
    """After `value_and_grad` of a function that does not return, everything is as before the call."""

    def cube(self, x: Tensor) -> Tensor:
        """Return the cube of the first number."""
        return (x * x * x)[0, 0]

    def recording(self) -> object:
        """Return whether this thread records gradients, and the framework's settings if the adapter names them."""
        try:
            state = self.global_state()
        except NotImplementedError:
            state = None
        return self.adapter.autograd_crosses_threads(), state

    @feature("value_and_grad")
    @pytest.mark.parametrize("how", ENDINGS)
    def test_a_function_that_ends_early_leaves_no_recording(self, device: Device, how: str) -> None:
        """The caller gets the function's error; nothing is recorded afterwards, and the next gradients are right."""
        error, end = ENDINGS[how]
        x = self.tensor(device)
        before = self.recording()

        def ends(x: Tensor) -> Tensor:
            y = self.cube(x)
            end(device)
            return y

        for _ in range(2):
            with pytest.raises(error):
                ds.value_and_grad(ends)(x)
            assert self.recording() == before
            assert ds.device_of(ds.zeros(1)) is ds.cpu()
        _, grad = ds.value_and_grad(self.cube)(x)
        assert (ds.to_numpy(grad)[0, 0], ds.device_of(grad)) == (3 * ds.to_numpy(x)[0, 0] ** 2, device)

    @feature("value_and_grad", "higher_order")
    @pytest.mark.parametrize("how", ENDINGS)
    def test_an_inner_function_that_ends_early_leaves_the_outer_one(self, device: Device, how: str) -> None:
        """A function that catches the error of an inner `value_and_grad` goes on, and its gradient is right."""
        error, end = ENDINGS[how]
        x = self.tensor(device)
        before = self.recording()

        def outer(x: Tensor) -> Tensor:
            def ends(t: Tensor) -> Tensor:
                self.cube(t)
                end(device)
                return self.cube(t)

            y = x * x
            with pytest.raises(error):
                ds.value_and_grad(ends)(y)
            return (y * x)[0, 0]

        _, grad = ds.value_and_grad(outer)(x)
        assert np.allclose(ds.to_numpy(grad)[0, 0], 3 * ds.to_numpy(x)[0, 0] ** 2)
        assert self.recording() == before

    @feature("value_and_grad", "models")
    @hook("model")
    @pytest.mark.parametrize("how", ["an error", "Ctrl-C"])
    def test_a_function_that_ends_early_leaves_the_model(self, device: Device, how: str) -> None:
        """A model contains its own parameters afterwards, and computes as before."""
        error, end = ENDINGS[how]
        model = ds.place(self.model(), device)
        x = ds.from_numpy(np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4), device)
        before = {leaf.path: ds.to_numpy(leaf.read()) for leaf in self.adapter.trainable(model)}

        def ends(net: Any) -> Tensor:
            self.forward(net, x)
            end(device)
            return x[0, 0]

        recording = self.recording()
        with pytest.raises(error):
            ds.value_and_grad(ends)(model)
        assert self.recording() == recording
        for leaf in self.adapter.trainable(model):
            assert np.array_equal(ds.to_numpy(leaf.read()), before[leaf.path])
        assert self.adapter.shape(self.forward(model, x)) == (6, 3)
