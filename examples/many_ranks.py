"""Train the network of ``train.py`` with any number of processes: one program for a laptop and for a cluster.

Alone:                   python examples/many_ranks.py torch
Two ranks of two GPUs:   devshim launch --ranks 2 --simulate 2 examples/many_ranks.py torch
On two simulated hosts:  the fixture devshim_cluster, as in tests/world/test_example.py
With torchrun:           torchrun --nproc_per_node 2 examples/many_ranks.py torch
On a cluster:            examples/clusters has files for Slurm and for Kubernetes with KubeRay

A second argument names a folder for checkpoints: a later run continues there, even with another number of ranks or
another framework. Rank 0 prints the loss of each step, which equals that of ``train.py`` except for rounding.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import train

import devshim as ds

SAVED_EVERY = 5


def loss(params: Any, batch: Any) -> Any:
    """Return this part's share of the mean squared error over all rows of the batch, a scalar."""
    error = train.predict(params, batch["x"]) - batch["y"]
    shares = ds.full((1, len(error)), 1 / train.ROWS, like=error)
    return (shares @ (error * error))[0, 0]


def steps(folder: str | None) -> Iterator[tuple[int, float]]:
    """Train, and yield the number and the loss of each step."""
    world = ds.world()
    state: Any = {"params": {name: ds.from_numpy(a, "cpu") for name, a in train.initial().items()}, "step": 0}
    if folder is not None and os.path.exists(folder):
        state = ds.load(folder, into=state, world=world)
    replicas = ds.broadcast(state["params"], world.devices)
    gradients = ds.value_and_grad(loss)
    for number, arrays in list(enumerate(train.batches()))[state["step"] :]:
        mine = world.part(train.ROWS)  # the rows of this rank, then of each of its devices
        batch = {name: ds.from_numpy(a[mine], "cpu") for name, a in arrays.items()}
        results = ds.parallel([lambda work: gradients(*work)] * len(replicas), split(replicas, batch, world.devices))
        sums = world.all_reduce_([{"loss": value, **grads} for value, grads in results])
        replicas = [ds.run(train.update, params, each) for params, each in zip(replicas, sums, strict=True)]
        if folder is not None and (number + 1) % SAVED_EVERY == 0:
            ds.save({"params": replicas[0], "step": number + 1}, folder, world=world)
        yield number, float(ds.to_numpy(sums[0]["loss"]))


def split(replicas: list[Any], batch: Any, devices: list[ds.Device]) -> list[tuple[Any, Any]]:
    """Return the parameters and the rows of each device."""
    return list(zip(replicas, ds.split(batch, devices), strict=True))


if __name__ == "__main__":
    ds.use(sys.argv[1])
    for number, value in steps(sys.argv[2] if len(sys.argv) > 2 else None):
        if ds.world().rank == 0:
            print(number, repr(value))
