"""Trees of tensors: lists and nested dicts that are already there, and trees that really move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import devshim as ds
from benchmarks.session import Rival, Session

PARTS = ("weight", "bias", "mean", "variance", "step", "scale")


def flat(count: int = 1000) -> list[Any]:
    """Return a list of small tensors."""
    return [ds.zeros(1, dtype="float32") for _ in range(count)]


def nested() -> dict[str, Any]:
    """Return 300 small tensors in three levels of dicts, like a model's state: 5 stages of 10 layers of 6 tensors."""
    layer = lambda: {part: ds.zeros(1, dtype="float32") for part in PARTS}  # noqa: E731
    return {f"stage{i}": {f"layer{j}": layer() for j in range(10)} for i in range(5)}


SHAPES = {
    "flat": ("1,000 leaves, there already", flat, 0.8),
    "nested": ("nested dict of 300, there already", nested, 1.0),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_there_already(benchmark: Any, session: Session, shape: str) -> None:
    """Compared with the loop that a user writes by hand, and with a call that takes the whole tree."""
    case, make, target = SHAPES[shape]
    names: dict[str, Any] = {"tree": make()}
    rivals = []
    if session.native.move:
        names["loop"] = session.native.loops()[shape]
        rivals.append(Rival(f"a loop of {session.native.loop_text()}", "loop(tree)", target))
    if session.native.tree:
        rivals.append(Rival(session.native.tree, session.native.tree))
    rivals += session.peers_with("tree", names, target=1 / 3)
    session.versus(benchmark, "trees", case, "ds.place(tree, d)", rivals, names)


@pytest.mark.simulated
def test_really_moving(benchmark: Any, session: Session) -> None:
    """From the host to a second device that really copies, and never leaf by leaf.

    A simulated GPU on JAX is a host device in XLA: moving there is a copy, and both sides of the ratio make it.
    """
    if session.backend != "jax":
        pytest.skip("only JAX moves a tree in one call of its own")
    tree = {f"layer{i}": [ds.from_numpy(np.full(1024, i + j, "float32")) for j in range(10)] for i in range(30)}
    names = {"tree": tree, "d": ds.gpu(0), "n": ds.gpu(0).native()}
    rivals = [
        Rival("jax.device_put(tree, n)", "jax.block_until_ready(jax.device_put(tree, n))", 1.1),
        Rival("jax.device_put(x, n), leaf by leaf", "for xs in tree.values(): [jax.device_put(x, n) for x in xs]"),
    ]
    note = "300 leaves of 4 KiB to a simulated card, which is a host device of XLA's; `ds.place` also counts its memory"
    session.versus(benchmark, "trees", "a tree, really moving", "ds.place(tree, d)", rivals, names, note=note)
