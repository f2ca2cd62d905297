"""Tests of moving models and optimizers, completely or not, with toy models of a fictitious framework."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from toy_models import Parameter, Toys, classes_of

import devshim as ds
from devshim.contract.backend import Gap
from devshim.contract.models import Block

CPU, G0, G1 = ds.cpu(), ds.gpu(0), ds.gpu(1)
LINES = {
    "place": "{x}.go({device})",
    "copy": "{x}.copy({device})",
    "device_of": "{x}.device",
    "place_model": "{x}.go({device})",
    "place_optimizer": "{x}.follow({device})",
    "place_parameter": "{x}[{path}].go({device})",
    "copy_model": "clone({x}).go({device})",
    "device_of_model": "{x}.devices()",
}


@pytest.fixture
def frame(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("is_model", "leaves", "access", "install_hooks"):
        monkeypatch.setattr(type(fake), name, getattr(Toys, name), raising=False)
    monkeypatch.setattr(type(fake), "refuses", None, raising=False)
    monkeypatch.setattr(type(fake), "gaps", {name: gap for name, gap in fake.gaps.items() if name != "models"})
    monkeypatch.setattr(type(fake), "snippets", LINES)
    monkeypatch.setattr(type(fake), "blocks", lambda self, model: model.blocks, raising=False)
    monkeypatch.setattr(type(fake), "clone", lambda self, model: cloned(self, model), raising=False)
    return SimpleNamespace(backend=fake, **vars(classes_of("fakeframe")))


def cloned(backend: Any, model: Any) -> Any:
    new = type(model)(model.layers)
    for name, each in model.parameters.items():
        new.parameters[name] = Parameter(backend.copy_to(each.data, each.data.card), each.kind)
    new.blocks = model.blocks
    return new


def parameter(frame: Any, values: Any, device: ds.Device = CPU, kind: str = "parameter") -> Parameter:
    return Parameter(frame.backend.to_device(np.array(values, dtype="float32"), device), kind)


@pytest.fixture
def model(frame: Any) -> Any:
    """Return two blocks of two parameters each, the second one nested, and a buffer."""
    made = frame.Model([])
    for name in ("a.weight", "a.bias", "b.0.weight", "b.1.weight"):
        made.parameters[name] = parameter(frame, [len(name)] * 64)
    made.parameters["count"] = parameter(frame, 3, kind="buffer")
    inside = (Block("b.0", ("b.0.weight",)), Block("b.1", ("b.1.weight",)))
    made.blocks = [
        Block("a", ("a.weight", "a.bias")),
        Block("b", ("b.0.weight", "b.1.weight"), inside),
    ]
    return made


def devices(obj: Any) -> dict[str, str]:
    return {path: str(device) for path, device in ds.placement_of(obj).items()}


# ---------------------------------------------------------------------- placing
def test_a_model_moves_in_place(frame: Any, model: Any) -> None:
    before = dict(model.parameters)
    assert ds.place(model, G1) is model
    assert set(devices(model)) == set(before)
    assert set(devices(model).values()) == {"gpu:1"}
    assert all(model.parameters[name] is each for name, each in before.items())
    assert model.rewired == 1
    copies = frame.backend.copies
    assert ds.place(model, G1) is model
    assert frame.backend.copies == copies


def test_a_model_that_is_elsewhere_needs_a_copy(model: Any) -> None:
    with pytest.raises(ds.CopyNeededError, match=r"cpu.*gpu:1"):
        ds.place(model, G1, copy=False)
    assert set(devices(model).values()) == {"cpu"}
    assert ds.place(model, "cpu", copy=False) is model


def test_ties_move_once_and_stay_ties(frame: Any, model: Any) -> None:
    model.parameters["tied"] = model.parameters["a.weight"]
    ds.place(model, G1)
    assert frame.backend.copies == 5
    assert model.parameters["tied"].data is model.parameters["a.weight"].data
    assert devices(model)["tied"] == "gpu:1"


def test_gradients_follow_and_have_no_place_of_their_own(frame: Any, model: Any) -> None:
    weight = model.parameters["a.weight"]
    weight.gradient = frame.backend.to_device(np.ones(64), CPU)
    assert "a.weight.grad" not in devices(model)
    ds.place(model, ds.Placement({"a.weight": G1}, default=G0))
    assert weight.gradient.card is G1
    assert devices(model)["a.bias"] == "gpu:0"


def test_an_optimizer_follows_its_model(frame: Any, model: Any) -> None:
    optimizer = frame.Optimizer(model, 0.1)
    assert devices(optimizer) == {}
    for name, each in model.parameters.items():
        optimizer.momentum[name] = Parameter(frame.backend.to_device(np.array(each.data), CPU), "state")
    tree = {"model": model, "optimizer": optimizer, "x": frame.backend.to_device(np.ones(2), CPU)}
    plan = ds.Placement({"model.a": G0, "model": G1, "x": "cpu"})
    placed = ds.place(tree, plan)
    assert placed is tree
    assert devices(model) == {name: "gpu:0" if name.startswith("a.") else "gpu:1" for name in model.parameters}
    assert devices(optimizer) == devices(model)
    alone = frame.Optimizer(model, 0.1)
    alone.momentum["a.bias"] = Parameter(frame.backend.to_device(np.ones(64), CPU), "state")
    ds.place(alone, ds.Placement({"other": "cpu"}))
    assert devices(alone) == {"a.bias": "cpu"}, "the plan does not name it, and it moves without its model"


def test_a_leaf_that_no_placement_names_is_refused_before_anything_moves(model: Any) -> None:
    with pytest.raises(ds.ArgumentError, match=r"b\.0"):
        ds.place(model, ds.Placement({"a": G1}))
    assert set(devices(model).values()) == {"cpu"}


def test_a_tree_is_placed_whole_or_not_at_all(frame: Any, model: Any) -> None:
    other = frame.Model([], weight=parameter(frame, [1, 2]))
    frame.backend.refuses = "b.0.weight"
    with pytest.raises(RuntimeError, match="asked to"):
        ds.place([other, model], G1)
    assert set(devices([other, model]).values()) == {"cpu"}
    frame.backend.fail_at = frame.backend.copies + 3
    with pytest.raises(ds.OutOfMemoryError) as caught:
        ds.place([other, model], G1)
    assert "1.a.bias" in str(caught.value)
    assert set(devices([other, model]).values()) == {"cpu"}


def test_the_copy_of_a_model_is_another(frame: Any, model: Any) -> None:
    copied = ds.copy({"model": model, "same": model}, G1)
    assert copied["model"] is not model
    assert copied["model"] is copied["same"]
    assert set(devices(copied["model"]).values()) == {"gpu:1"}
    assert set(devices(model).values()) == {"cpu"}
    with ds.transfers() as log:
        here = ds.copy(model, "cpu")
    assert here is not model
    assert set(devices(here).values()) == {"cpu"}
    assert log.total_bytes == 4 * 64 * 4 + 4


def test_models_that_an_adapter_cannot_move_are_refused(frame: Any, model: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(type(frame.backend), "gaps", {"models": Gap("never", "they are carved in stone")})
    for call in (lambda: ds.place([model], G1), lambda: ds.placement_of(model)):
        with pytest.raises(ds.UnsupportedError, match="carved in stone"):
            call()


def test_where_the_parts_of_a_tree_are(frame: Any, model: Any) -> None:
    tree = {"nets": [model], "x": frame.backend.to_device(np.ones(2), G1)}
    found = devices(tree)
    assert found.pop("x") == "gpu:1"
    assert found == {f"nets.0.{name}": "cpu" for name in model.parameters}


# ---------------------------------------------------------------------- explaining
def explained(call: Any) -> list[str]:
    with ds.explain(file=None) as lines:
        call()
    return lines


def test_a_model_is_one_line(frame: Any, model: Any) -> None:
    optimizer = frame.Optimizer(model, 0.1)
    optimizer.momentum["a.bias"] = Parameter(frame.backend.to_device(np.ones(64), CPU), "state")
    assert explained(lambda: ds.place(model, G1)) == ["model.go('gpu:1')"]
    assert explained(lambda: ds.place([model, optimizer], G0)) == [
        "model[0].go('gpu:0')",
        "optimizer[1].follow('gpu:0')",
    ]
    assert explained(lambda: ds.copy(model, "cpu")) == ["clone(model).go('cpu')"]
    assert explained(lambda: ds.placement_of({"net": model, "o": optimizer})) == [
        "model['net'].devices()",
        "optimizer['o'].device",
    ]


def test_a_model_over_several_devices_is_a_line_for_each_parameter(frame: Any, model: Any) -> None:
    model.parameters["a.bias"].gradient = frame.backend.to_device(np.ones(64), CPU)
    lines = explained(lambda: ds.place(model, ds.Placement({"a": G0}, default=G1)))
    assert lines == [
        f"model['{name}'].go('{'gpu:0' if name.startswith('a') else 'gpu:1'}')" for name in model.parameters
    ]
    for i in range(5):
        model.parameters[f"more.{i}"] = parameter(frame, [1.0])
    lines = explained(lambda: ds.place(model, ds.Placement({"a": G0}, default=G1)))
    assert len(lines) == 9
    assert lines[-1] == "# and 2 more parameters"


def test_a_model_that_is_not_built_is_a_line(frame: Any) -> None:
    assert explained(lambda: ds.place(frame.Model([]), G1)) == ["model.go('gpu:1')"]


def test_an_optimizer_that_a_placement_does_not_name_goes_with_its_model(frame: Any, model: Any) -> None:
    optimizer = frame.Optimizer(model, 0.1)
    optimizer.momentum["a.bias"] = Parameter(frame.backend.to_device(np.ones(64), CPU), "state")
    lines = explained(lambda: ds.place([model, optimizer], ds.Placement({"0": G1})))
    assert lines == ["model[0].go('gpu:1')", "optimizer[1].follow('gpu:1')"]
    assert devices(optimizer) == {"a.bias": "gpu:1"}


# ---------------------------------------------------------------------- balancing
def test_a_balanced_plan_cuts_between_blocks(frame: Any, model: Any) -> None:
    plan = ds.Placement.balanced(model, [G0, G1], [2000, 2000])
    assert dict(plan.items()) == {
        "a.weight": G0,
        "a.bias": G0,
        "b.0.weight": G1,
        "b.1.weight": G1,
        "count": G1,
    }
    ds.place(model, plan)
    assert {name: ds.device(each) for name, each in devices(model).items()} == dict(plan.items())


def test_a_block_that_fits_nowhere_is_opened(frame: Any, model: Any) -> None:
    folder = 2 * 64 * 4 + 4
    plan = ds.Placement.balanced(model, [G0, G1], [folder + 256, 300])
    assert plan["a.weight"] is plan["a.bias"] is plan["b.0.weight"] is G0
    assert plan["b.1.weight"] is plan["count"] is G1
    with pytest.raises(ds.OutOfMemoryError, match="gpu:0: 10, gpu:1: 10 bytes"):  # the free memory
        ds.Placement.balanced(model, [G0, G1])
    with pytest.raises(
        ds.OutOfMemoryError, match=r"it has 1,028 bytes, and its largest indivisible part \(a\) has 512"
    ):
        ds.Placement.balanced(model, [G0, G1], [500, 500])


def test_the_plan_of_a_tree_names_models_and_leaves_optimizers_to_follow(frame: Any, model: Any) -> None:
    optimizer = frame.Optimizer(model, 0.1)
    optimizer.momentum["a.bias"] = Parameter(frame.backend.to_device(np.ones(64), CPU), "state")
    tree = {"model": model, "optimizer": optimizer}
    plan = ds.Placement.balanced(tree, [G0, G1], [2000, 2000])
    assert {path.partition(".")[0] for path, _ in plan.items()} == {"model"}
    ds.place(tree, plan)
    assert devices(optimizer) == {"a.bias": "gpu:0"}
    tied = {"first": model, "second": model}
    assert ds.Placement.balanced(tied, [G0], [2000])["first.a.bias"] is G0


def test_a_block_that_cannot_be_cut_is_not_inside_itself() -> None:
    leaf, other = Block("a.0", ("w",)), Block("a.1", ("v",))
    assert Block.of("a", ("w",), ()).children == ()
    assert Block.of("a", ("w",), (leaf,)).children == ()
    assert Block.of("a", ("w", "v"), (leaf, other)).children == (leaf, other)
    nested = Block("a.0", ("w", "v"), (leaf, other))
    assert Block.of("a", ("w", "v"), (nested,)).children == (nested,)
