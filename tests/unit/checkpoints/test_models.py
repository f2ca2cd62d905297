"""Tests of model and optimizer checkpoints: atomic loading in place, by name or by layer, from any framework."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from toy_models import Model, Parameter, Toys, classes_of

import devshim as ds
from devshim.contract.backend import Gap
from devshim.devices.device import CPU
from devshim.registry import discovery, registry

G0, G1 = ds.gpu(0), ds.gpu(1)


@pytest.fixture
def first(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a fictitious framework with models, whose layouts are the canonical ones."""
    for name in ("is_model", "leaves", "access", "install_hooks", "layers", "get_extra_state", "set_extra_state"):
        monkeypatch.setattr(type(fake), name, getattr(Toys, name), raising=False)
    monkeypatch.setattr(type(fake), "refuses", None, raising=False)
    monkeypatch.setattr(type(fake), "gaps", {name: gap for name, gap in fake.gaps.items() if name != "models"})
    return SimpleNamespace(backend=fake, **vars(classes_of("fakeframe")))


@pytest.fixture
def second(first: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield another framework, with its own tensors, whose linear and conv weights are transposed."""
    name = "otherframe"
    tensor = type("Array", (type(first.backend.to_device(np.zeros(1), CPU)),), {"__module__": name})
    backend = type(
        "OtherBackend",
        (type(first.backend),),
        {
            "name": name,
            "title": "Otherframe",
            "is_tensor": lambda self, cls: cls is tensor,
            "to_device": lambda self, array, device: settled(array.view(tensor), device),
        },
    )
    adapter = ModuleType("otherframe_devshim")
    adapter.Backend = backend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "otherframe_devshim", adapter)
    point = SimpleNamespace(name=name, value="otherframe_devshim:Backend", dist=None)
    monkeypatch.setattr(discovery, "_entry_points", {**discovery.third_party(), name: [point]})
    yield SimpleNamespace(backend=registry.load(name), **vars(classes_of(name)))
    del registry.LOADED[name]
    registry.TENSORS.pop(tensor, None)


def settled(array: Any, device: ds.Device) -> Any:
    array.card = device
    return array


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("f4")


def on(backend: Any, array: np.ndarray, device: ds.Device = CPU, kind: str = "parameter") -> Parameter:
    return Parameter(backend.to_device(array.copy(), device), kind)


def net(frame: Any, device: ds.Device = CPU, scale: float = 1.0) -> Any:
    """Return linear and batch norm, as the first framework names them and lays them out."""
    arrays = {"0.weight": numbers(4, 3), "0.bias": numbers(4), "1.gamma": numbers(4)}
    model = frame.Model(
        [
            ("linear", "0", {"weight": ("0.weight", None), "bias": ("0.bias", None)}, {}),
            ("batch_norm", "1", {"weight": ("1.gamma", None), "mean": ("1.mean", None)}, {"epsilon": 1e-5}),
        ],
        **{name: on(frame.backend, scale * array, device) for name, array in arrays.items()},
    )
    model.parameters["1.mean"] = on(frame.backend, scale * numbers(4), device, "buffer")
    return model


def turned_net(frame: Any, device: ds.Device = CPU, **facts: Any) -> Any:
    """Return the same layers, as the second framework has them."""
    arrays = {"dense/kernel": np.zeros((3, 4)), "dense/bias": np.zeros(4), "norm/scale": np.zeros(4)}
    model = frame.Model(
        [
            ("linear", "dense", {"weight": ("dense/kernel", (1, 0)), "bias": ("dense/bias", None)}, {}),
            (
                "batch_norm",
                "norm",
                {"weight": ("norm/scale", None), "mean": ("norm/average", None)},
                {"epsilon": 1e-5, **facts},
            ),
        ],
        **{name: on(frame.backend, array.astype("f4"), device) for name, array in arrays.items()},
    )
    model.parameters["norm/average"] = on(frame.backend, np.zeros(4, "f4"), device, "buffer")
    return model


def state(obj: Any) -> dict[str, tuple[bytes, ds.Device]]:
    held = obj.parameters if isinstance(obj, Model) else obj.momentum
    return {name: (np.asarray(each.data).tobytes(), ds.device_of(each.data)) for name, each in held.items()}


def values(obj: Any) -> dict[str, bytes]:
    return {name: data for name, (data, _) in state(obj).items()}


# ---------------------------------------------------------------------- by name
def test_a_model_is_filled_in_place_where_it_is(first: Any, path: Path) -> None:
    saved, model = net(first, G0), net(first, G1, 0)
    parameters = dict(model.parameters)
    gradient = model.parameters["0.weight"].gradient = first.backend.to_device(np.ones((4, 3), "f4"), G1)
    ds.save(saved, path)
    assert ds.load(path, into=model) is model
    assert values(model) == values(saved)
    assert {device for _, device in state(model).values()} == {G1}
    assert all(model.parameters[name] is parameter for name, parameter in parameters.items())
    assert model.parameters["0.weight"].gradient is gradient
    assert model.rewired == 0, "nothing is elsewhere than it was"


def test_a_model_is_filled_on_its_target_gradients_included(first: Any, path: Path) -> None:
    saved, model = net(first), net(first, G1, 0)
    model.parameters["0.weight"].gradient = first.backend.to_device(np.ones((4, 3), "f4"), G1)
    ds.save(saved, path)
    ds.load(path, 0, into=model)
    assert values(model) == values(saved)
    assert {device for _, device in state(model).values()} == {G0}
    assert ds.device_of(model.parameters["0.weight"].gradient) is G0
    assert model.rewired == 1
    ds.load(path, ds.Placement({"0": "gpu:1", "1.*": "cpu"}), into=model)
    assert [device for _, device in state(model).values()] == [G1, G1, CPU, CPU]


def test_without_into_a_model_is_a_dict_of_its_tensors(first: Any, path: Path) -> None:
    ds.save({"net": net(first), "epoch": 3}, path)
    ds.simulate(2)
    back = ds.load(path, ds.Placement({"net.0": "gpu:1"}, default="cpu"))
    assert list(back["net"]) == ["0.weight", "0.bias", "1.gamma", "1.mean"]
    assert back["epoch"] == 3
    assert [ds.device_of(x) for x in back["net"].values()] == [G1, G1, CPU, CPU]
    assert ds.to_numpy(back["net"]["0.weight"]).tobytes() == numbers(4, 3).tobytes()


def test_gradients_are_not_saved(first: Any, path: Path) -> None:
    model = net(first)
    model.parameters["0.weight"].gradient = first.backend.to_device(np.ones((4, 3), "f4"), CPU)
    ds.save(model, path)
    assert "0.weight.grad" not in ds.load(path)


def test_ties_are_saved_once_and_stay(first: Any, path: Path) -> None:
    saved, model = net(first), net(first, CPU, 0)
    for each in (saved, model):
        each.parameters["again"] = each.parameters["0.weight"]
    ds.save(saved, path)
    assert len(path.read_bytes().split(numbers(4, 3).tobytes())) == 2
    ds.load(path, into=model)
    assert model.parameters["again"] is model.parameters["0.weight"]
    assert values(model) == values(saved)
    back = ds.load(path)
    assert back["again"] is back["0.weight"]
    saved.parameters["again"] = on(first.backend, numbers(4, 3) + 1)
    ds.save(saved, path)
    before = state(model)
    with pytest.raises(ds.CheckpointError, match=r"'0.weight' and 'again' are one tensor, but two in the file"):
        ds.load(path, into=model)
    assert state(model) == before


def test_any_programs_tensors_by_name_fill_a_model(first: Any, path: Path) -> None:
    model = net(first, G1, 0)
    ds.save({name: np.asarray(each.data) for name, each in net(first).parameters.items()}, path)
    ds.load(path, into=model)
    assert values(model) == values(net(first))


# ---------------------------------------------------------------------- optimizers
def test_training_goes_on_from_a_checkpoint_also_in_a_fresh_optimizer(first: Any, path: Path) -> None:
    model = net(first, G0)
    optimizer = first.Optimizer(model, 0.5)
    optimizer.step()
    ds.save({"model": model, "optimizer": optimizer, "epoch": 1}, path)
    optimizer.step()
    fresh = net(first, G1, 0)
    other = first.Optimizer(fresh, 0.1)
    into = {"model": fresh, "optimizer": other, "epoch": 0}
    back = ds.load(path, into=into)
    assert (back["model"], back["optimizer"], back["epoch"], other.rate) == (fresh, other, 1, 0.5)
    assert {device for _, device in state(other).values()} == {G1}
    other.step()
    assert values(fresh) == values(model)
    assert values(other) == values(optimizer)


def test_state_goes_where_its_parameter_goes(first: Any, path: Path) -> None:
    model = net(first)
    optimizer = first.Optimizer(model, 0.5)
    optimizer.step()
    ds.save([model, optimizer], path)
    both = [model, optimizer]
    assert ds.load(path, ds.Placement({"0.0": "gpu:1", "0.1": "gpu:0"}, default="cpu"), into=both) is both
    assert [device for _, device in state(optimizer).values()] == [G1, G1, G0, G0]


def test_a_part_can_be_left_out(first: Any, path: Path) -> None:
    model = net(first)
    optimizer = first.Optimizer(model, 0.5)
    optimizer.step()
    ds.save([model, optimizer], path)
    fresh = net(first, CPU, 0)
    assert ds.load(path, into=[fresh, None])[0] is fresh
    assert values(fresh) == values(model)
    with pytest.raises(ds.CheckpointError, match=r"`into`.*a Model would be replaced by a list"):
        ds.load(path, into=fresh)


# ---------------------------------------------------------------------- atomicity
def failing(first: Any, path: Path) -> tuple[Any, Any, Any]:
    saved = net(first, CPU, 2)
    optimizer = first.Optimizer(saved, 0.5)
    optimizer.step()
    ds.save([saved, optimizer], path)
    model = net(first, G1)
    return saved, model, first.Optimizer(model, 0.1)


@pytest.mark.parametrize("leaf", ["0.weight", "1.gamma", "1.mean"])
def test_a_write_that_fails_puts_everything_back(leaf: str, first: Any, path: Path) -> None:
    _, model, optimizer = failing(first, path)
    before, data = state(model), [each.data for each in model.parameters.values()]
    first.backend.refuses = leaf
    with pytest.raises(RuntimeError, match="asked to"):
        ds.load(path, into=[model, optimizer])
    assert state(model) == before
    assert all(each.data is old for each, old in zip(model.parameters.values(), data, strict=True))
    assert (optimizer.momentum, optimizer.rate) == ({}, 0.1)


@pytest.mark.parametrize("failure", [MemoryError("full"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("at", range(1, 9))
def test_a_load_that_fails_in_the_middle_changes_nothing(
    at: int, failure: BaseException, first: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model, optimizer = failing(first, path)
    before, count = state(model), 0
    kept = type(first.backend).from_numpy

    def from_numpy(self: Any, array: Any, device: Any, copy: bool) -> Any:
        nonlocal count
        count += 1
        if count == at:
            raise failure
        return kept(self, array, device, copy)

    monkeypatch.setattr(type(first.backend), "from_numpy", from_numpy)
    expected = ds.OutOfMemoryError if isinstance(failure, MemoryError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        ds.load(path, 0, into=[model, optimizer])
    if isinstance(failure, MemoryError):
        names = [f"0.{name}" for name in model.parameters] + [f"1.{name}" for name in model.parameters]
        assert f"leaf {names[at - 1]} of the tree" in str(caught.value)
    assert state(model) == before
    assert (optimizer.momentum, optimizer.rate, model.rewired) == ({}, 0.1, 0)


def test_damage_found_on_the_way_changes_nothing(first: Any, path: Path) -> None:
    saved, model, optimizer = failing(first, path)
    content = bytearray(path.read_bytes())
    content[content.index(np.asarray(saved.parameters["0.weight"].data).tobytes()) + 2] ^= 1
    path.write_bytes(content)
    before = state(model)
    with pytest.raises(ds.CheckpointError, match=r"the tensor '0.0.weight' are damaged"):
        ds.load(path, into=[model, optimizer])
    assert state(model) == before
    assert (optimizer.momentum, optimizer.rate) == ({}, 0.1)


def test_what_an_optimizer_refuses_changes_nothing(first: Any, path: Path) -> None:
    _, model, _ = failing(first, path)
    before = state(model)
    stranger = first.Optimizer(first.Model([], x=on(first.backend, numbers(2))), 0.3)
    with pytest.raises(ds.CheckpointError, match="another optimizer"):
        ds.load(path, into=[model, stranger])
    assert state(model) == before
    assert stranger.rate == 0.3


# ---------------------------------------------------------------------- files that do not match
def less(model: Any) -> None:
    del model.parameters["0.bias"]
    model.layers.clear()


def more(model: Any) -> None:
    model.parameters["2.weight"] = Parameter(model.parameters["0.bias"].data)
    model.layers.clear()


def wider(model: Any) -> None:
    model.parameters["0.bias"].data = np.zeros(7, "f4").view(type(model.parameters["0.bias"].data))


def longer(model: Any) -> None:
    model.parameters["0.bias"].data = model.parameters["0.bias"].data.astype("f8")


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (less, r"it also has '0.bias'"),
        (more, r"the file lacks '2.weight'"),
        (wider, r"its '0.bias' is float32 of shape \(7,\), and in the file '0.bias' is float32 of shape \(4,\)"),
        (longer, r"its '0.bias' is float64 of shape \(4,\)"),
        (lambda model: (model.parameters.clear(), model.layers.clear()), "build it first"),
    ],
)
def test_another_model_is_refused_leaf_by_name(change: Any, reported: str, first: Any, path: Path) -> None:
    ds.save(net(first), path)
    model = net(first, CPU, 0)
    change(model)
    before = state(model)
    with ds.transfers() as log, pytest.raises(ds.CheckpointError, match=reported):
        ds.load(path, into=model)
    assert log.count == 0
    assert state(model) == before


def test_something_else_is_refused(first: Any, path: Path) -> None:
    ds.save({"net": net(first), "n": 3}, path)
    for into, reported in (
        ({"net": 3, "n": 3}, r"at \['net'\] 3 would be replaced by a Model of Fakeframe"),
        ({"net": np.ones(3), "n": 3}, r"at \['net'\] a tensor would be replaced by a Model"),
        ({"net": None, "n": net(first)}, r"at \['n'\] a Model would be replaced by an int"),
    ):
        with pytest.raises(ds.CheckpointError, match=reported):
            ds.load(path, into=into)


# ---------------------------------------------------------------------- another framework
def test_weights_cross_frameworks_layer_by_layer(first: Any, second: Any, path: Path) -> None:
    saved, model = net(first, G1), turned_net(second, G0)
    ds.save(saved, path)
    ds.load(path, into=model)
    kernel = model.parameters["dense/kernel"].data
    assert type(kernel).__module__ == "otherframe"
    assert ds.device_of(kernel) is G0
    assert np.array_equal(np.asarray(kernel), numbers(4, 3).T)
    assert values(model)["dense/bias"] == values(saved)["0.bias"]
    assert values(model)["norm/average"] == values(saved)["1.mean"]
    back = net(first, CPU, 0)
    ds.save(model, path)
    ds.load(path, into=back)
    assert values(back) == values(saved), "and back, to the bit"


def test_the_same_framework_with_other_names_goes_by_layers_too(second: Any, path: Path) -> None:
    saved, model = turned_net(second), turned_net(second)
    saved.parameters["dense/kernel"].data += 3
    ds.save(saved, path)
    model.parameters = {f"{name}_1": each for name, each in model.parameters.items()}
    model.layers = [
        (kind, f"{name}_1", {role: (f"{leaf}_1", axes) for role, (leaf, axes) in weights.items()}, facts)
        for kind, name, weights, facts in model.layers
    ]
    ds.load(path, into=model)
    assert list(values(model).values()) == list(values(saved).values())


def conv(frame: Any, name: str, array: np.ndarray, axes: Any, **facts: Any) -> Any:
    return frame.Model(
        [("conv", name, {"weight": (f"{name}.w", axes)}, facts)], **{f"{name}.w": on(frame.backend, array)}
    )


def test_axes_are_exchanged_between_any_two_layouts(first: Any, second: Any, path: Path) -> None:
    canonical = numbers(5, 2, 3, 4)  # out, in, height, width
    for ours, theirs in (
        ((2, 3, 1, 0), None),
        ((2, 3, 1, 0), (0, 2, 3, 1)),
        (None, (1, 0, 2, 3)),
        ((3, 0, 2, 1), (2, 3, 1, 0)),
    ):
        there = canonical if theirs is None else canonical.transpose(theirs)
        here = canonical if ours is None else canonical.transpose(ours)
        ds.save(conv(first, "a", there, theirs), path)
        model = conv(second, "b", np.zeros_like(here), ours)
        ds.load(path, into=model)
        assert np.array_equal(np.asarray(model.parameters["b.w"].data), here)


def without(model: Any, index: int) -> Any:
    del model.layers[index]
    return model


UNLIKE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "epsilon": (
        lambda f: turned_net(f, epsilon=1e-3),
        r"its 'norm' \(batch_norm\) would get '1'.*epsilon is 0.001 here and 1e-05",
    ),
    "a fact more": (lambda f: turned_net(f, momentum=0.9), "momentum is 0.9 here and None in the file"),
    "fewer layers": (
        lambda f: without(turned_net(f), 0),
        r"the file's 2 layers are '0' \(linear\), '1' \(batch_norm\); the model's 1 are",
    ),
    "another kind": (lambda f: conv(f, "c", numbers(4, 3), None), "the model's 1 are 'c'"),
    "order": (lambda f: reordered(turned_net(f)), "they are of different kinds"),
    "roles": (lambda f: unbiased(turned_net(f)), "one has weight, the other bias, weight"),
    "shape": (
        lambda f: resized(turned_net(f)),
        r"its 'dense/kernel' is float32 of shape \(9, 4\).*'0.weight' is float32 of shape \(4, 3\)",
    ),
    "rank": (lambda f: ranked(turned_net(f)), r"its weight has 4 axes, and in the file 2"),
    "unknown": (lambda f: unknown(turned_net(f)), "no layer that devshim knows on both frameworks has 'extra'"),
}


def reordered(model: Any) -> Any:
    model.layers.reverse()
    return model


def unbiased(model: Any) -> Any:
    del model.layers[0][2]["bias"]
    return model


def resized(model: Any) -> Any:
    kernel = model.parameters["dense/kernel"]
    kernel.data = np.zeros((9, 4), "f4").view(type(kernel.data))
    return model


def ranked(model: Any) -> Any:
    model.layers[0][2]["weight"] = ("dense/kernel", (2, 3, 1, 0))
    return model


def unknown(model: Any) -> Any:
    model.parameters["extra"] = Parameter(model.parameters["dense/bias"].data)
    return model


@pytest.mark.parametrize("name", UNLIKE)
def test_a_mismatch_names_the_layers(name: str, first: Any, second: Any, path: Path) -> None:
    make, reported = UNLIKE[name]
    ds.save(net(first), path)
    model = make(second)
    before = state(model)
    with ds.transfers() as log, pytest.raises(ds.CheckpointError, match=reported) as caught:
        ds.load(path, into=model)
    assert log.count == 0
    assert caught.value.hint
    assert state(model) == before


def test_an_epsilon_of_32_bits_is_the_same(first: Any, second: Any, path: Path) -> None:
    ds.save(net(first), path)
    ds.load(path, into=turned_net(second, epsilon=float(np.float32(1e-5))))


def test_a_layer_of_no_known_kind_does_not_cross(first: Any, second: Any, path: Path) -> None:
    mine = first.Model([("other", "attention", {"w": ("a", None)}, {})], a=on(first.backend, numbers(2)))
    ds.save(mine, path)
    theirs = second.Model([("other", "attention", {"w": ("b", None)}, {})], b=on(second.backend, numbers(2)))
    with pytest.raises(ds.CheckpointError, match=r"'attention' \(other\).*no such layer"):
        ds.load(path, into=theirs)


def test_a_buffer_that_only_one_side_has_is_left_as_it_is(first: Any, second: Any, path: Path) -> None:
    saved, model = net(first), turned_net(second)
    saved.parameters["1.batches"] = on(first.backend, np.array(7), CPU, "buffer")
    model.parameters["norm/seed"] = on(second.backend, np.array([5]), CPU, "buffer")
    ds.save(saved, path)
    ds.load(path, into=model)
    assert int(model.parameters["norm/seed"].data[0]) == 5


def test_an_optimizers_state_does_not_cross_and_the_model_alone_does(first: Any, second: Any, path: Path) -> None:
    saved = net(first)
    optimizer = first.Optimizer(saved, 0.5)
    optimizer.step()
    ds.save([saved, optimizer], path)
    model = turned_net(second)
    other = second.Optimizer(model, 0.1)
    before = state(model)
    with pytest.raises(ds.CheckpointError, match=r"optimizer of Fakeframe.*one of Otherframe") as caught:
        ds.load(path, into=[model, other])
    assert "into=[model, None]" in str(caught.value)
    assert state(model) == before
    ds.load(path, into=[model, None])
    assert values(model)["dense/bias"] == values(saved)["0.bias"]


def test_a_backend_without_models_says_so(first: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(first.backend), "gaps", {"models": Gap("planned", "they come later")})
    model = net(first)
    for call in (lambda: ds.save(model, path), lambda: ds.load(path, into=model)):
        ds.save([1], path)
        with pytest.raises(ds.UnsupportedError, match="they come later"):
            call()
