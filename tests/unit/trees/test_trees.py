"""Tests of trees: every container keeps its type and order, shared parts stay shared, and moves are atomic."""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
import warnings
import weakref
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import optree
import pytest

import devshim as ds
from devshim.trees import not_moved
from devshim.trees.containers import NAMESPACE

GPU = ds.gpu(1)


@pytest.fixture(autouse=True)
def _cards(cards: object) -> None:
    """Use two simulated GPUs."""


@pytest.fixture
def x() -> np.ndarray:
    return np.arange(3.0)


def on(value: Any) -> bool:
    return ds.device_of(value) is GPU


class Point(NamedTuple):
    x: Any
    y: Any


class Sub(namedtuple("Sub", "x y")):
    """A named tuple's subclass with a property, and with attributes of each instance, since it has no ``__slots__``."""

    @property
    def both(self) -> tuple[Any, Any]:
        return self.x, self.y


class Plain(tuple[object, ...]):
    name: str


class Bag(dict):  # type: ignore[type-arg]
    label = "none"


class Row(list):  # type: ignore[type-arg]
    label = "none"


@dataclasses.dataclass
class Open:
    a: Any
    b: Any = 1
    hidden: Any = dataclasses.field(default=None, init=False, repr=False)
    shared: ClassVar[Any] = np.zeros(1)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: Any
    b: Any = 1


@dataclasses.dataclass(frozen=True)
class HandSlotted:
    __slots__ = ("a", "b")
    a: Any
    b: Any


class Registered:
    def __init__(self, *parts: Any, note: str) -> None:
        self.parts, self.note = parts, note


optree.register_pytree_node(
    Registered,
    lambda node: (node.parts, node.note),
    lambda note, parts: Registered(*parts, note=note),
    namespace=NAMESPACE,
)


def test_builtin_containers(x: np.ndarray) -> None:
    tree = {"l": [x, 1], "t": (x, "s"), "d": {"inner": x}, "n": None}
    moved = ds.place(tree, GPU)
    assert list(moved) == ["l", "t", "d", "n"]
    assert [type(part) for part in moved.values()] == [list, tuple, dict, type(None)]
    assert all(map(on, (moved["l"][0], moved["t"][0], moved["d"]["inner"])))
    assert (moved["l"][1], moved["t"][1]) == (1, "s")
    assert tree["l"][0] is x


@pytest.mark.parametrize("cls", [OrderedDict, dict, Bag])
def test_dicts_keep_type_and_order(cls: Any, x: np.ndarray) -> None:
    tree = cls([("z", x), ("a", 1), ("m", x)])
    moved = ds.place(tree, GPU)
    assert type(moved) is cls
    assert list(moved) == ["z", "a", "m"]
    assert on(moved["m"])


def test_what_a_subclass_carries_is_kept(x: np.ndarray) -> None:
    bag, row, plain = Bag(a=x), Row([x]), Plain((x, 1))
    bag.label = row.label = plain.name = "mine"
    factory = defaultdict(list, a=x)
    moved = ds.place([bag, row, plain, factory, Counter("aa"), deque([x], maxlen=3)], GPU)
    assert (moved[0].label, moved[1].label, moved[2].name) == ("mine", "mine", "mine")
    assert [type(part) for part in moved[:3]] == [Bag, Row, Plain]
    assert moved[3].default_factory is list
    assert moved[5].maxlen == 3
    assert all(map(on, (moved[0]["a"], moved[1][0], moved[2][0], moved[3]["a"], moved[5][0])))


class Settings(ChainMap):  # type: ignore[type-arg]
    def __init__(self, label: str, *maps: Any) -> None:
        super().__init__(*maps)
        self.label = label


class Window(deque):  # type: ignore[type-arg]
    def __init__(self, label: str, *items: Any) -> None:
        super().__init__(items, maxlen=3)
        self.label = label


class Groups(defaultdict):  # type: ignore[type-arg]
    def __init__(self, label: str, **items: Any) -> None:
        super().__init__(list, **items)
        self.label = label


class Tally(Counter):  # type: ignore[type-arg]
    def __init__(self, label: str, **items: Any) -> None:
        super().__init__(**items)
        self.label = label


