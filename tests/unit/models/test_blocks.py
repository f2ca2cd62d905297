"""Tests of the blocks that an adapter's rules find in a model of nested modules."""

from __future__ import annotations

from typing import Any

from devshim.contract.blocks import BlockRules, join_path
from devshim.contract.models import Block

RULES = BlockRules(
    own_names=lambda module: module.get("own", ()),
    children=lambda module: module.get("children", {}).items(),
    is_chain=lambda module: "chain" in module,
    can_be_cut=lambda module: "children" in module and "whole" not in module,
)
LAYER: dict[str, Any] = {"own": ("w", "b")}
PAIR: dict[str, Any] = {"children": {"0": LAYER, "1": LAYER}}


def test_paths_are_joined_where_both_are_named() -> None:
    assert [join_path("a", "b"), join_path("", 0), join_path("a", ""), join_path("", "")] == ["a.b", "0", "a", ""]


def test_a_module_without_children_is_one_block() -> None:
    assert RULES.blocks(LAYER) == [Block("", ("w", "b"))]


def test_a_model_is_opened_and_chains_in_it_too() -> None:
    model = {"own": ("scale",), "children": {"body": {**PAIR, "chain": True}, "act": {}, "head": LAYER}}
    assert RULES.blocks(model) == [
        Block("scale", ("scale",)),
        Block("body.0", ("body.0.w", "body.0.b")),
        Block("body.1", ("body.1.w", "body.1.b")),
        Block("head", ("head.w", "head.b")),
    ]


def test_another_module_is_one_block_with_the_blocks_inside_it() -> None:
    (block,) = RULES.blocks({"children": {"pair": PAIR}})
    assert (block.path, block.leaves) == ("pair", ("pair.0.w", "pair.0.b", "pair.1.w", "pair.1.b"))
    assert [each.path for each in block.children] == ["pair.0", "pair.1"]


def test_a_module_that_computes_with_its_parts_is_not_cut() -> None:
    assert RULES.blocks({**PAIR, "whole": True}) == [Block("", ("0.w", "0.b", "1.w", "1.b"))]


def test_a_shared_module_is_visited_under_each_of_its_names() -> None:
    assert [path for path, _ in RULES.walk("", PAIR)] == ["", "0", "1"]


def test_a_model_names_classes_that_stay_whole() -> None:
    """A class that any module of the model names is not opened, even if its modules are chains."""

    class Naming(dict[str, Any]):
        _no_split_modules = ("Kept",)

    class Kept(dict[str, Any]):
        pass

    chain = Kept({**PAIR, "chain": True})
    (one, block) = RULES.blocks(Naming({"own": ("scale",), "children": {"body": chain}}))
    assert (one.whole, block.whole, block.path) == (False, True, "body")
    assert [each.path for each in block.children] == ["body.0", "body.1"]
    assert [each.path for each in RULES.blocks({"children": {"body": chain}})] == ["body.0", "body.1"], "nobody says so"
