"""Tests of training across moves: moves do not change it, failed moves change nothing, and split models train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import devshim as ds
from devshim.testing.behaviours.models import INPUTS, TARGETS, ModelKit
from devshim.testing.behaviours.simulated_gpus import used_bytes
from devshim.testing.values import feature, hook

if TYPE_CHECKING:
    from devshim.devices.device import Device


class TrainingTests(ModelKit):
    """Optimizers, atomic moves and placements."""

    # ------------------------------------------------------------------ optimizers
    @feature("models")
    @hook("model", "optimizers")
    def test_moves_do_not_change_training(self, away: tuple[Device, Device], optimizer_name: str) -> None:
        """A model and optimizer that are moved twice during training reach the same weights, bit for bit."""
        make = self.optimizers()[optimizer_name]
        here, there = str(away[0]), str(away[1])
        expected = self.train_weights(make, [here] * 5)
        self.check_same_training(self.train_weights(make, [here, there, there, here, here]), expected)

    @feature("models")
    @hook("model", "optimizers")
    def test_a_move_before_the_step_does_not_change_training(
        self, away: tuple[Device, Device], optimizer_name: str
    ) -> None:
        """This also holds for a move between the backward pass and the step that uses its gradients."""
        make = self.optimizers()[optimizer_name]
        here, there = str(away[0]), str(away[1])
        expected = self.train_weights(make, [here] * 4, between=True)
        self.check_same_training(self.train_weights(make, [here, there, here, here], between=True), expected)

    @feature("models")
    @hook("model", "optimizer")
    def test_an_optimizers_state_moves(self, away: tuple[Device, Device]) -> None:
        """`place` of an optimizer moves all of its state, and returns the same optimizer."""
        model = ds.place(self.model(), away[0])
        optimizer = self.optimizer(model)
        self.train_step(model, optimizer, *self.data(away[0]), lambda: None)
        before = self.state_of(optimizer)
        assert ds.place(optimizer, away[1]) is optimizer
        self.check_on(optimizer, away[1])
        self.check_equal(self.state_of(optimizer), before)

    # ------------------------------------------------------------------ all or nothing
    @feature("models")
    @hook("model", "optimizer")
    @pytest.mark.parametrize("error", [KeyboardInterrupt, ds.OutOfMemoryError, RuntimeError])
    def test_a_failed_move_changes_nothing(
        self, away: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
    ) -> None:
        """If any leaf fails, in any way, everything stays unchanged, and the error names the leaf."""
        model = ds.place(self.model(), away[0])
        optimizer = self.optimizer(model)
        self.train_step(model, optimizer, *self.data(away[0]), lambda: None)
        before, tree = self.state_of(model, optimizer), [model, optimizer]
        copy_many = self.adapter.copy_many
        for fails in range(len(before)):
            left = iter(range(fails))

            def failing(xs: Any, *args: Any, left: Any = left) -> Any:
                for arrived in copy_many(xs, *args):
                    if next(left, None) is None:
                        raise error("asked to")
                    yield arrived

            monkeypatch.setattr(self.adapter, "copy_many", failing)
            with pytest.raises(error) as caught:
                ds.place(tree, away[1])
            monkeypatch.setattr(self.adapter, "copy_many", copy_many)
            assert not isinstance(caught.value, ds.DevshimError) or "(at the leaf " in caught.value.problem
            self.check_on(model, away[0])
            self.check_on(optimizer, away[0])
        self.check_equal(self.state_of(model, optimizer), before)
        ds.place(tree, away[1])
        self.check_on(optimizer, away[1])

    @feature("models")
    @hook("model")
    def test_a_failed_replacement_is_undone(self, away: tuple[Device, Device], monkeypatch: Any) -> None:
        """A failure after all copies have arrived also leaves the model unchanged."""
        model = ds.place(self.model(), away[0])
        before = self.state_of(model)

        def refuse(*_: object) -> None:
            raise RuntimeError("asked to")

        monkeypatch.setattr(type(self.adapter), "install_hooks", refuse)
        with pytest.raises(RuntimeError, match="asked to"):
            ds.place(model, away[1])
        monkeypatch.undo()
        self.check_on(model, away[0])
        self.check_equal(self.state_of(model), before)
        y = self.forward(model, self.data(away[0])[0])
        assert ds.device_of(y) is away[0]

    @feature("models", "simulate_memory")
    @hook("model")
    def test_a_move_frees_the_source(self, other_device: Device) -> None:
        """A model that moves away leaves no memory behind, and a failed move takes none."""
        if not self.adapter.simulated:
            pytest.skip("hardware: real GPUs count their memory in their own way")
        model = self.model()
        before = used_bytes(other_device)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(self.adapter), "install_hooks", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError) as caught:
                ds.place(model, other_device)
            assert used_bytes(other_device) == before, "also while the error and its traceback are held"
            del caught
        ds.place(model, other_device)
        assert used_bytes(other_device) > before
        ds.place(model, "cpu")
        assert used_bytes(other_device) == before

    @feature("models")
    @hook("model")
    def test_a_model_refuses_a_missing_device(self, missing_device: Device) -> None:
        """A missing device is refused before anything is changed."""
        model = self.model()
        with pytest.raises(ds.DeviceNotFoundError):
            ds.place(model, missing_device)
        self.check_on(model, ds.cpu())

    # ------------------------------------------------------------------ placements
    @feature("models")
    @hook("model")
    def test_a_placement_round_trip(self, other_device: Device) -> None:
        """`placement_of` returns the device of each leaf, and `place` restores it."""
        model = self.model()
        home = ds.placement_of(model)
        assert home.devices == {ds.cpu()}
        assert dict(home.items()) == {
            path: ds.cpu() for path, leaf in self.leaves_of(model).items() if leaf.kind != "gradient"
        }
        ds.place(model, other_device)
        assert ds.placement_of(model) != home
        assert ds.place(model, ds.Placement.from_json(home.to_json())) is model
        assert ds.placement_of(model) == home

    @feature("models")
    @hook("model", "optimizer")
    @pytest.mark.parametrize("begun", [False, True])
    def test_a_balanced_placement_of_a_model_fits_its_optimizer(self, away: tuple[Device, Device], begun: bool) -> None:
        """``ds.place([model, optimizer], ds.Placement.balanced(model, devices))`` places state with its weights."""
        model = self.model()
        optimizer = self.optimizer(model)
        if begun:
            self.train_step(model, optimizer, *self.data(), lambda: None)
        plan = ds.Placement.balanced(model, list(away))
        for given, place in ((plan, None), (ds.Placement.balanced(model, list(away), default=away[1]), away[1])):
            assert given.default is place
            assert ds.place([model, optimizer], given)[0] is model
            there = dict(ds.placement_of(model).items())
            assert all(there[path] is device for path, device in plan.items())
            assert ds.placement_of([model, optimizer]).devices <= set(away)
            x, y = ds.from_numpy(INPUTS, away[0]), ds.from_numpy(TARGETS, away[1])
            self.train_step(model, optimizer, x, y, lambda: None)
            assert all(ds.placement_of(model)[path] is device for path, device in plan.items())
        ds.place(model, "cpu")
        assert ds.Placement.balanced([model, optimizer], list(away)).devices == set(away)
        ds.place([model, optimizer], "cpu")

    @feature("models")
    @hook("model", "optimizer")
    def test_a_split_model_trains(self, away: tuple[Device, Device]) -> None:
        """A split model moves activations forward and gradients back across devices, with the CPU's results."""
        model = self.model()
        paths = list(dict(ds.placement_of(model).items()))
        first = paths[0].rpartition(".")[0] or paths[0].rpartition("/")[0]
        places = {path: away[0] if path.startswith(first) else away[1] for path in paths}
        assert set(places.values()) == set(away), "the hook model must have two layers"
        expected, alone = self.model(), self.state_of(self.model())
        results = []
        for net, there in ((expected, None), (model, ds.Placement(places))):
            if there is not None:
                ds.place(net, there)
                assert ds.placement_of(net) == there
            optimizer = self.optimizer(net)
            x, y = ds.from_numpy(INPUTS, there and away[0]), ds.from_numpy(TARGETS, there and away[1])
            self.train_step(net, optimizer, x, y, lambda: None)
            results.append(self.state_of(ds.place([net], "cpu")[0]))
        assert list(results[0]) == list(results[1])
        for path, value in results[0].items():
            assert np.allclose(results[1][path], value, rtol=1e-4, atol=1e-6), path
        assert any((results[1][path] != value).any() for path, value in alone.items() if path in results[1])
