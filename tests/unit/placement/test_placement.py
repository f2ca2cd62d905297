"""Tests of `Placement`: a value that is read, written, planned and applied; here on trees of arrays."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import devshim as ds
from devshim.placement import planner, runs
from devshim.placement.parts import Part, sizes_of

KIB = 1024


@pytest.fixture(autouse=True)
def _cards() -> None:
    ds.simulate(3)


def placement(**places: str) -> ds.Placement:
    return ds.Placement({key.replace("__", "."): place for key, place in places.items()})


# ---------------------------------------------------------------------- lookup
@pytest.mark.parametrize(
    ("path", "device"),
    [
        ("a.b.weight", "gpu:2"),  # exact match
        ("a.b.bias", "gpu:1"),  # nearest parent
        ("a.c.bias", "gpu:0"),  # parent further up
        ("ab.bias", "cpu"),  # not a parent: the first matching glob
        ("z.weight", "gpu:2"),  # the second glob
        ("z", "gpu:1"),  # the default
    ],
)
def test_which_key_counts(path: str, device: str) -> None:
    places = {"*.bias": "cpu", "*": "gpu:2", "a": 0, "a.b": "gpu:1", "a.b.weight": "cuda:2"}
    if path == "z":
        del places["*"]
    plan = ds.Placement(places, default="gpu:1")
    assert plan[path] == plan.find(path) == ds.device(device)


def test_what_nothing_says() -> None:
    plan = placement(a="cpu")
    assert plan.find("b") is None
    with pytest.raises(ds.ArgumentError, match="has no device for the leaf 'b'"):
        plan["b"]


@pytest.mark.parametrize("bad", [{3: "cpu"}, {None: "cpu"}])
def test_keys_are_text(bad: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="must be text"):
        ds.Placement(bad)
    with pytest.raises(ds.DeviceSpecError):
        ds.Placement({"a": "card one"})


# ---------------------------------------------------------------------- equality and representation
def test_equality_and_hash() -> None:
    one, same = ds.Placement({"a": "gpu:1", "b": 0}), ds.Placement({"a": 1, "b": "cuda:0"})
    assert one == same
    assert hash(one) == hash(same)
    assert len({one, same, ds.Placement({"a": 1})}) == 2
    assert one != ds.Placement({"a": 1, "b": 0}, default="cpu")
    assert ds.Placement({"*a": 0, "a*": 1}) != ds.Placement({"a*": 1, "*a": 0}), "the order of globs decides"
    assert one != {"a": "gpu:1"}
    assert one.devices == {ds.gpu(0), ds.gpu(1)}
    assert list(one) == ["a", "b"]
    assert ds.Placement(default="cpu").devices == {ds.cpu()}


@given(
    st.dictionaries(st.text(max_size=8), st.sampled_from(["cpu", "gpu:0", "gpu:17", "mps"]), max_size=5),
    st.sampled_from([None, "cpu", "gpu:3"]),
)
def test_json_and_pickle_bring_it_back(places: dict[str, str], default: str | None) -> None:
    one = ds.Placement(places, default)
    assert ds.Placement.from_json(one.to_json()) == one
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "devshim.placement.placement"}', "3", None, b"\xff", '{"places": {}}']
)
def test_other_text_is_no_placement(text: Any) -> None:
    with pytest.raises(ds.ArgumentError, match="is not a placement"):
        ds.Placement.from_json(text)


def test_its_table() -> None:
    assert repr(ds.Placement()) == "<Placement of nothing>"
    plan = ds.Placement({"a.weight": "gpu:1", "b": "cpu"}, default=0)
    ds.simulate(2)
    assert repr(plan).splitlines() == [
        "a.weight           gpu:1 (simulated)",
        "b                  cpu",
        "(everything else)  gpu:0 (simulated)",
    ]
    ds.simulate(0)
    assert repr(plan) == "a.weight           gpu:1\nb                  cpu\n(everything else)  gpu:0"
    assert repr(plan.sized({"a.weight": 2048, "b": 8})).splitlines()[0] == "a.weight           gpu:1  2,048 bytes"
    assert "(together)         gpu:1  2,048 bytes" in repr(plan.sized({"a.weight": 2048, "b": 8}))
    assert plan.sized({"b": 1}) == plan, "bytes are shown, not compared"


# ---------------------------------------------------------------------- read and applied
def test_read_and_applied_to_a_tree() -> None:
    tree = {"a": [ds.zeros(2, device=1), ds.zeros(2)], "b": (ds.zeros(2, device=2), "text")}
    plan = ds.placement_of(tree)
    assert dict(plan.items()) == {"a.0": ds.gpu(1), "a.1": ds.cpu(), "b.0": ds.gpu(2)}
    assert dict(ds.placement_of(ds.zeros(2, device=1)).items()) == {"": ds.gpu(1)}
    home = ds.place(tree, "cpu")
    there = ds.place(home, plan)
    assert ds.placement_of(there) == plan
    assert there["a"][1] is home["a"][1]
    assert ds.place(tree, plan) is tree
    assert ds.device_of(ds.place(ds.zeros(2), ds.Placement(default=2))) is ds.gpu(2)


def test_a_leaf_without_a_place_moves_nothing() -> None:
    tree = [ds.zeros(2), ds.zeros(2)]
    with pytest.raises(ds.ArgumentError, match="has no device for the leaf '1'"):
        ds.place(tree, ds.Placement({"0": 1}))
    assert ds.placement_of(tree).devices == {ds.cpu()}


def test_a_card_that_is_not_there() -> None:
    tree = [ds.zeros(2), ds.zeros(2)]
    with pytest.raises(ds.DeviceNotFoundError):
        ds.place(tree, ds.Placement({"0": 1, "1": 7}))
    assert ds.memory(1).used == 0


def test_a_placement_of_one_thing_holds_where_it_is_an_item() -> None:
    weights = [{"w": np.zeros((4, 4)), "b": np.zeros(4)}, {"w": np.zeros((4, 4)), "b": np.zeros(4)}]
    plan = ds.Placement.balanced(weights, [1, 2])
    for tree in ([weights], [weights, "text"], {"net": weights}, (weights, {"epoch": 3})):
        moved = ds.place(tree, plan)
        there = moved["net"] if isinstance(moved, dict) else moved[0]
        assert ds.placement_of(there) == plan
    deep = ds.place({"all": {"net": weights}}, plan)
    assert ds.placement_of(deep["all"]["net"]) == plan, "without a default the end of a path is looked up, too"


def test_state_that_mirrors_the_weights_goes_where_they_go() -> None:
    """As optax stores it: a number without axes, and trees like the weights' tree."""
    weights = {"a": {"w": np.zeros((4, 4)), "b": np.zeros(4)}, "z": {"w": np.zeros((4, 4)), "b": np.zeros(4)}}
    state = ({"count": np.zeros(()), "mu": weights, "nu": weights}, None)
    plan = ds.Placement.balanced(weights, [2, 1])
    moved, its_state = ds.place([weights, state], plan)
    assert ds.placement_of(moved) == plan
    assert ds.placement_of(its_state[0]["mu"]) == ds.placement_of(its_state[0]["nu"]) == plan
    assert ds.device_of(its_state[0]["count"]) is ds.gpu(2), "the first device that the plan names"
    by_default = ds.Placement.balanced(weights, [2, 1], default="cpu")
    assert by_default.default is ds.cpu()
    assert ds.device_of(ds.place([weights, state], by_default)[1][0]["count"]) is ds.cpu()
    assert ds.Placement.from_json(by_default.to_json()) == by_default