@pytest.mark.parametrize(
    "make",
    [
        lambda x: Settings("mine", {"a": x}, {"a": x}),
        lambda x: Window("mine", x, 1),
        lambda x: Groups("mine", a=x),
        lambda x: Tally("mine", a=x),
    ],
    ids=["ChainMap", "deque", "defaultdict", "Counter"],
)
def test_a_subclass_with_its_own_init_is_rebuilt_with_its_attributes(make: Callable[[Any], Any], x: np.ndarray) -> None:
    """Python's own copies of these classes call ``__init__``, and lose attributes."""
    tree = make(x)
    moved = ds.place(tree, GPU)
    assert (type(moved), moved.label, len(moved)) == (type(tree), "mine", len(tree))
    assert all(map(on, ds.leaves(moved).values()))
    assert len(ds.leaves(moved)) == len(ds.leaves(tree)) > 0
    assert all(value is x for value in ds.leaves(tree).values())
    for name in ("maxlen", "default_factory"):
        assert getattr(moved, name, None) == getattr(tree, name, None)


def test_a_mapping_with_an_attribute_called_maps_is_not_a_chain(x: np.ndarray) -> None:
    """Its tensors move, or an error is raised; they are not left behind."""

    class Atlas(Mapping[str, Any]):
        def __init__(self, items: dict[str, Any]) -> None:
            self.items_, self.maps = items, ["roads"]

        def __getitem__(self, key: str) -> Any:
            return self.items_[key]

        def __iter__(self) -> Iterator[str]:
            return iter(self.items_)

        def __len__(self) -> int:
            return len(self.items_)

    moved = ds.place(Atlas({"a": x}), GPU)
    assert on(moved["a"])
    assert moved.maps == ["roads"]


def test_named_tuples(x: np.ndarray) -> None:
    labelled = Sub(x, 2)
    labelled.label = "mine"  # type: ignore[attr-defined]
    moved = ds.place([Point(x, 1), labelled], GPU)
    assert type(moved[0]) is Point
    assert type(moved[1]) is Sub
    assert on(moved[0].x)
    assert on(moved[1].both[0])
    assert (moved[0].y, moved[1].y, moved[1].label) == (1, 2, "mine")


@pytest.mark.parametrize("cls", [Open, Frozen, Slotted, HandSlotted])
def test_dataclasses(cls: Any, x: np.ndarray) -> None:
    tree = cls(x, 2)
    moved = ds.place(tree, GPU)
    assert type(moved) is cls
    assert on(moved.a)
    assert moved.b == 2
    assert tree.a is x


def test_a_dataclass_is_more_than_its_arguments(x: np.ndarray) -> None:
    tree = Open(1)
    tree.hidden = x
    moved = ds.place(tree, GPU)
    assert on(moved.hidden)
    assert "shared" not in vars(moved), "what belongs to the class is not the instance's"
    del tree.b, tree.hidden
    assert ds.place(tree, GPU) is tree


def test_registered_nodes(x: np.ndarray) -> None:
    moved = ds.place({"r": Registered(x, [x, 1], note="n")}, GPU)["r"]
    assert (type(moved), moved.note) == (Registered, "n")
    assert on(moved.parts[0])
    assert on(moved.parts[1][0])


def test_children_created_at_each_access_are_moved() -> None:
    """A node may return views: what was found is moved, not what a second look finds."""

    class Lazy:
        def __init__(self, data: Any) -> None:
            self.data = data

    optree.register_pytree_node(
        Lazy, lambda node: ((node.data[:],), None), lambda _, parts: Lazy(*parts), namespace=NAMESPACE
    )
    assert on(ds.place([Lazy(np.zeros(2))], GPU)[0].data)


def test_what_is_no_tensor_passes_through() -> None:
    parts = [1, "s", b"b", None, ..., object(), len, int, {1}, UserDict(a=1), range(3), 1.5, Point, sys]
    tree = dict(enumerate(parts))
    assert ds.place(tree, GPU) is tree
    assert ds.place(None, GPU) is None
    empty: list[Any] = [{}, [], (), UserDict(), Point(1, 2), Open(1), ChainMap(), SimpleNamespace()]
    assert all(ds.place(each, GPU) is each for each in empty)


