"""Tests of `leaves` and `assign`: read and write tensors by key path, all or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.behaviours.simulated_gpus import used_bytes
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from devshim.devices.device import Device


class Pair(NamedTuple):
    """A container whose fields name its tensors."""

    x: Any
    label: str


def values_of(obj: Any) -> dict[str, np.ndarray]:
    """Return the values of all tensors, by path."""
    return {path: ds.to_numpy(x) for path, x in ds.leaves(obj).items()}


class LeafValueTests(Kit):
    """The same paths and calls for models, optimizers and trees, on every framework."""

    @feature("several")
    def test_a_tree_is_read_and_written(self, device: Device) -> None:
        """`leaves` gives a tree's own tensors by path; `assign` gives the tree with the new values, on its devices."""
        x, y, z = (self.tensor(device) for _ in range(3))
        tree = {"a": x, "b": [Pair(y, "text"), 3], "c": z}
        found = ds.leaves(tree)
        assert list(found) == ["a", "b.0.x", "c"]
        assert all(found[path] is each for path, each in zip(found, (x, y, z), strict=True))
        new = {"a": numbers() + 5, "b.0.x": self.tensor("cpu") if self.backend != "numpy" else numbers()}
        got = ds.assign(tree, new)
        assert self.same_numbers(got["a"], numbers() + 5)
        assert self.same_numbers(got["b"][0].x, numbers())
        assert got["c"] is z
        assert got["b"][0].label == "text"
        assert ds.placement_of(got).devices == {device}
        if not self.adapter.immutable:
            assert got is tree
            assert got["a"] is x
        else:
            assert self.same_numbers(tree["a"], numbers()), "the given tree is unchanged"
        assert ds.assign(got, {}) is got

    @feature("several")
    def test_the_written_values_are_copies(self, other_device: Device) -> None:
        """A later write to a value does not change the tensor that it was assigned to."""
        value = numbers()
        tree = ds.assign([self.tensor(other_device)], {"0": value})
        value[...] = 77
        assert self.same_numbers(tree[0], numbers())

    @feature("several")
    def test_a_numpy_scalar_is_written(self, device: Device) -> None:
        """NumPy's operators return scalars for arrays without axes, such as a counter plus one."""
        tree = {"count": ds.from_numpy(np.asarray(6, "int32"), device)}
        tree = ds.assign(tree, {"count": ds.to_numpy(ds.leaves(tree)["count"]) + np.int32(1)})
        assert ds.to_numpy(tree["count"]).tolist() == 7
        assert (ds.dtype_of(tree["count"]), ds.device_of(tree["count"])) == ("int32", device)

    @feature("models")
    @hook("model")
    def test_a_model_is_read_and_written(self, device: Device) -> None:
        """A model's parameters are read and overwritten in place, wherever it is; the others keep their values."""
        model = ds.place(self.model(), device)
        outputs = ds.to_numpy(self.forward(model, ds.from_numpy(numbers((2, 4)), device)))
        before = values_of(model)
        assert set(before) == set(ds.placement_of(model))
        path = next(iter(before))
        assert ds.assign(model, {path: before[path] + 1}) is model
        after = values_of(model)
        assert np.array_equal(after[path], before[path] + 1)
        assert all(np.array_equal(after[each], before[each]) for each in before if each != path)
        assert ds.placement_of(model).devices == {device}
        changed = ds.to_numpy(self.forward(model, ds.from_numpy(numbers((2, 4)), device)))
        assert not np.array_equal(changed, outputs)
        ds.assign({"net": model}, {f"net.{each}": value for each, value in before.items()})
        assert all(np.array_equal(value, before[each]) for each, value in values_of(model).items())

    @feature("models")
    @hook("model", "optimizer", "train_step")
    def test_an_optimizers_state_is_read_and_written(self, other_device: Device) -> None:
        """The state of an optimizer is restored by assigning what was read before a step."""
        model = ds.place(self.model(), other_device)
        optimizer = self.optimizer(model)
        x, y = (ds.from_numpy(numbers((6, n)), other_device) for n in (4, 3))
        self.train_step(model, optimizer, x, y, lambda: None)
        ds.place(optimizer, other_device)
        before = values_of(optimizer)
        assert before
        self.train_step(model, optimizer, x, y, lambda: None)
        assert any(not np.array_equal(value, before[path]) for path, value in values_of(optimizer).items())
        assert ds.assign(optimizer, before) is optimizer
        assert all(np.array_equal(value, before[path]) for path, value in values_of(optimizer).items())

    @feature("models")
    @hook("tied_model")
    def test_ties_are_written_once(self) -> None:
        """Tied parameters stay tied; two different values for one tensor are refused."""
        model = self.tied_model()
        before = values_of(model)
        memory = {path: ds.to_numpy(x, copy=False) for path, x in ds.leaves(model).items()}
        alike = [(a, b) for a in before for b in before if a < b and np.shares_memory(memory[a], memory[b])]
        if not alike:
            pytest.skip("the framework names a tied parameter once")
        first, second = alike[0]
        with pytest.raises(ds.ArgumentError, match="one tensor"):
            ds.assign(model, {first: before[first] + 1, second: before[first] + 2})
        ds.assign(model, {first: before[first] + 1})
        assert np.array_equal(values_of(model)[second], before[first] + 1)

    @feature("several")
    @pytest.mark.parametrize(
        ("values", "text"),
        [
            ({"a": numbers() + 1, "wieght": numbers()}, "no tensor at 'wieght'"),
            ({"a": numbers() + 1, "weight": numbers((2, 2))}, "of shape"),
            ({"a": numbers() + 1, "weight": numbers(dtype="int32")}, "is int32"),
            ([numbers()], "values is"),
        ],
        ids=["unknown", "shape", "dtype", "no mapping"],
    )
    def test_a_wrong_value_changes_nothing(self, values: Any, text: str, device: Device) -> None:
        """An unknown path, another shape or dtype is refused before anything is written; the nearest path is named."""
        tree = {"a": self.tensor(device), "weight": self.tensor(device)}
        with pytest.raises(ds.ArgumentError, match=text) as caught:
            ds.assign(tree, values)
        assert ("did you mean 'weight'?" in str(caught.value.hint)) is (text.endswith("'wieght'"))
        assert all(np.array_equal(value, numbers()) for value in values_of(tree).values())
        with pytest.raises(ds.NotATensorError, match="a"):
            ds.assign(tree, {"a": "text"})

    @feature("simulate_memory", "several")
    def test_a_full_device_changes_nothing(self, gpu: Device) -> None:
        """If the copies of the values do not fit, nothing has changed, and their memory is free again."""
        tree = {name: self.tensor("gpu:0") for name in "abc"}
        with ds.simulate(ds.device_count(), faults=ds.Fault("gpu:0", "allocation", at=3)):
            before = used_bytes(ds.gpu(0))  # a framework may release cached constants where simulation changes
            with pytest.raises(ds.OutOfMemoryError) as caught:
                ds.assign(tree, {name: numbers() + 1 for name in "abc"})
            assert used_bytes(ds.gpu(0)) == before
        assert "at the leaf " in str(caught.value)
        assert all(np.array_equal(value, numbers()) for value in values_of(tree).values())
