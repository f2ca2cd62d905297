"""Two programs on two simulated hosts with two simulated GPUs each, compared with one process with one GPU.

Neither names a framework, and both compute their gradients themselves, so that they also run on NumPy. All replicas
must have the same bits, and be within 1e-6 of the results of one GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import devshim as ds
from devshim.world.simulated_hosts import SimulatedHosts

SIZES = (16, 15, 14, 3)
"""Rows of the batches: one that all devices share equally, and some that they do not; of three, one gets none."""
FEATURES, HIDDEN = 5, 8


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield inputs and targets, the same in every process."""
    source = np.random.default_rng(7)
    for rows in SIZES * 3:
        inputs = source.uniform(-1, 1, (rows, FEATURES)).astype("float32")
        yield inputs, np.sin(inputs.sum(1, keepdims=True)).astype("float32")


def gradients(params: dict[str, Any], inputs: Any, targets: Any, rows: int) -> dict[str, Any]:
    """Return this part's share of the gradients of the mean squared error of a network with one hidden layer."""
    xp = ds.namespace(inputs)
    hidden = xp.tanh(inputs @ params["w"])
    error = (hidden @ params["v"] - targets) * (2 / rows)
    back = (error @ xp.permute_dims(params["v"], (1, 0))) * (1 - hidden * hidden)
    return {
        "w": xp.permute_dims(inputs, (1, 0)) @ back,
        "v": xp.permute_dims(hidden, (1, 0)) @ error,
        "loss": xp.sum(error * error) * (rows / 4),
    }


def trained(framework: str, folder: str) -> list[dict[str, np.ndarray]]:
    """Train with momentum; return the parameters and the sum of losses of each device of this rank.

    With a folder, continue from the checkpoint there, and stop in the middle if there is none.
    """
    ds.use(framework)
    world = ds.world()
    source = np.random.default_rng(3)
    first = {"w": source.normal(size=(FEATURES, HIDDEN)), "v": source.normal(size=(HIDDEN, 1))}
    params = {name: ds.from_numpy(value.astype("float32"), "cpu") for name, value in first.items()}
    state: Any = {"params": params, "speed": {name: x * 0 for name, x in params.items()}, "step": 0, "loss": 0.0}
    path = os.path.join(folder, "saved") if folder else ""
    is_second = bool(path) and os.path.exists(path)
    if is_second:
        state = ds.load(path, into=state, world=world)
    replicas = ds.broadcast({name: state[name] for name in ("params", "speed")}, world.devices)
    loss = state["loss"]
    for number, (inputs, targets) in enumerate(batches()):
        if number < state["step"]:
            continue
        if path and not is_second and number == 5:
            break
        mine = world.part(len(inputs))
        parts = ds.split((ds.from_numpy(inputs[mine], "cpu"), ds.from_numpy(targets[mine], "cpu")), world.devices)
        work = [(replica["params"], *part, len(inputs)) for replica, part in zip(replicas, parts, strict=True)]
        sums = world.all_reduce_(ds.parallel([lambda each: gradients(*each)] * len(work), work))
        for replica, each in zip(replicas, sums, strict=True):
            for name, x in replica["params"].items():
                replica["speed"][name] = 0.9 * replica["speed"][name] + each[name]
                replica["params"][name] = x - 0.05 * replica["speed"][name]
        loss += float(ds.to_numpy(sums[0]["loss"]))
        if path:
            ds.save({**replicas[0], "step": number + 1, "loss": loss}, path, world=world)
    return [
        {name: ds.to_numpy(x) for name, x in replica["params"].items()} | {"loss": np.float32(loss)}
        for replica in replicas
    ]