class Store(MutableMapping):  # type: ignore[type-arg]
    """A mapping with its own memory, its own argument, and no `__copy__`."""

    def __init__(self, name: str) -> None:
        self.name, self.held = name, dict[Any, Any]()

    def __getitem__(self, key: Any) -> Any:
        return self.held[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.held[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.held[key]

    def __iter__(self) -> Any:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


class Lazy(Store):
    """A mapping that makes its values at each access, as one over a file does."""

    def __getitem__(self, key: Any) -> Any:
        return self.held[key].copy()


class Fixed(Mapping):  # type: ignore[type-arg]
    """A read-only mapping, made of a dict."""

    __slots__ = ("_held",)

    def __init__(self, held: Any) -> None:
        self._held = dict(held)

    def __getitem__(self, key: Any) -> Any:
        return self._held[key]

    def __iter__(self) -> Any:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


class Encoding(UserDict):  # type: ignore[type-arg]
    """A class like `transformers.BatchEncoding`: it has attributes, and its items are attributes, too."""

    def __init__(self, data: Any, encodings: Any) -> None:
        super().__init__(data)
        self.encodings = encodings

    def __getattr__(self, name: str) -> Any:
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None


def store(**items: Any) -> Store:
    made = Store("mine")
    made.update(items)
    return made


MAPPINGS = {
    "user": lambda x: UserDict(b=x, a=1),
    "encoding": lambda x: Encoding({"b": x, "a": 1}, ["kept"]),
    "store": lambda x: store(b=x, a=1),
    "fixed": lambda x: Fixed({"b": x, "a": 1}),
    "view": lambda x: MappingProxyType({"b": x, "a": 1}),
    "chain": lambda x: ChainMap({"b": x}, {"a": 1, "b": np.zeros(3)}),
}


@pytest.mark.parametrize("kind", MAPPINGS)
def test_mappings_of_every_class(kind: str, x: np.ndarray) -> None:
    tree = MAPPINGS[kind](x)
    moved = ds.place([tree], GPU)[0]
    assert type(moved) is type(tree)
    assert list(moved) == list(tree)
    assert on(moved["b"])
    assert moved["a"] == 1
    assert tree["b"] is x, "the mapping given is not written to"
    assert ds.place(moved, GPU) is moved
    assert ds.placement_of(moved).devices == {GPU}
    (back,) = ds.split(moved, ["cpu"])
    assert type(back) is type(tree)
    assert np.array_equal(back["b"], x)


def test_what_a_mapping_carries_is_kept(x: np.ndarray) -> None:
    assert ds.place(Encoding({"b": x}, ["kept"]), GPU).encodings == ["kept"]
    assert on(ds.place(Encoding({"b": x}, []), GPU).b)
    assert ds.place(store(b=x), GPU).name == "mine"
    moved = ds.place(ChainMap({"a": x}, {"a": x + 1}), GPU)
    assert all(on(each["a"]) for each in moved.maps), "what an earlier map hides moves, too"


def test_a_mapping_that_cannot_be_rebuilt_is_refused(x: np.ndarray) -> None:
    lazy = Lazy("file")
    lazy.held["a"] = x
    with pytest.raises(ds.ArgumentError, match="a Lazy cannot be rebuilt around moved tensors"):
        ds.place({"l": lazy}, GPU)
    assert lazy.held["a"] is x
    assert ds.place(lazy, "cpu") is lazy


def test_other_containers_of_python(x: np.ndarray) -> None:
    class Rows(UserList):  # type: ignore[type-arg]
        label = "none"

    rows, space = Rows([x, 1]), SimpleNamespace(x=x, n=1)
    rows.label = "mine"
    moved = ds.place([rows, space], GPU)
    assert type(moved[0]) is Rows
    assert moved[0].label == "mine"
    assert on(moved[0][0])
    assert rows[0] is space.x is x
    assert on(moved[1].x)
    assert moved[1].n == 1
    assert dict(ds.placement_of(moved).items()) == {"0.0": GPU, "1.x": GPU}


def test_classes_of_attrs(x: np.ndarray) -> None:
    """They are traversed as attrs marks them: by the names of their fields."""

    class Made:
        __attrs_attrs__ = (SimpleNamespace(name="x"), SimpleNamespace(name="n"))

        def __init__(self) -> None:
            self.x, self.n, self.beside = x, 1, "kept"

    moved = ds.place(Made(), GPU)
    assert on(moved.x)
    assert (moved.n, moved.beside) == (1, "kept")


# ---------------------------------------------------------------------- nothing to move
class Holder:
    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


class SlottedHolder:
    __slots__ = ("never", "x")

    def __init__(self, x: Any) -> None:
        self.x = x


def batches() -> Any:
    yield np.zeros(2)


class Loader:
    def __iter__(self) -> Any:
        return batches()


@pytest.mark.parametrize(
    ("thing", "hint"),
    [
        (3, "ds.asarray(x, device='gpu:1')"),
        (2.5, "ds.asarray(x, device='gpu:1')"),
        (np.str_("text"), "turn text into numbers first"),
        (range(3), "ds.asarray(x, device='gpu:1')"),
        ("text", "turn text into numbers first"),
        (b"bytes", "turn text into numbers first"),
        ({1, 2}, "pass a list, ds.place(list(x), 'gpu:1')"),
        ({"a": np.zeros(2)}.values(), "pass the dict, or ds.place(list(x), 'gpu:1')"),
        (batches(), "[ds.place(item, 'gpu:1') for item in x]"),
        (Loader(), "for batch in x: batch = ds.place(batch, 'gpu:1')"),
        (len, "ds.run(fn, x)"),
        (int, "ds.run(fn, x)"),
        (sys, "ds.run(fn, x)"),
        (object(), "pass the tensors in it"),
        (Holder(a=1, w=np.zeros(2)), "x.w = ds.place(x.w, 'gpu:1')"),
        (Holder(_w=np.zeros(2)), "pass the tensors in it"),
        (SlottedHolder(np.zeros(2)), "x.x = ds.place(x.x, 'gpu:1')"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else type(value).__name__,
)
def test_what_holds_no_tensor_at_the_top_is_refused(thing: Any, hint: str) -> None:
    for to in (GPU, ds.Placement(default=GPU)):
        with pytest.raises(ds.NotATensorError, match=r"ds\.place takes a tensor, a tree of tensors, a model"):
            ds.place(thing, to)
    with pytest.raises(ds.NotATensorError) as caught:
        ds.place(thing, GPU)
    assert hint in str(caught.value.hint)
    for call, name in ((ds.copy, "copy"), (lambda x, d: ds.broadcast(x, [d]), "broadcast")):
        with pytest.raises(ds.NotATensorError, match=rf"ds\.{name} takes"):
            call(thing, "cpu")
    with pytest.raises(ds.NotATensorError):
        ds.split(thing, ["cpu"])
    with pytest.raises(ds.NotATensorError, match=r"ds\.placement_of takes"):
        ds.placement_of(thing)


def test_a_generator_that_is_refused_is_not_begun() -> None:
    items = batches()
    with pytest.raises(ds.NotATensorError):
        ds.place(items, GPU)
    assert len(list(items)) == 1


def test_a_call_that_only_reads_says_how_to_pass_the_tensors_of_an_object() -> None:
    with pytest.raises(ds.NotATensorError) as caught:
        ds.leaves(Holder(w=np.zeros(2)))
    assert "ds.leaves({'w': x.w})" in str(caught.value.hint)


@pytest.mark.parametrize("thing", [{1, 2}, {"a": np.zeros(2)}.values(), batches(), Loader()])
def test_the_hint_of_a_call_without_a_device_has_none(thing: Any) -> None:
    for call in (ds.leaves, ds.placement_of):
        with pytest.raises(ds.NotATensorError) as caught:
            call(thing)
        assert re.search(rf"ds\.{call.__name__}\((list\(x\)|item|batch)\)", str(caught.value.hint))


@pytest.mark.parametrize("make", [dict, OrderedDict])
@pytest.mark.parametrize("view", [lambda d: d.values(), lambda d: d.items()], ids=["values", "items"])
def test_tensors_in_a_view_of_a_dict_warn(view: Any, make: Any, x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(not_moved, "_WARNED", set())
    with pytest.warns(ds.NotMovedWarning, match=r"dict_.* at 'v' \(of the dict\)"):
        ds.place({"v": view(make(a=x)), "x": x}, GPU)


@pytest.mark.parametrize("thing", [{(3,), ()}, {"a": (3,), "b": ()}.values()], ids=["set", "values"])
def test_tuples_in_a_set_or_a_view_are_not_taken_for_pairs(
    thing: Any, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(not_moved, "_WARNED", set())  # a class that has been warned about is not inspected
    placed = ds.place({"shapes": thing, "x": x}, GPU)
    assert placed["shapes"] is thing
    assert ds.device_of(placed["x"]) is ds.gpu(1)


@pytest.mark.parametrize("make", [lambda x: Holder(w=x, b=[x]), SlottedHolder])
def test_an_object_that_keeps_its_tensors_warns_once_for_its_type(
    make: Any, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(not_moved, "_WARNED", set())
    with pytest.warns(ds.NotMovedWarning, match="did not move the tensors of the .*Holder at 'a.0'") as seen:
        moved = ds.place({"a": [make(x)], "b": make(x), "x": x}, GPU)
    assert [each.filename for each in seen] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.copy({"a": make(x)}, GPU)
        ds.split({"a": make(x), "x": x}, [GPU])
    assert on(moved["x"])


@pytest.mark.parametrize("call", [ds.place, ds.copy, lambda x, d: ds.split(x, [d]), lambda x, d: ds.broadcast(x, [d])])
def test_every_call_that_moves_warns(call: Any, x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(not_moved, "_WARNED", set())
    with pytest.warns(ds.NotMovedWarning):
        call([x, Holder(w=x)], GPU)


@pytest.mark.parametrize("make", [lambda x: [1, x], lambda x: (x,), lambda x: {"a": x}], ids=["list", "tuple", "dict"])
def test_tensors_in_the_containers_of_an_object_are_named(
    make: Any, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(not_moved, "_WARNED", set())
    with pytest.warns(ds.NotMovedWarning, match=r"Holder at '1' \(\.images\)"):
        ds.place([x, Holder(images=make(x))], GPU)
    with pytest.raises(ds.NotATensorError, match="not a container that devshim knows") as caught:
        ds.place(Holder(images=make(x)), GPU)
    assert "x.images = ds.place(x.images, 'gpu:1')" in str(caught.value.hint)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: Holder(_store=Holder(_mapping={"x": x})),
        lambda x: Holder(layers=[SlottedHolder(x)]),
        lambda x: Holder(found=OrderedDict(x=x)),
        lambda x: Holder(a=Holder(b=Holder(c=x))),
        lambda x: Holder(rows=[[Holder(), Holder()] for _ in range(256)], image=x),
        lambda x: Holder(a=Holder(b=Holder(c=(inner := Holder(x=x)))), d=inner),
    ],
    ids=["store", "layers", "subclass", "deep", "after_many", "at_two_depths"],
)
def test_tensors_in_the_objects_of_an_object_warn(make: Any, x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs and caches of other libraries keep their tensors there."""
    monkeypatch.setattr(not_moved, "_WARNED", set())
    monkeypatch.setattr(not_moved, "_WITHOUT", set())
    with pytest.warns(ds.NotMovedWarning, match="did not move the tensors of the Holder at 'g'"):
        ds.place({"g": make(x), "x": x}, GPU)
    with pytest.raises(ds.NotATensorError, match="not a container that devshim knows"):
        ds.place(make(x), GPU)


def test_an_empty_object_does_not_hide_a_full_one_of_its_type(x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache is empty when a program starts."""
    monkeypatch.setattr(not_moved, "_WARNED", set())
    monkeypatch.setattr(not_moved, "_WITHOUT", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.place({"cache": Holder(layers=[]), "x": x}, GPU)
    with pytest.warns(ds.NotMovedWarning):
        ds.place({"cache": Holder(layers=[Holder(keys=x)]), "x": x}, GPU)


def test_objects_that_hold_each_other_are_looked_into_once(x: np.ndarray) -> None:
    first, second = Holder(), Holder()
    first.other, second.other, first.many = second, first, [Holder(number=i) for i in range(5000)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.place({"g": first, "x": x}, GPU)


def test_the_code_of_an_object_in_an_object_does_not_run(x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy:
        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            raise KeyError(name)

    class Disguised:
        @property
        def __class__(self) -> Any:
            raise AssertionError

    monkeypatch.setattr(not_moved, "_WITHOUT", set())
    gone = weakref.proxy(Holder())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.place({"g": Holder(a=Lazy(), b=Holder(c=Disguised()), d=[gone]), "x": x}, GPU)


def test_the_hint_for_an_object_that_moves_itself(x: np.ndarray) -> None:
    class Graph:
        def __init__(self) -> None:
            self._store = {"x": x}

        def to(self, device: Any) -> Graph:
            raise NotImplementedError

    with pytest.raises(ds.NotATensorError) as caught:
        ds.place(Graph(), GPU)
    assert caught.value.hint == "an object with a method of its own moves itself: x = x.to(ds.device('gpu:1').native())"


def test_a_partial_function_with_tensors(x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(not_moved, "_WARNED", set())
    function = functools.partial(np.add, x, out=None)
    with pytest.warns(ds.NotMovedWarning, match=r"partial at 'f' \(\.args\)"):
        ds.place({"f": function, "x": x}, GPU)
    with pytest.raises(ds.NotATensorError) as caught:
        ds.place(function, GPU)
    made = eval(str(caught.value.hint), {"ds": ds, "x": function, "partial": functools.partial})
    assert on(made.args[0])
    assert made.keywords == {"out": None}


def test_objects_without_tensors_do_not_warn(x: np.ndarray) -> None:
    class Watched:
        """Its own code is not run."""

        @property
        def tensor(self) -> Any:
            raise AssertionError

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.place([Holder(a=1, b="text", c=[1]), Watched(), object(), {1}, len, sys, range(3)], GPU)


def test_a_callers_own_error_while_it_warns_changes_nothing(x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(not_moved, "_WARNED", set())
    used = ds.memory(GPU).used
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ds.NotMovedWarning):
            ds.place([Holder(w=x), x], GPU)
    assert ds.memory(GPU).used == used


def test_the_same_object_where_nothing_moved(x: np.ndarray) -> None:
    there = ds.place(x, GPU)
    tree = {"still": [there, (there,)], "moves": [x]}
    moved = ds.place(tree, GPU)
    assert moved is not tree
    assert moved["still"] is tree["still"]
    assert ds.place(moved, GPU) is moved
    assert ds.place([], GPU) == []


def test_shared_parts_are_moved_once_and_stay_shared(x: np.ndarray) -> None:
    inner = [x]
    moved = ds.place({"a": x, "b": x, "c": inner, "d": inner}, GPU)
    assert moved["a"] is moved["b"] is moved["c"][0]
    assert moved["c"] is moved["d"]


def test_a_tree_that_shares_at_every_level_is_looked_into_once(x: np.ndarray) -> None:
    """Two to the power of sixty paths lead to the tensor."""
    tree: Any = [x]
    for _ in range(60):
        tree = (tree, tree)
    moved = ds.place(tree, GPU)
    assert moved[0] is moved[1]
    with pytest.raises(ds.DeviceMismatchError):
        ds.require_same_device(a=tree, b=moved)


@pytest.mark.parametrize("wrap", [lambda t: [t], lambda t: (t, 1), lambda t: {"k": t}, lambda t: Point(t, 0), Frozen])
def test_depth_is_no_limit(wrap: Any, x: np.ndarray) -> None:
    tree: Any = x
    for _ in range(10_000):
        tree = wrap(tree)
    moved = ds.place(tree, GPU)
    while not isinstance(moved, np.ndarray):
        moved = moved["k"] if isinstance(moved, dict) else moved.a if isinstance(moved, Frozen) else moved[0]
    assert on(moved)
    dismantle(tree)


def dismantle(tree: Any) -> None:
    """Release a deep tree from the outside in: some versions of Python recurse when they free nested instances."""
    while isinstance(tree, (list, dict)) and tree:
        inner = tree.pop() if isinstance(tree, list) else tree.pop("k")
        tree = inner


def test_a_cycle_is_refused(x: np.ndarray) -> None:
    inside: dict[str, Any] = {"x": x}
    inside["again"] = [inside]
    for call in (lambda: ds.place(inside, GPU), lambda: ds.same_device(inside), lambda: ds.run(len, inside)):
        with pytest.raises(ds.ArgumentError, match="the tree contains itself"):
            call()
    assert inside["x"] is x


def test_copy_true_copies_every_tensor(x: np.ndarray) -> None:
    tree = {"a": x, "b": [x]}
    copied = ds.copy(tree, "cpu")
    copied["a"][...] = 7
    assert x.tolist() == [0, 1, 2]
    assert copied["a"] is copied["b"][0]


def test_copy_false_moves_nothing(x: np.ndarray) -> None:
    tree = [ds.place(x, GPU), x]
    with pytest.raises(ds.CopyNeededError):
        ds.place(tree, GPU, copy=False)
    assert ds.place(tree[:1], GPU, copy=False)[0] is tree[0]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_when_the_kth_copy_fails_nothing_has_moved(k: int, fake: Any) -> None:
    tensors = [fake.to_device(np.full(2, i), ds.cpu()) for i in range(3)]
    tree = {"a": tensors[0], "b": [tensors[1], Point(1, tensors[2])]}
    fake.fail_at = k
    with pytest.raises(ds.OutOfMemoryError) as caught:
        ds.place(tree, GPU)
    path = ["['a']", "['b'][0]", "['b'][1]['y']"][k - 1]
    assert f"at the leaf {path} of the tree, which is unchanged" in caught.value.problem
    assert "gpu:1 is out of memory: 16 bytes were requested, 10 bytes are free" in caught.value.problem
    assert isinstance(caught.value.__cause__, MemoryError)
    assert tree["a"] is tensors[0]
    assert [*tree["b"]] == [tensors[1], tree["b"][1]]
    assert all(ds.device_of(x) is ds.cpu() for x in tensors)


def test_leaves_that_move_together_are_named_and_nothing_is_kept(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy_many(self: Any, xs: Any, device: ds.Device, non_blocking: bool = False) -> list[Any]:
        made = [self.copy_to(x, device) for x in xs]
        first.extend(weakref.ref(each) for each in made)
        return made

    first: list[weakref.ref[Any]] = []
    monkeypatch.setattr(type(fake), "copy_many", copy_many)
    tree = {name: fake.to_device(np.zeros(2), ds.cpu()) for name in "abcdef"}
    fake.fail_at = 3
    with pytest.raises(ds.OutOfMemoryError) as caught:
        ds.place(tree, ds.Placement({"a": 0}, default=GPU))
    assert "(at the leaf ['b'] or ['c'] of the tree" in caught.value.problem
    assert [each() for each in first] == [None], "also while the error and its traceback are held"
    fake.copies, fake.fail_at = 0, 2
    with pytest.raises(ds.OutOfMemoryError, match=r"\(at the leaf \['c'\] of the tree"):
        ds.place(tree, ds.Placement({"a": 0, "c": 1}, default="cpu"))


def test_control_c_leaves_the_tree_as_it_was(fake: Any) -> None:
    tree = [fake.to_device(np.zeros(1), ds.cpu()) for _ in range(3)]
    fake.fail_at, fake.failure = 2, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        ds.place(tree, GPU)
    assert ds.same_device(*tree)


def test_a_device_one_framework_lacks_is_refused_before_anything_moves(fake: Any, x: np.ndarray) -> None:
    fake.real = 1
    tree = [x, fake.to_device(np.zeros(1), ds.cpu())]
    used = ds.memory(GPU).used
    with pytest.raises(ds.DeviceNotFoundError, match="Fakeframe has 1 gpu device"):
        ds.place(tree, GPU)
    assert ds.memory(GPU).used == used


def test_several_frameworks_in_one_tree(fake: Any, x: np.ndarray) -> None:
    moved = ds.place([x, fake.to_device(np.zeros(1), ds.cpu())], GPU)
    assert [type(part).__module__.partition(".")[0] for part in moved] == ["devshim_backends", "fakeframe"]
    assert ds.same_device(moved)


def test_a_backend_that_moves_many_at_once_is_asked_once(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def copy_many(self: Any, xs: Any, device: Any, non_blocking: bool = False) -> Any:
        calls.append(len(xs))
        return [self.to_device(np.array(x), device) for x in xs]

    monkeypatch.setattr(type(fake), "copy_many", copy_many)
    tensors = [fake.to_device(np.full(1, i), ds.cpu()) for i in range(4)]
    moved = ds.place([tensors, tensors[0]], GPU)
    assert calls == [4]
    assert [int(part[0]) for part in moved[0]] == [0, 1, 2, 3]
    assert moved[1] is moved[0][0]


def test_a_wide_tree_takes_work_in_proportion() -> None:
    """Ten times the leaves take ten times the calls, not a hundred times."""

    def work(n: int) -> int:
        tree, steps = {"all": [np.zeros(1) for _ in range(n)]}, 0

        def profile(frame: object, event: str, argument: object) -> None:
            nonlocal steps
            steps += 1

        sys.setprofile(profile)
        try:
            assert ds.place(tree, "cpu") is tree
        finally:
            sys.setprofile(None)
        return steps

    assert 9 * work(1000) < work(10_000) < 11 * work(1000)
