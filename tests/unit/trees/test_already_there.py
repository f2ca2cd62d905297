"""Tests of the fast path for tensors that are already there: it gives the slow path's result, or defers to it."""

from __future__ import annotations

import random
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.contract.fast_paths import FastPaths
from devshim.errors.messages import tracing
from devshim.trees import trees

GPU = ds.gpu(1)
Pair = namedtuple("Pair", "left right")


@pytest.fixture(autouse=True)
def _cards(cards: object) -> None:
    """Use two simulated GPUs."""


@pytest.fixture
def asked(fake: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the calls of the fictitious framework's `device_of`.

    Its tensors themselves report if they are on the host.
    """
    found: list[Any] = []

    def device_of(self: Any, x: Any) -> ds.Device:
        found.append(x)
        return x.card  # type: ignore[no-any-return]

    monkeypatch.setattr(type(fake), "device_of", device_of)
    monkeypatch.setattr(fake, "fast_paths", FastPaths(host_flag="hosted"))
    monkeypatch.setattr(type(fake.to_device(np.ones(1), GPU)), "hosted", False, raising=False)
    return found


HOST = ds.cpu()


def tensor(fake: Any, device: ds.Device = HOST, hosted: object = None) -> Any:
    made = fake.to_device(np.ones(2), device)
    made.hosted = device is HOST if hosted is None else hosted
    return made


@pytest.mark.parametrize("keywords", [{}, {"copy": False}, {"copy": None, "non_blocking": True}])
def test_a_hosted_tensor_is_asked_nothing_more(fake: Any, asked: list[Any], keywords: Any) -> None:
    x = tensor(fake)
    assert ds.device_of(x) is ds.cpu()  # from here on the type is known
    for device in (ds.cpu(), "cpu", "CPU:0"):
        assert ds.place(x, device, **keywords) is x
    assert ds.place({"a": [x]}, "cpu", **keywords)["a"][0] is x
    assert asked == []


def test_only_true_is_an_answer(fake: Any, asked: list[Any]) -> None:
    """A compiler's replacement for a tensor returns an object for every attribute, which Python treats as true."""
    x = tensor(fake, GPU, hosted=object())
    assert ds.device_of(x) is GPU
    assert ds.device_of(ds.place(x, "cpu")) is ds.cpu()
    assert ds.device_of(ds.place([x], "cpu")[0]) is ds.cpu()
    assert len(asked) > 3


@pytest.mark.parametrize(("asked_for", "lands"), [(GPU, ds.cpu()), (ds.cpu(), GPU), (GPU, ds.gpu(0))])
def test_a_copy_that_lands_elsewhere_is_an_error(fake: Any, asked: list[Any], asked_for: Any, lands: Any) -> None:
    cls = type(fake.to_device(np.ones(1), GPU))
    cls.hosted = property(lambda self: self.card is HOST)  # the fixture restores it
    x = fake.to_device(np.ones(2), ds.gpu(0) if asked_for is not ds.gpu(0) else GPU)
    fake.lands_on = lands
    for tree in (x, [x]):
        with pytest.raises(ds.PlacementError, match=f"{lands} instead of {asked_for}"):
            ds.copy(tree, asked_for)


def test_a_copy_is_a_copy_and_nonsense_is_refused(fake: Any, asked: list[Any]) -> None:
    x = tensor(fake)
    assert ds.place(x, "cpu", copy=True) is not x
    assert ds.place([x], "cpu", copy=True)[0] is not x
    for nonsense in (0, 1, "yes"):
        with pytest.raises(ds.ArgumentError, match="copy is"):
            ds.place(x, "cpu", copy=nonsense)  # type: ignore[arg-type]
        with pytest.raises(ds.ArgumentError, match="copy is"):
            ds.place([x], "cpu", copy=nonsense)  # type: ignore[arg-type]


def test_a_hosted_tensor_still_moves_away(fake: Any, asked: list[Any]) -> None:
    x = tensor(fake)
    assert ds.device_of(ds.place(x, GPU)) is GPU
    for tree in (x, [x]):
        with pytest.raises(ds.DeviceNotFoundError):
            ds.place(tree, "gpu:9")
        with pytest.raises(ds.DeviceNotFoundError):
            ds.place(tree, "gpu:9", copy=False)
        with pytest.raises(ds.CopyNeededError):
            ds.place(tree, GPU, copy=False)


def test_observers_are_notified_as_before(fake: Any, asked: list[Any]) -> None:
    x = tensor(fake)
    with ds.explain(file=None) as lines, ds.guard("error"), ds.transfers() as log:
        assert ds.place(x, "cpu") is x
        assert ds.place([x], "cpu")[0] is x
    assert lines == ["x.go('cpu')", "x[0].go('cpu')"]
    assert log.count == 0


def test_what_cannot_be_located_is_left_to_the_closer_look(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def device_of(self: Any, x: Any) -> ds.Device:
        raise tracing(self, "device_of", "ask outside")

    x = tensor(fake)
    ds.device_of(x)
    monkeypatch.setattr(type(fake), "device_of", device_of)
    for tree in (x, [x], {"a": (1, x)}):
        with pytest.raises(ds.TracingError, match=r"ds\.place cannot work"):
            ds.place(tree, GPU)


def test_a_cycle_is_refused_though_every_tensor_is_there() -> None:
    x = np.ones(1)
    tree: Any = [x, {"x": x}]
    tree[1]["back"] = tree
    with pytest.raises(ds.ArgumentError, match="contains itself"):
        ds.place(tree, "cpu")
    shared = [x]
    twice = {"a": shared, "b": (shared, shared)}
    assert ds.place(twice, "cpu") is twice


def test_what_may_be_a_model_or_a_container_never_takes_the_fast_path() -> None:
    class Model:
        pass

    assert not trees.all_on_target([Model()], ds.cpu())
    assert not trees.all_on_target(Model(), ds.cpu())
    assert trees.all_on_target([1, "a", None, 2.5], GPU)


def test_a_tree_is_flattened_at_most_once(monkeypatch: pytest.MonkeyPatch) -> None:
    here, away = ds.ones(2, device=GPU), ds.ones(2)
    assert ds.same_device(here, here)  # from here on the type is known
    looked: list[object] = []
    own = trees.flatten
    monkeypatch.setattr(trees, "flatten", lambda tree: looked.append(tree) or own(tree))
    ds.place([here, {"x": here}], GPU)
    assert looked == []
    shared = [here]
    moving = [[here, Pair(away, 1)], Pair(away, 1), OrderedDict(a=Pair(here, 1)), [shared, shared, away], [here, away]]
    for tree in moving:
        ds.place(tree, GPU)
    assert all(one is other for one, other in zip(looked, moving, strict=True))


def a_tree(draw: random.Random, here: Any, away: Any, depth: int = 0) -> Any:
    kind = draw.randrange(9 if depth < 3 else 3)
    if kind < 3:
        return (here, draw.choice([1, None, "text"]), away if draw.random() < 0.15 else here)[kind]
    parts = [a_tree(draw, here, away, depth + 1) for _ in range(draw.randrange(4))]
    named = {str(i): part for i, part in enumerate(parts)}
    return (parts, tuple(parts), named, OrderedDict(named), defaultdict(list, named), Pair(parts, 1))[kind - 3]


@pytest.mark.parametrize("seed", range(60))
def test_a_glance_says_what_a_closer_look_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never returns the tree if a tensor must move, and always recognizes a plain tree in which none must."""
    here, away = ds.ones(2, device=GPU), ds.ones(2)
    tree = [a_tree(random.Random(seed), here, away)]  # a bare number is refused
    glance = trees.all_on_target(tree, GPU)
    placed = ds.place(tree, GPU)
    monkeypatch.setattr(trees, "all_on_target", lambda *_: False)
    looked = ds.place(tree, GPU)
    assert (placed is tree) == (looked is tree)
    if glance:
        assert looked is tree
    assert ds.same_device(looked, here)