def clustered(framework: str) -> list[dict[str, np.ndarray]]:
    """Find two centres of points, by sums of each cluster, the largest and smallest point, and gathered counts."""
    ds.use(framework)
    world = ds.world()
    points = np.random.default_rng(5).normal(size=(103, 3)).astype("float32") + 1
    mine = ds.split(ds.from_numpy(points[world.part(len(points))], "cpu"), world.devices)
    largest = world.all_reduce_([ds.namespace(x).max(x, axis=0, keepdims=True) for x in mine], "max")
    smallest = world.all_reduce_([ds.namespace(x).min(x, axis=0, keepdims=True) for x in mine], "min")
    centres = [ds.namespace(a).concat([a, b], axis=0) for a, b in zip(largest, smallest, strict=True)]
    for _ in range(6):
        sums = world.all_reduce_([cluster_sums(x, c) for x, c in zip(mine, centres, strict=True)])
        centres = [each["sum"] / each["count"] for each in sums]
    rows = world.all_gather({"rows": world.part(len(points)).stop, "centre": centres[0]})
    assert [each["rows"] for each in rows][-1] == len(points)
    root = world.broadcast({"centre": centres[0]}, root=world.size - 1)
    return [
        {
            "centres": ds.to_numpy(each),
            "root": ds.to_numpy(root["centre"]),
            "gathered": ds.to_numpy(rows[0]["centre"]),
        }
        for each in centres
    ]


def cluster_sums(points: Any, centres: Any) -> dict[str, Any]:
    """Return the sum and the number of the points that are nearest to each of two centres."""
    xp = ds.namespace(points)
    first, second = (xp.sum((points - centres[i : i + 1]) ** 2, axis=1, keepdims=True) for i in range(2))
    is_first = xp.astype(first < second, points.dtype)
    shares = [xp.permute_dims(each, (1, 0)) for each in (is_first, 1 - is_first)]
    sums = xp.concat([each @ points for each in shares], axis=0)
    return {"sum": sums, "count": xp.concat([xp.sum(each, axis=1, keepdims=True) for each in shares], axis=0)}


@pytest.fixture(scope="module")
def hosts() -> Iterator[SimulatedHosts]:
    """Start two simulated hosts for all tests of this file."""
    cluster = SimulatedHosts(hosts=2, cards=2)
    yield cluster
    cluster.close()


def check(found: list[Any], alone: dict[str, np.ndarray], replicas: int) -> None:
    """Fail unless all replicas of all ranks have the same bits, and are near to those of one GPU."""
    every = [replica for rank in found for replica in rank]
    assert len(every) == replicas
    for name, expected in alone.items():
        assert {replica[name].tobytes() for replica in every} == {every[0][name].tobytes()}, name
        np.testing.assert_allclose(every[0][name], expected, rtol=1e-6, atol=1e-6)


def both(framework: str, folder: str) -> list[list[dict[str, np.ndarray]]]:
    """Run one program after the other, and return what each returns: the import of a framework takes most of a job.

    With a folder, also train in it, until the middle.
    """
    found = [trained(framework, ""), clustered(framework)]
    if folder:
        trained(framework, folder)
    return found


@cache
def alone() -> list[dict[str, np.ndarray]]:
    """Return what one GPU computes in each program."""
    ((training, clustering),) = ds.launch(both, framework(), "", hosts=["host0"], ranks_per_host=1)
    return [training[0], clustering[0]]


def framework() -> str:
    """Return the name of the framework of this environment."""
    return ds.framework().__name__.split(".")[0]


@pytest.mark.parametrize(("engine", "cards"), [("", 1), ("portable", 2)])
def test_all_replicas_are_equal_and_near_to_one_gpu(
    hosts: SimulatedHosts, engine: str, cards: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Four ranks also stop in the middle, and two ranks continue."""
    expected, name = alone(), framework()
    monkeypatch.setenv("DEVSHIM_ENGINE", engine)
    results = ds.launch(both, name, str(tmp_path) if cards == 1 else "", cards_per_rank=cards)
    for number, one in enumerate(expected):
        check([rank[number] for rank in results], one, 4)
    if cards == 1:
        check(ds.launch(trained, name, str(tmp_path), cards_per_rank=2), expected[0], 4)
