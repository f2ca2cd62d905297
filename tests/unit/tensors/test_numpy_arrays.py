"""Tests of a NumPy array and the GPUs of another framework: an error with the line that works, simulated or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import devshim as ds

HINT = r"ds.from_numpy(x, 'gpu:1')"


@pytest.fixture(params=[True, False], ids=["simulated", "not simulated"])
def other(fake: Any, request: pytest.FixtureRequest) -> Any:
    """Return the fictitious framework, which is current; NumPy has simulated GPUs, or none."""
    if request.param:
        ds.simulate(2)
    ds.use("fakeframe")
    return fake


CALLS = {
    "place": lambda x: ds.place(x, "gpu:1"),
    "copy": lambda x: ds.copy(x, "gpu:1"),
    "no copy": lambda x: ds.place(x, "gpu:1", copy=False),
    "placement": lambda x: ds.place(x, ds.Placement(default="gpu:1")),
    "split": lambda x: ds.split(x, ["gpu:1"]),
    "broadcast": lambda x: ds.broadcast(x, ["gpu:1"]),
    "gather": lambda x: ds.gather([x, x], "gpu:1"),
    "zeros_like": lambda x: ds.zeros_like(x, device="gpu:1"),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_array_alone(call: str, other: Any) -> None:
    with pytest.raises(ds.DeviceNotFoundError, match="gpu:1 was asked for, and this is a NumPy array") as caught:
        CALLS[call](np.ones(2))
    assert HINT in str(caught.value.hint)


@pytest.mark.parametrize("call", ["place", "copy", "placement"])
def test_in_a_tree_the_leaf_is_named(call: str, other: Any) -> None:
    batch = {"x": np.ones(2), "n": "name"}
    with pytest.raises(ds.DeviceNotFoundError, match="the current framework is fakeframe") as caught:
        CALLS[call](batch)
    assert HINT in str(caught.value.hint)
    assert "['x']" in caught.value.problem


def test_on_the_host_arrays_are_as_they_were(other: Any) -> None:
    x = np.ones(2)
    assert ds.place(x, "cpu") is x
    assert ds.place({"x": x}, "cpu", copy=True)["x"] is not x
    assert len(ds.split(x, ["cpu", "cpu"])) == 2
    made = ds.from_numpy(x, "gpu:1")
    assert ds.device_of(made) is ds.gpu(1)
    assert ds.device_of(ds.asarray(x, device="gpu:1")) is ds.gpu(1)


def test_a_file_is_not_loaded_into_an_array_there(other: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    ds.save({"x": np.ones(2)}, path)
    with pytest.raises(ds.DeviceNotFoundError) as caught:
        ds.load(path, "gpu:1", into={"x": np.zeros(2)})
    assert "['x']" in caught.value.problem
    assert ds.device_of(ds.load(path, "gpu:1")["x"]) is ds.gpu(1)


def test_the_line_that_fixes_mixed_arguments_makes_a_tensor_of_the_array(other: Any) -> None:
    x = ds.ones(2, device="gpu:1")
    for call in (lambda: ds.run(max, x, np.ones(2)), lambda: ds.require_same_device(x=x, y=np.ones(2))):
        with pytest.raises(ds.DeviceMismatchError) as caught:
            call()
        name = "args[1]" if "args" in str(caught.value) else "y"
        assert caught.value.hint == f"{name} = ds.from_numpy({name}, 'gpu:1')"
    with ds.using("numpy"), pytest.raises(ds.DeviceMismatchError) as caught:
        ds.require_same_device(x=x, y=np.ones(2))
    assert caught.value.hint == "y = ds.convert(y, 'fakeframe', 'gpu:1')"
    with pytest.raises(ds.DeviceMismatchError) as caught:
        ds.require_same_device(x=x, y=ds.ones(2))
    assert caught.value.hint == "y = ds.place(y, 'gpu:1')"


def test_numpy_as_the_current_framework_keeps_its_simulated_gpus(fake: Any) -> None:
    ds.simulate(2)
    x = ds.place(np.ones(2), "gpu:1")
    assert ds.device_of(x) is ds.gpu(1)
    with ds.using("fakeframe"):
        assert ds.device_of(ds.place(x, "gpu:0")) is ds.gpu(0), "what is on one of them is NumPy's already"


def test_where_nothing_is_chosen_the_hint_says_so(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ds.simulate(2)
    ds.use(None)
    monkeypatch.setattr("devshim.registry.discovery.installed_names", lambda: ["numpy", "torch", "jax"])
    with pytest.raises(ds.DeviceNotFoundError, match="no framework is chosen") as caught:
        ds.place(np.ones(2), "gpu:1")
    assert "ds.use('torch')" in str(caught.value.hint)
    monkeypatch.setattr("devshim.registry.discovery.installed_names", lambda: ["numpy"])
    monkeypatch.setattr("devshim.registry.current._only", None)
    assert ds.device_of(ds.place(np.ones(2), "gpu:1")) is ds.gpu(1), "alone, NumPy is the current framework"
