"""Tests of models: `place` moves them in place and completely, and they compute on their device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.behaviours.subprocess import SubprocessKit
from devshim.testing.values import feature, hook

if TYPE_CHECKING:
    from devshim.contract.backend import Tensor
    from devshim.devices.device import Device

INPUTS = np.random.default_rng(1).standard_normal((6, 4)).astype("float32")
TARGETS = np.random.default_rng(2).standard_normal((6, 3)).astype("float32")


class ModelKit(SubprocessKit):
    """The base class of the tests of models and optimizers, with their helpers."""

    # ------------------------------------------------------------------ the leaves of a model or optimizer
    def leaves_of(self, obj: Any) -> dict[str, Any]:
        """Return the leaves of a model or optimizer by their key paths."""
        return {leaf.path: leaf for leaf in self.adapter.leaves(obj)}

    def state_of(self, *objects: Any) -> dict[str, np.ndarray]:
        """Return every value of models and optimizers."""
        return {
            f"{i}:{path}": ds.to_numpy(leaf.read())
            for i, obj in enumerate(objects)
            for path, leaf in self.leaves_of(obj).items()
        }

    def check_on(self, obj: Any, device: Device) -> None:
        """Assert that every leaf of a model or optimizer is on a device."""
        found = {path: ds.device_of(leaf.read()) for path, leaf in self.leaves_of(obj).items()}
        assert found
        assert set(found.values()) == {device}, found

    def check_equal(self, found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
        """Assert that two states are equal bit for bit."""
        assert list(found) == list(expected)
        for path, value in expected.items():
            assert found[path].tobytes() == value.tobytes(), path

    def check_same_training(self, found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
        """Assert that two trainings are equal: bit for bit if the same processor computed both."""
        if self.adapter.simulated:
            self.check_equal(found, expected)
        assert list(found) == list(expected)
        assert all(np.allclose(found[path], expected[path], rtol=1e-3, atol=1e-5) for path in expected)

    def data(self, device: Device | str = "cpu") -> tuple[Tensor, Tensor]:
        """Return inputs and targets on a device."""
        return ds.from_numpy(INPUTS, device), ds.from_numpy(TARGETS, device)

    def train_weights(
        self, make: Callable[[Any], Any], moves: list[Any], *, between: bool = False
    ) -> dict[str, np.ndarray]:
        """Return the state after some steps, with a move before each (or between its backward pass and its update)."""
        model = self.model()
        optimizer = make(model)
        device = ds.cpu()
        for target in moves:
            if not between:
                ds.place([model, optimizer], target)
                device = ds.device(target)
            x, y = self.data(device)
            self.train_step(model, optimizer, x, y, lambda to=target: between and ds.place([model, optimizer], to))  # type: ignore[misc]
            device = ds.device(target)
        return self.state_of(ds.place(model, "cpu"))


class ModelTests(ModelKit):
    """`place` of models."""

    @feature("models")
    @hook("model")
    def test_a_model_moves_in_place(self, journey: tuple[Device, Device]) -> None:
        """`place` returns the same model; each leaf arrives with every bit, and parameters remain the same objects."""
        model = self.model()
        assert ds.place(model, journey[0]) is model
        before, owners = self.state_of(model), [leaf.owner for leaf in self.leaves_of(model).values()]
        assert ds.place(model, journey[1]) is model
        self.check_on(model, journey[1])
        self.check_equal(self.state_of(model), before)
        now = [leaf.owner for leaf in self.leaves_of(model).values()]
        assert all(a is b for a, b in zip(owners, now, strict=True))

    @feature("models")
    @hook("model")
    def test_a_move_is_one_transfer(self, away: tuple[Device, Device]) -> None:
        """A ledger records a model's move as one transfer, with the bytes and the number of all leaves."""
        model = ds.place(self.model(), away[0])
        sizes = {id(leaf.owner): self.adapter.nbytes(leaf.read()) for leaf in self.leaves_of(model).values()}
        with ds.transfers() as log:
            ds.place(model, away[1])
        (record,) = log.records
        assert (record.source, record.target) == away
        assert (record.bytes, record.tensors) == (sum(sizes.values()), len(sizes))

    @feature("models")
    @hook("model")
    def test_a_moved_model_computes_where_it_is(self, device: Device) -> None:
        """With ``x`` on the model's device, ``model(x)`` computes there without a scope, with the CPU's numbers."""
        model = self.model()
        expected = ds.to_numpy(self.forward(model, self.data()[0]))
        ds.place(model, device)
        y = self.forward(model, self.data(device)[0])
        assert ds.device_of(y) is device
        assert np.allclose(ds.to_numpy(y), expected, rtol=1e-4, atol=1e-5)
        ds.place(model, "cpu")
        back = self.forward(model, self.data()[0])
        assert ds.device_of(back) is ds.cpu()
        assert ds.to_numpy(back).tobytes() == expected.tobytes()

    @feature("models")
    @hook("model", "optimizer")
    def test_gradients_move_with_their_parameters(self, away: tuple[Device, Device]) -> None:
        """If the framework stores gradients in its parameters, they move along and are equal bit for bit."""
        model = ds.place(self.model(), away[0])
        seen: list[dict[str, np.ndarray]] = []

        def look() -> None:
            before = self.state_of(model)
            ds.place(model, away[1])
            self.check_on(model, away[1])
            self.check_equal(self.state_of(model), before)
            ds.place(model, away[0])
            seen.append(before)

        self.train_step(model, self.optimizer(model), *self.data(away[0]), look)
        assert len(seen) == 1

    @feature("models")
    @hook("tied_model")
    def test_tied_weights_stay_tied(self, away: tuple[Device, Device]) -> None:
        """A weight shared by two layers moves once and stays shared: a change through one is visible in the other."""
        model = ds.place(self.tied_model(), away[0])

        def tied() -> list[list[str]]:
            groups: dict[int, list[str]] = {}
            for path, leaf in self.leaves_of(model).items():
                groups.setdefault(id(leaf.owner), []).append(path)
            return [paths for paths in groups.values() if len(paths) > 1]

        before = tied()
        assert before, "the hook tied_model must tie a weight"
        ds.place(model, away[1])
        assert tied() == before
        first, second = (self.leaves_of(model)[path] for path in before[0][:2])
        first.write(ds.full_like(first.read(), 7))
        assert ds.to_numpy(second.read()).min() == 7

    @feature("models")
    @hook("unbuilt_model")
    def test_an_unbuilt_model_is_built_on_its_target(self, other_device: Device) -> None:
        """The first call builds a model of unknown shapes on the device on which it was placed."""
        model = ds.place(self.unbuilt_model(), other_device)
        y = self.forward(model, self.data(other_device)[0])
        assert ds.device_of(y) is other_device
        self.check_on(model, other_device)

    @feature("models")
    @hook("model")
    def test_a_model_in_a_tree(self, other_device: Device) -> None:
        """Models, tensors and other objects of a tree move together.

        The containers are new, the model is the same object.
        """
        model, x = self.model(), self.data()[0]
        tree = ds.place({"net": model, "batch": [x, 3]}, other_device)
        assert tree["net"] is model
        self.check_on(model, other_device)
        assert ds.device_of(tree["batch"][0]) is other_device
        assert tree["batch"][1] == 3
        assert ds.place(tree, other_device) is tree

    @feature("models")
    @hook("model")
    def test_a_copy_of_a_model_is_independent(self, other_device: Device) -> None:
        """`copy` returns another model with equal weights; writing to the copy does not change the original."""
        model = self.model()
        before = self.state_of(model)
        twin = ds.copy(model, other_device)
        assert twin is not model
        self.check_on(twin, other_device)
        self.check_on(model, ds.cpu())
        self.check_equal(self.state_of(twin), before)
        for leaf in self.leaves_of(twin).values():
            leaf.write(ds.full_like(leaf.read(), 1))
        self.check_equal(self.state_of(model), before)

    @feature("models")
    @hook("model")
    def test_copy_false_refuses_to_move_a_model(self, away: tuple[Device, Device]) -> None:
        """``copy=False`` raises if a copy is needed, and accepts a model that is already there."""
        model = ds.place(self.model(), away[0])
        assert ds.place(model, away[0], copy=False) is model
        with pytest.raises(ds.CopyNeededError):
            ds.place(model, away[1], copy=False)
        self.check_on(model, away[0])