def test_the_full_path_counts_before_the_path_in_an_item_and_that_before_the_default() -> None:
    x = [np.zeros(2), np.zeros(2), np.zeros(2)]
    tree = {"a": x, "b": [*x[:2], np.ones(2)]}
    plan = ds.Placement({"a.0": 1, "0": 2, "b": "cpu"}, default=0)
    assert [str(ds.device_of(each)) for each in ds.place(tree, plan)["a"]] == ["gpu:1", "gpu:0", "gpu:0"]
    assert plan.of_leaf("c.0", "") is ds.gpu(2)
    assert plan.of_leaf("b.0", "") is ds.cpu()
    assert plan.of_leaf("c.d.0", "") is ds.gpu(0)
    assert plan.of_leaf("", "x.0") is ds.gpu(0), "a model that is all there is has no other path"
    with pytest.raises(ds.ArgumentError, match=r"has no device for the leaf 'c\.1'"):
        ds.Placement({"0": 1}).of_leaf("c.1", "")


# ---------------------------------------------------------------------- planned
def tree_of(*kib: int) -> list[np.ndarray]:
    return [np.zeros(size * KIB, "uint8") for size in kib]


def loads(plan: ds.Placement, tree: list[np.ndarray]) -> dict[str, int]:
    found: dict[str, int] = {}
    for path, place in plan.items():
        found[str(place)] = found.get(str(place), 0) + tree[int(path)].nbytes // KIB
    return found


