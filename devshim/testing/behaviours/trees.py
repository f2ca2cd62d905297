"""Tests of trees: containers keep their type, order and identity; either all tensors move, or none."""

from __future__ import annotations

import dataclasses
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, namedtuple
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import devshim as ds
from devshim.testing.base import Kit
from devshim.testing.values import feature, hook, numbers

if TYPE_CHECKING:
    from devshim.devices.device import Device

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Batch:
    """A container with a field that is not a tensor."""

    x: Any
    name: str
    extra: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A container that forbids assignment, and counts how often it is initialized."""

    x: Any
    made: list[int] = dataclasses.field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        self.made.append(1)


class TreeTests(Kit):
    """`place` and `copy` of every container of tensors."""

    def trees(self, device: Device) -> dict[str, tuple[Any, Any]]:
        """Return each kind of tree on a device, with a function that gets its tensor."""
        x = self.tensor(device)
        return {
            "dict": ({"b": x, "a": 1}, lambda t: t["b"]),
            "list": ([0, x, "text"], lambda t: t[1]),
            "tuple": ((x, None), lambda t: t[0]),
            "namedtuple": (Pair(1, x), lambda t: t.right),
            "dataclass": (Batch(x, "name", [1]), lambda t: t.x),
            "frozen": (Frozen(x), lambda t: t.x),
            "ordered": (OrderedDict(z=x, a=2), lambda t: t["z"]),
            "default": (defaultdict(list, {"k": x}), lambda t: t["k"]),
            "deep": ({"a": [({"b": Pair(Batch(x, "n"), 3)},)]}, lambda t: t["a"][0][0]["b"].left.x),
        }

    @feature("place")
    @pytest.mark.parametrize(
        "kind", ["dict", "list", "tuple", "namedtuple", "dataclass", "frozen", "ordered", "default", "deep"]
    )
    def test_a_tree_moves(self, kind: str, journey: tuple[Device, Device]) -> None:
        """The tensors are copied, the containers have the same types, and the given tree is unchanged."""
        tree, tensor = self.trees(journey[0])[kind]
        before = tensor(tree)
        moved = ds.copy(tree, journey[1])
        assert type(moved) is type(tree)
        assert ds.device_of(tensor(moved)) is journey[1]
        assert tensor(tree) is before
        assert self.same_numbers(tensor(moved), numbers())

    @feature("place")
    @pytest.mark.parametrize("kind", ["dict", "list", "tuple", "namedtuple", "dataclass", "frozen", "default", "deep"])
    def test_a_tree_that_is_there_is_the_same_object(self, kind: str, device: Device) -> None:
        """If every tensor is already there, the same container is returned."""
        tree, _ = self.trees(device)[kind]
        assert ds.place(tree, device) is tree
        assert ds.place(tree, device, copy=False) is tree

    @feature("place")
    @pytest.mark.parametrize("tree", [{}, [], (), {"a": [1, "b", None]}, Pair(1, 2)], ids=repr)
    def test_a_tree_without_tensors_is_the_same_object(self, tree: Any, device: Device) -> None:
        """A tree without tensors is returned unchanged."""
        assert ds.place(tree, device) is tree
        assert ds.copy(tree, device) is tree

    @feature("place")
    def test_a_balanced_placement_of_a_tree(self, away: tuple[Device, Device]) -> None:
        """A weight and its bias are on one device; a plan also works for a model next to other objects in a list."""
        net = [{"w": self.tensor(shape=(4, 4)), "b": self.tensor(shape=(4,))} for _ in range(2)]
        plan = ds.Placement.balanced(net, list(away))
        assert plan.devices == set(away)
        tree: Any = [[net, {"mu": net, "count": ds.ones(())}], "name"]
        (moved, state), name = ds.place(tree, plan)
        assert name == "name"
        assert ds.placement_of(moved) == ds.placement_of(state["mu"]) == plan
        x = self.tensor(away[0], shape=(2, 4))
        for layer in moved:
            x = ds.place(x, ds.device_of(layer["w"]))
            x = ds.run(lambda x, layer: self.matmul(x, layer["w"]) + layer["b"], x, layer)
        assert ds.device_of(x) is away[1]

    # ------------------------------------------------------------------ containers registered with the framework
    @feature("place")
    @hook("containers")
    def test_registered_containers_move(self, away: tuple[Device, Device]) -> None:
        """Each container comes back as the same type with its tensor on the device; the given one is unchanged."""
        for kind, (tree, tensor) in self.containers(self.tensor(away[0])).items():
            before = ds.to_numpy(tensor(tree))
            moved = ds.place({"in": [tree]}, away[1])["in"][0]
            assert type(moved) is type(tree), kind
            assert ds.device_of(tensor(moved)) is away[1], kind
            assert ds.device_of(tensor(tree)) is away[0], kind
            assert (ds.to_numpy(tensor(moved)) == before).all(), kind
            assert ds.place(moved, away[1]) is moved, kind
            assert ds.device_of(tensor(ds.copy(tree, away[1]))) is away[1], kind

    @feature("several")
    @hook("containers")
    def test_every_call_supports_registered_containers(self, away: tuple[Device, Device], tmp_path: Any) -> None:
        """These calls also traverse registered containers as `place` does.

        They are `split`, `gather`, `broadcast`, `placement_of`, `same_device`, `run`, `save` and `load`.
        """
        for kind, (tree, tensor) in self.containers(self.tensor(away[0])).items():
            values = ds.to_numpy(tensor(tree))
            plan = ds.placement_of(tree)
            assert plan.devices == {away[0]}, kind
            assert ds.placement_of(ds.place(tree, ds.Placement(dict.fromkeys(plan, away[1])))).devices == {away[1]}
            assert not ds.same_device(tree, self.tensor(away[1])), kind
            with pytest.raises(ds.DeviceMismatchError):
                ds.run(lambda *_: None, tree, self.tensor(away[1]))
            (copied,) = ds.broadcast(tree, [away[1]])
            assert ds.device_of(tensor(copied)) is away[1], kind
            with ds.transfers() as log:
                ds.place(tree, away[1])
            assert log.total_bytes >= values.nbytes, kind
            ds.save(tree, tmp_path / kind)
            filled = ds.load(tmp_path / kind, away[1], into=tree)
            assert type(filled) is type(tree), kind
            assert ds.device_of(tensor(filled)) is away[1], kind
            assert (ds.to_numpy(tensor(filled)) == values).all(), kind

    @feature("place")
    def test_objects_without_tensors_are_refused(self, other_device: Device) -> None:
        """A number, text, a set, a generator and an object are not trees; None is an empty tree."""
        things: list[Any] = [1, 2.5, "text", {1}, iter([self.tensor()]), object(), len]
        for thing in things:
            with pytest.raises(ds.NotATensorError):
                ds.place(thing, other_device)
        assert ds.place(None, other_device) is None

    @feature("place")
    def test_mappings_of_other_classes_move(self, journey: tuple[Device, Device]) -> None:
        """A `UserDict` and its subclasses, a read-only view, a chain of dicts and a namespace move as trees."""
        x = self.tensor(journey[0])
        for tree in (UserDict(k=x), MappingProxyType({"k": x}), ChainMap({"k": x}), UserDict(k=UserList([x, 1]))):
            moved = ds.copy(tree, journey[1])
            assert type(moved) is type(tree)
            assert ds.placement_of(moved).devices == {journey[1]}
        assert ds.device_of(ds.copy(SimpleNamespace(x=x), journey[1]).x) is journey[1]

    @feature("place")
    def test_a_numpy_array_does_not_go_to_another_frameworks_gpu(self, other_device: Device) -> None:
        """The hint is the line that makes a tensor of it, on simulated and real GPUs; also inside a tree."""
        if "numpy" in (self.backend, self.adapter.host_tensors) or other_device.kind == "cpu":
            assert ds.device_of(ds.place(numbers(), other_device)) is other_device
            return
        for tree in (numbers(), {"x": numbers()}, [self.tensor(other_device), numbers()]):
            with pytest.raises(ds.DeviceNotFoundError) as caught:
                ds.place(tree, other_device)
            assert f"ds.from_numpy(x, {str(other_device)!r})" in str(caught.value.hint)
        with pytest.raises(ds.DeviceMismatchError) as mixed:
            ds.require_same_device(x=self.tensor(other_device), y=numbers())
        assert mixed.value.hint == f"y = ds.from_numpy(y, {str(other_device)!r})"

    @feature("place")
    def test_leaves_that_did_not_move_are_shared(self, away: tuple[Device, Device]) -> None:
        """Subtrees in which nothing moved, and other values, are the same objects in the result."""
        still, other = [self.tensor(away[1])], object()
        tree = {"moves": self.tensor(away[0]), "still": still, "other": other}
        moved = ds.place(tree, away[1])
        assert moved is not tree
        assert moved["still"] is still
        assert moved["other"] is other
        assert ds.device_of(moved["moves"]) is away[1]
        assert ds.device_of(tree["moves"]) is away[0]

    @feature("place")
    def test_a_shared_tensor_moves_once(self, journey: tuple[Device, Device]) -> None:
        """A tensor that occurs twice in a tree is still one tensor afterwards."""
        x = self.tensor(journey[0])
        moved = ds.copy({"a": x, "b": [x, self.tensor(journey[0])]}, journey[1])
        assert moved["a"] is moved["b"][0]
        assert moved["a"] is not moved["b"][1]

    @feature("place")
    def test_order_and_extras_are_kept(self, journey: tuple[Device, Device]) -> None:
        """Dicts keep their insertion order and defaults; dataclasses are not initialized again."""
        x = self.tensor(journey[0])
        assert list(ds.copy({"z": x, 1: x, "a": 0}, journey[1])) == ["z", 1, "a"]
        assert ds.copy(defaultdict(list, k=x), journey[1]).default_factory is list
        frozen = ds.copy(Frozen(x), journey[1])
        assert frozen.made == [1]
        batch = ds.copy(Batch(x, "name", extra=(3,)), journey[1])
        assert (batch.name, batch.extra) == ("name", (3,))

    @feature("place")
    def test_a_tree_moves_like_its_leaves(self, away: tuple[Device, Device]) -> None:
        """Moving many tensors together gives the same values, dtypes, shapes and separate memory as moving each."""
        kinds = [("float32", (3, 4)), ("int32", (5,)), ("float32", ()), ("uint8", (2, 2)), ("float32", (0, 3))]
        arrays = [numbers(shape, dtype) for dtype, shape in kinds * 4]
        leaves = [ds.from_numpy(a, away[0]) for a in arrays]
        moved = ds.place({"leaves": leaves}, away[1])["leaves"]
        alone = [ds.place(x, away[1]) for x in leaves]
        for a, x, y in zip(arrays, moved, alone, strict=True):
            assert ds.device_of(x) is away[1]
            assert type(x) is type(y)
            assert self.adapter.dtype_name(x) == a.dtype.name
            assert self.adapter.shape(x) == a.shape
            assert (ds.to_numpy(x) == a).all()
        if not self.adapter.immutable:
            self.mutate(moved[0])
            assert all((ds.to_numpy(x) == a).all() for a, x in zip(arrays[1:], moved[1:], strict=True))
            assert (ds.to_numpy(leaves[0]) == arrays[0]).all()

    @feature("gradient")
    def test_gradients_flow_through_a_tree(self, away: tuple[Device, Device]) -> None:
        """A tensor that moves in a tree has the same gradient as one that moves by itself."""
        others = [self.tensor(away[0]) for _ in range(3)]
        gradient = self.gradient(lambda x: ds.place([*others, {"x": x}], away[1])[3]["x"], self.tensor(away[0]))
        assert gradient is not None
        assert self.same_numbers(gradient, 2 * numbers())

    @feature("missing_device")
    def test_a_missing_device_does_not_change_a_tree(self, missing_device: Device) -> None:
        """If the device does not exist, nothing moves."""
        xs = [self.tensor(), self.tensor()]
        tree: dict[str, Any] = {"a": xs[0], "b": (xs[1], 3)}
        with pytest.raises(ds.DeviceNotFoundError):
            ds.place(tree, missing_device)
        assert tree["a"] is xs[0]
        assert tree["b"][0] is xs[1]
        assert ds.device_of(xs[0]) is ds.cpu()

    @feature("place")
    def test_copy_false_refuses_a_tree_that_would_move(self, away: tuple[Device, Device]) -> None:
        """One tensor on another device is enough for ``copy=False`` to raise."""
        with pytest.raises(ds.CopyNeededError):
            ds.place([self.tensor(away[1]), self.tensor(away[0])], away[1], copy=False)

    @feature("place")
    def test_a_tree_that_contains_itself_is_refused(self) -> None:
        """A cycle raises `ArgumentError` instead of recursing forever."""
        tree: list[Any] = [self.tensor()]
        tree.append(tree)
        with pytest.raises(ds.ArgumentError):
            ds.place(tree, "cpu")
