"""Tests that the planner, which makes parts only where it splits a block, plans as one that makes all of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.placement import planner
from devshim.placement.parts import Part
from devshim.trees import key_paths


@pytest.fixture(autouse=True)
def _cards() -> None:
    ds.simulate(3)


def parts_of_tensors(flat: Any) -> list[Part]:
    """Return the parts of a tree, with a part for every tensor, and paths written key by key."""
    parts: list[Part] = []
    blocks: dict[int, Part] = {}
    for _, cell, x, backend in flat.leaves:
        path = key_paths.path_text(cell)
        leaf = Part(path, {path: (id(x), backend.nbytes(x))}, [])
        container = cell[0]
        if container is None or container[0] is None:
            parts.append(leaf)
            continue
        block = blocks.get(id(container))
        if block is None:
            block = blocks[id(container)] = Part(key_paths.path_text(container), {}, [], whole=True)
            parts.append(block)
        block.leaves.update(leaf.leaves)
        block.children = [*(block.children or ()), leaf]
    return parts


def merged_ties(parts: list[Part]) -> list[Part]:
    """Merge parts that share a leaf's data, without asking first if any do."""
    merged: dict[int, Part] = {}
    of_owner: dict[int, int] = {}
    for at, part in enumerate(parts):
        owners = {owner for owner, _ in part.leaves.values()}
        shared = sorted({of_owner[owner] for owner in owners if owner in of_owner})
        home = shared[0] if shared else at
        merged.setdefault(home, Part(part.path, {}, part.children))
        for other in (*(merged.pop(position) for position in shared[1:]), part):
            merged[home].leaves.update(other.leaves)
            owners |= {owner for owner, _ in other.leaves.values()}
        of_owner.update(dict.fromkeys(owners, home))
    return list(merged.values())


def random_tree(rng: random.Random, depth: int, made: list[np.ndarray]) -> Any:
    """Return a tree of arrays of 0 to 99 bytes, some of which occur in several places."""
    if depth == 0 or rng.random() < 0.3:
        if made and rng.random() < 0.1:
            return rng.choice(made)
        made.append(np.zeros(rng.randrange(100), "uint8"))
        return made[-1]
    below = [random_tree(rng, depth - 1, made) for _ in range(rng.randrange(1, 12))]
    return dict(zip(["", "a.b", 3, *range(10, 30)], below, strict=False)) if rng.random() < 0.5 else below


def outcome(tree: Any, budgets: list[int] | None) -> tuple[str, object]:
    """Return the plan and its table, or the text of the error."""
    try:
        plan = ds.Placement.balanced(tree, [0, 1, 2], budgets)
    except ds.OutOfMemoryError as error:
        return "refused", str(error)
    return "planned", (list(plan.items()), repr(plan))


def test_plans_and_errors_are_those_of_a_part_for_each_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """For 300 random trees, with ample budgets, tight ones, and ones that are too small."""
    rng = random.Random(18)
    kinds: set[tuple[str, bool]] = set()
    for _ in range(300):
        made: list[np.ndarray] = []
        tree = random_tree(rng, 4, made)
        total = sum(x.nbytes for x in made)
        budgets = rng.choice([None, [max(1, int(total * rng.uniform(0.25, 0.6))) for _ in range(3)]])
        found = outcome(tree, budgets)
        with monkeypatch.context() as patch:
            patch.setattr(planner, "_of_tensors", parts_of_tensors)
            patch.setattr(planner, "_merge_ties", merged_ties)
            patch.setattr(planner, "_fits_together", lambda *_: True)
            assert found == outcome(tree, budgets)
        kinds.add((found[0], budgets is None))
    assert kinds == {("planned", True), ("planned", False), ("refused", False)}


def test_what_cannot_fit_is_refused_without_a_trial_for_each_block() -> None:
    """Splitting 20,000 blocks one by one would make as many plans; this takes one look at the total."""
    tree = [{"w": np.zeros(3, "uint8"), "b": np.zeros(1, "uint8")} for _ in range(20_000)]
    with pytest.raises(ds.OutOfMemoryError, match=r"80,000 bytes, and its largest indivisible part \(0\.w\) has 3"):
        ds.Placement.balanced(tree, [0, 1], budgets=["39KB", "39KB"])
