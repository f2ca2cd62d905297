"""Tests of calls inside a compiled function: every container works as outside; NumPy arrays play the tracers."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.contract.backend import Gap
from devshim.registry import current, registry, tracing

CPU, GPU = ds.cpu(), ds.gpu(1)
Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Batch:
    x: Any
    size: int = 2


CONTAINERS = {
    "dict": lambda x: {"b": x, "a": 1, "none": None},
    "list": lambda x: [x, "text"],
    "tuple": lambda x: (2.5, x),
    "ordered": lambda x: OrderedDict(b=x, a=x),
    "defaultdict": lambda x: defaultdict(list, b=x),
    "named tuple": lambda x: Pair(x, 1),
    "dataclass": Batch,
    "namespace": lambda x: SimpleNamespace(x=x),
    "mapping": lambda x: UserDict(x=x),
    "deque": lambda x: deque([x]),
    "nested": lambda x: {"a": [x, (x, {"deep": Pair([x], None)})], "b": Batch(x)},
}


@pytest.fixture(autouse=True)
def compiles(cards: object, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs another as if NumPy were compiling it."""
    numpy = registry.load("numpy")
    monkeypatch.setattr(current, "traced_scopes", current.traced_scopes)  # `on` in such a function sets it for good

    def compiled(function: Any, *arguments: Any) -> Any:
        with monkeypatch.context() as during:
            during.setattr(type(numpy), "compiling", lambda self: True)
            during.setattr(tracing, "COMPILERS", [numpy])
            return function(*arguments)

    return compiled


@pytest.fixture
def x() -> np.ndarray:
    return ds.ones(3, device=GPU)


def shown(tree: Any) -> str:
    """Return everything about a tree as text: its types, its order, its values, and their devices."""
    return f"{tree!r} {ds.placement_of(tree)}"


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_a_tree_moves_as_it_does_outside(make: Any, x: np.ndarray, compiles: Any) -> None:
    tree = make(x)
    before = shown(tree)
    moved = compiles(ds.place, tree, "cpu")
    assert type(moved) is type(tree)
    assert shown(moved) == shown(ds.place(tree, "cpu"))
    assert ds.placement_of(moved).devices == {CPU}
    assert shown(tree) == before


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_a_tree_that_is_there_is_itself(make: Any, x: np.ndarray, compiles: Any) -> None:
    tree = make(x)
    assert compiles(ds.place, tree, GPU) is tree
    copied = compiles(ds.copy, tree, GPU)
    assert copied is not tree
    assert shown(copied) == shown(tree)


def test_what_stays_in_a_tree_is_the_same_object(x: np.ndarray, compiles: Any) -> None:
    tree = {"stays": [x], "moves": [x, np.zeros(2)], "first": np.zeros(1), "last": x}
    moved = compiles(ds.place, tree, GPU)
    assert moved["stays"] is tree["stays"]
    assert moved["moves"][0] is x
    assert moved["last"] is x
    assert ds.placement_of(moved).devices == {GPU}


def test_a_placement_gives_each_leaf_its_device(x: np.ndarray, compiles: Any) -> None:
    tree = {"a": [x, x], "b": {"a": x}, "c": x}
    plan = ds.Placement({"a.1": "gpu:0", "b": "cpu"}, default=GPU)
    moved = compiles(ds.place, tree, plan)
    assert ds.placement_of(moved) == ds.Placement({"a.0": GPU, "a.1": ds.gpu(0), "b.a": CPU, "c": GPU})


@pytest.mark.parametrize("given", [3, "text", object(), np.float64(1.0)], ids=["number", "text", "object", "scalar"])
def test_what_holds_no_tensor_is_refused(given: Any, compiles: Any) -> None:
    with pytest.raises(ds.NotATensorError, match=type(given).__name__):
        compiles(ds.place, given, GPU)


def test_nothing_is_an_empty_tree(compiles: Any) -> None:
    assert compiles(ds.place, None, GPU) is None
    assert compiles(ds.place, {}, GPU) == {}


@pytest.mark.parametrize("inside", [lambda model: model, lambda model: {"a": [1, model]}], ids=["alone", "in a tree"])
def test_models_are_moved_outside(inside: Any, compiles: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled function would move them once, while it is compiled."""
    numpy = registry.load("numpy")

    class Model:
        __module__ = "numpy"

    monkeypatch.setattr(type(numpy), "is_model", lambda self, cls: cls is Model)
    monkeypatch.setattr(type(numpy), "gaps", {})
    with pytest.raises(ds.TracingError, match="before the compiled function is called"):
        compiles(ds.place, inside(Model()), GPU)
    monkeypatch.setattr(type(numpy), "gaps", {"models": Gap("never", "it has none")})
    with pytest.raises(ds.DevshimError):
        compiles(ds.place, inside(Model()), GPU)


def test_tensors_are_required_together_as_outside(x: np.ndarray, compiles: Any) -> None:
    def require(**arguments: Any) -> Any:
        return compiles(lambda: ds.require_same_device(**arguments))

    tree = {"a": [1, x], "b": (x, None)}
    assert require(tree=tree, x=x) is GPU
    assert require(nothing=[1, "text"]) is None
    apart = {"a": [1, x], "b": (np.zeros(1), "text")}
    with pytest.raises(ds.DeviceMismatchError) as outside:
        ds.require_same_device(x=apart)
    with pytest.raises(ds.DeviceMismatchError) as inside:
        require(x=apart)
    assert str(inside.value) == str(outside.value)


def test_the_default_device_is_that_of_the_compiled_functions_block(compiles: Any) -> None:
    def function() -> list[Any]:
        found = []
        with ds.on(GPU):
            found.append(ds.zeros(1))
            with ds.on("gpu:0"):
                found.append(ds.zeros(1))
            found.append(ds.zeros(1))
        return found

    assert [ds.device_of(each) for each in compiles(function)] == [GPU, ds.gpu(0), GPU]
    with pytest.raises(ds.TracingError, match="cannot know the default device"):
        compiles(ds.zeros, 1)
    with pytest.raises(ZeroDivisionError):
        compiles(failing)
    assert not current.TRACED.devices
    assert ds.device_of(ds.zeros(1)) is CPU


def failing() -> None:
    with ds.on(GPU):
        raise ZeroDivisionError


def test_what_runs_later_is_not_recorded_now(x: np.ndarray, compiles: Any) -> None:
    """The framework makes the copy each time the compiled function runs."""
    with ds.transfers() as log:
        assert ds.device_of(compiles(ds.place, x, "cpu")) is CPU
        assert ds.device_of(compiles(ds.place, [x], "cpu")[0]) is CPU
        assert log.count == 0
        ds.place(x, "cpu")
    assert log.count == 1


def test_a_tracer_has_no_source_to_record(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def sources(self: Any, x: Any) -> Any:
        raise ds.TracingError("a tracer is nowhere", "ask outside")

    x = fake.to_device(np.ones(2), CPU)
    monkeypatch.setattr(type(fake), "sources", sources, raising=False)
    with ds.transfers() as log:
        assert ds.place(x, GPU).card is GPU
    assert log.count == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ds.to_numpy(x),
        lambda x: ds.from_numpy(np.ones(1)),
        lambda x: ds.save(x, "never-written"),
    ],
    ids=["to_numpy", "from_numpy", "save"],
)
def test_what_would_be_done_once_is_refused(x: np.ndarray, compiles: Any, call: Any) -> None:
    with pytest.raises(ds.TracingError) as caught:
        compiles(call, x)
    assert caught.value.hint