def test_the_fullest_is_as_empty_as_can_be() -> None:
    tree = tree_of(1, 2, 3, 4, 5)
    assert loads(ds.Placement.balanced(tree, ["gpu:0", "gpu:1"]), tree) == {"gpu:0": 6, "gpu:1": 9}
    assert loads(ds.Placement.balanced(tree, [0, 1, 2]), tree) == {"gpu:0": 6, "gpu:1": 4, "gpu:2": 5}
    assert loads(ds.Placement.balanced(tree, ["cpu"]), tree) == {"cpu": 15}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(1, 3))
def test_no_plan_is_better(sizes: list[int], count: int) -> None:
    """Compared with all ways to cut the list, no plan has a smaller largest load."""
    parts = [Part(str(i), {str(i): (i, size)}, []) for i, size in enumerate(sizes)]
    divided = runs.divide(parts, [runs.UNLIMITED] * count, limited=False)
    assert divided is not None
    assert [part for run in divided for part in run] == parts
    found = max(sum(part.nbytes for part in run) for run in divided)
    cuts = itertools.combinations_with_replacement(range(len(sizes) + 1), count - 1)
    best = min(max(sum(sizes[a:b]) for a, b in itertools.pairwise([0, *cut, len(sizes)])) for cut in cuts)
    assert found == best


def test_a_dict_or_list_below_the_top_stays_together() -> None:
    """`x @ w + b` computes on one device; only a container that fits nowhere as a whole is cut."""
    layers = [{"w": np.zeros((8, 8)), "b": np.zeros(8)} for _ in range(3)]
    net = {"in": layers[0], "hidden": [layers[1], (np.zeros((8, 8)), np.zeros(8))], "out": layers[2]}
    plan = ds.Placement.balanced(net, [0, 1])
    assert plan.devices == {ds.gpu(0), ds.gpu(1)}
    for name in ("in", "hidden.0", "hidden.1", "out"):
        assert len({plan[path] for path in plan if path.startswith(f"{name}.")}) == 1, name
    nested = [{"w": np.zeros(64), "b": np.zeros(1), "norm": {"scale": np.zeros(64)}}, np.zeros(1)]
    plan = ds.Placement.balanced(nested, [0, 1])
    assert plan["0.w"] is plan["0.b"] is not plan["0.norm.scale"]
    size = 8 * KIB
    big = {"layer": {"w": np.zeros(size, "uint8"), "b": np.zeros(size, "uint8")}}
    plan = ds.Placement.balanced(big, [0, 1], budgets=[size, size])
    assert (plan["layer.w"], plan["layer.b"]) == (ds.gpu(0), ds.gpu(1))
    with pytest.raises(ds.OutOfMemoryError):
        ds.Placement.balanced(big, [0, 1], budgets=[size, size - 1])


def test_budgets_hold_and_share() -> None:
    tree = tree_of(4, 4, 4, 4, 4, 4)
    plan = ds.Placement.balanced(tree, [0, 1], budgets={"gpu:0": "8KiB", "gpu:1": 16 * KIB})
    assert loads(plan, tree) == {"gpu:0": 8, "gpu:1": 16}
    plan = ds.Placement.balanced(tree[:3], [0, 1], budgets=["8KiB", "16KiB"])
    assert loads(plan, tree) == {"gpu:0": 4, "gpu:1": 8}, "in proportion"
    plan = ds.Placement.balanced(tree, [0, 1, "cpu"], budgets={0: "10KiB", 1: "9KiB"})
    assert loads(plan, tree) == {"gpu:0": 8, "gpu:1": 8, "cpu": 8}, "a device without a budget takes the rest"
    plan = ds.Placement.balanced(tree[:4], [0, 1, "cpu"], budgets={0: "10KiB", 1: "9KiB"})
    assert loads(plan, tree) == {"gpu:0": 8, "gpu:1": 8}, "and only that"


def test_what_is_free_is_the_budget() -> None:
    with ds.simulate(2, memory="8KiB"):
        kept = ds.zeros(KIB // 2, device=0, dtype="float64")
        tree = tree_of(2, 2, 2, 2, 2)
        plan = ds.Placement.balanced(tree, [0, 1])
        assert loads(plan, tree) == {"gpu:0": 4, "gpu:1": 6}
        ds.place(tree, plan)
        with pytest.raises(
            ds.OutOfMemoryError, match=r"it has 16,384 bytes, and its largest indivisible part \(0\) has 2,048"
        ) as no:
            ds.Placement.balanced(tree_of(*[2] * 8), [0, 1])
        assert "(gpu:0: 4,096, gpu:1: 8,192 bytes)" in str(no.value)
        with pytest.raises(ds.OutOfMemoryError, match=r"\(the tensor itself\)"):
            ds.Placement.balanced(tree_of(64)[0], [0, 1])
        del kept


def test_only_with_budgets_it_plans_for_cards_that_are_elsewhere() -> None:
    with pytest.raises(ds.DeviceNotFoundError, match="gpu:7"):
        ds.Placement.balanced(tree_of(1), [0, 7])
    tree = tree_of(4, 4)
    assert loads(ds.Placement.balanced(tree, [7, 8], ["4KiB", "4KiB"]), tree) == {"gpu:7": 4, "gpu:8": 4}


def test_ties_stay_together_and_count_once() -> None:
    shared = np.zeros(8 * KIB, "uint8")
    tree = [shared, *tree_of(4, 4), shared]
    plan = ds.Placement.balanced(tree, [0, 1])
    assert plan["0"] is plan["3"] is ds.gpu(0)
    assert plan["1"] is plan["2"] is ds.gpu(1)


def test_a_block_is_opened_only_where_it_must_be() -> None:
    inner = [leaf("big.0", 6), leaf("big.1", 6)]
    big = Part("big", {**inner[0].leaves, **inner[1].leaves, "big.own": (1, 1)}, inner)
    parts = [leaf("a", 1), big, leaf("z", 1)]
    divided = runs.divide(parts, [runs.UNLIMITED] * 2, limited=False)
    assert divided is not None
    assert [[part.path for part in run] for run in divided] == [["a", "big"], ["z"]], "whole, though it is uneven"
    opened = planner._split_largest(parts, [ds.gpu(0), ds.gpu(1)], [8, 8], 15)
    assert [part.path for part in opened] == ["a", "big", "big.0", "big.1", "z"]
    assert [part.nbytes for part in opened] == [1, 1, 6, 6, 1]
    divided = runs.divide(opened, [8, 8], limited=True)
    assert divided is not None
    assert [[part.path for part in run] for run in divided] == [["a", "big", "big.0"], ["big.1", "z"]]


def block(path: str, *children: Part, whole: bool = False, **tied: int) -> Part:
    """Return a block of blocks, or of one tensor with the name of its path; ``tied`` names one tensor twice."""
    leaves = {key: value for child in children for key, value in child.leaves.items()}
    return Part(path, leaves | {f"{path}.{name}": (0, size) for name, size in tied.items()}, children, whole)


def leaf(path: str, size: int) -> Part:
    return Part(path, {path: (hash(path), size)}, ())


def body(path: str, *sizes: int, **more: Any) -> Part:
    return block(path, *(leaf(f"{path}.{i}", size) for i, size in enumerate(sizes)), **more)


def chosen(parts: list[Any], budgets: list[int] | None = None) -> list[list[str]]:
    """Return the paths of the parts on each of two devices, or of as many as there are budgets."""
    caps = budgets or [runs.UNLIMITED] * 2
    _, owners, count = sizes_of(parts)
    devices = [ds.gpu(i) for i in range(len(caps))]
    found = planner._choose(parts, devices, caps, sum(owners.values()), len(owners) < count, budgets is not None)[1]
    return [[part.path for part in run] for run in found]


def test_a_block_with_more_than_its_share_is_opened() -> None:
    """A language model is often its body and a head; what is in the body is opened if that has too much, too."""
    assert chosen([body("body", 4, 4, 4, 4), leaf("head", 2)]) == [["body.0", "body.1"], ["body.2", "body.3", "head"]]
    nested = block("model", leaf("embed", 2), body("layers", 4, 4, 4, 4))
    assert chosen([nested, leaf("head", 2)])[1] == ["layers.2", "layers.3", "head"]
    assert chosen([body("only", 4, 4)]) == [["only.0"], ["only.1"]]


def test_a_block_stays_whole_if_opening_it_does_not_help() -> None:
    assert chosen([body("a", 3, 3), body("b", 4, 4)]) == [["a"], ["b"]], "a tenth more than the share, at most"
    assert chosen([body("a", 1, 9), leaf("b", 2)]) == [["a"], ["b"]], "a cut leaves 10 on a device"
    assert chosen([body("body", 4, 4, 4, 4, whole=True), leaf("head", 2)]) == [["body"], ["head"]], "its model says so"


def test_blocks_that_share_a_tensor_are_opened_together() -> None:
    """A head that computes with the embedding of the body; and two bodies that share one embedding."""
    embed = Part("body.embed", {"body.embed": (0, 2)}, ())
    tied = block("body", embed, *(leaf(f"body.{i}", 4) for i in range(4)))
    head = Part("head", {"head": (0, 2)}, ())
    assert chosen([tied, head]) == [["body.embed", "body.0", "body.1"], ["body.2", "body.3"]]
    one, two = body("one", 3, 3, embed=2), body("two", 3, 3, embed=2)
    assert chosen([one, two]) == [["one", "one.0", "one.1"], ["two.0", "two.1"]]


def test_a_block_is_opened_to_fill_the_budgets_before_the_rest_goes_elsewhere() -> None:
    parts = [body("body", 4, 4, 4, 4), leaf("head", 2)]
    assert chosen(parts, [8, runs.UNLIMITED]) == [["body.0", "body.1"], ["body.2", "body.3", "head"]]
    assert chosen(parts, [16, runs.UNLIMITED]) == [["body"], ["head"]]
    assert chosen(parts, [6, 16]) == [["body.0"], ["body.1", "body.2", "body.3", "head"]]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (([0, 0],), "takes each device once, and was given 1 of them again"),
        (([],), "empty list of devices"),
        (([0], [1, 2]), "2 budgets for 1 devices"),
        (([0], {1: 5}), "budgets names gpu:1, which is not in devices"),
        (([0], ["much"]), "the budget of gpu:0 is 'much'"),
    ],
)
def test_plans_that_make_no_sense(args: Any, text: str) -> None:
    with pytest.raises(ds.ArgumentError, match=text):
        ds.Placement.balanced(tree_of(1), *args)
    with pytest.raises(ds.ArgumentError, match="found no tensor to place"):
        ds.Placement.balanced(["text"], [0])


def test_a_leaf_of_unknown_size_adds_nothing_to_its_device() -> None:
    text = repr(ds.Placement({"a": "gpu:7", "b": "gpu:7", "c": "cpu"}).sized({"a": 1024, "c": 8}))
    totals = [line.split() for line in text.splitlines() if line.startswith("(together)")]
    assert totals == [["(together)", "cpu", "8", "bytes"], ["(together)", "gpu:7", "1,024", "bytes"]]
