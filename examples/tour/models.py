"""The tour's second chapter: move a whole model, train it on several devices, split it, and save it to a file.

Written like the first chapter, ``devices.py``: read the functions from top to bottom. ``forward``, ``learn`` and
``optimizer_of`` run and train a network with the framework's own API, in ``networks.py``.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import devshim as ds
from devshim.cli.chapters.networks import network_api
from devshim.cli.steps import Step, step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devshim.cli.steps import Outcome

__all__ = ["ARGUMENTS", "CHAPTER"]

_FOLDERS: list[TemporaryDirectory[str]] = []
"""Temporary folders, removed when the program ends."""

ARGUMENTS: Mapping[str, Callable[[], Any]] = {
    "net": lambda: network_api().net(),
    "other": lambda: trained(1),
    "rows": lambda: ds.asarray([[i + j / 4 - 3 for j in range(3)] for i in range(7)], dtype="float32", device="cpu"),
    "forward": lambda: network_api().forward,
    "learn": lambda: network_api().learn,
    "optimizer_of": lambda: network_api().optimizer,
    "path": lambda: new_folder() / "net.safetensors",
}
"""The arguments of the steps: a network on the CPU, another with other weights, seven rows of numbers, a file."""


@step("Move a model", condition="every weight and result is on the GPU, with the numbers of the CPU")
def model(net: Any, forward: Any, rows: Any) -> Outcome:
    """A model moves completely or not at all, and keeps its parameters, gradients, buffers, ties and hooks."""
    net = ds.place(net, ds.try_gpu())
    Y = forward(net, ds.place(rows, ds.try_gpu()))
    return Y, lambda: ds.placement_of(net).devices == {ds.device_of(Y)} == {ds.try_gpu()} and alike(Y, cpu_output())


@step("Move it during training", condition="the weights are those of a model that never moved")
def train(net: Any, optimizer_of: Any, learn: Any, rows: Any) -> Outcome:
    """Between any two training steps, a model and its optimizer can move together, and the results do not change."""
    optimizer = optimizer_of(net)
    visited = [*ds.try_all_gpus(), ds.cpu()]
    for device in visited:
        net, optimizer = ds.place([net, optimizer], device)
        net, optimizer = learn(net, optimizer, ds.place(rows, device))
    return visited, lambda: alike(weights(net), weights(trained(len(visited))))


@step("Split it over two GPUs", condition="each GPU has a part, and the results are the same as on one", cards=2)
def share(net: Any, forward: Any, rows: Any) -> Outcome:
    """A placement gives each weight a device; intermediate results are copied to the device of the next part."""
    plan = ds.Placement.balanced(net, ["gpu:0", "gpu:1"])
    net = ds.place(net, plan)
    Y = forward(net, ds.place(rows, "gpu:0"))
    return described(plan), lambda: ds.placement_of(net).devices == {ds.gpu(0), ds.gpu(1)} and alike(Y, cpu_output())


@step("Split the batch over the GPUs", condition="each GPU gets its rows, and the results are the same as on one")
def replicas(net: Any, forward: Any, rows: Any) -> Outcome:
    """Each GPU has a replica of the model, and the rows of a batch are split over the GPUs."""
    cards = ds.try_all_gpus()
    work = zip(ds.replicate(net, cards), ds.split(rows, cards), strict=True)
    parts = ds.parallel([lambda one: forward(*one)] * len(cards), work)
    Y = ds.gather(parts, "cpu")
    return parts, lambda: [ds.device_of(part) for part in parts] == cards and alike(Y, cpu_output())


@step("Save it to a file", condition="the loaded weights are on the GPU, and equal to the saved ones to the bit")
def checkpoint(net: Any, other: Any, path: Any) -> Outcome:
    """A checkpoint is checked before it changes anything, replaced atomically, and contains no pickled code."""
    ds.save(net, path)
    other = ds.load(path, ds.try_gpu(), into=other)
    where = ds.placement_of(other)
    return described(where), lambda: where.devices == {ds.try_gpu()} and alike(weights(other), weights(net), 0)


def new_folder() -> Path:
    """Return a new folder."""
    _FOLDERS.append(TemporaryDirectory(prefix="devshim-tour-"))
    return Path(_FOLDERS[-1].name)


def cpu_output() -> Any:
    """Return the output of the network on the CPU with its initial weights."""
    return network_api().forward(ARGUMENTS["net"](), ARGUMENTS["rows"]())


def described(plan: ds.Placement) -> str:
    """Return a placement as one line of text."""
    return ", ".join(f"{path} on {device}" for path, device in plan.items())


def weights(net: Any) -> list[Any]:
    """Return a network's weights."""
    return network_api().weights(net)


def alike(found: Any, expected: Any, rounding: float | None = None) -> bool:
    """Return True if tensors, or lists of them, are equal up to rounding, which differs on real GPUs."""
    if rounding is None:
        rounding = 1e-5 if all(ds.describe(card).simulated for card in ds.devices("gpu")) else 1e-2  # TF32
    if isinstance(found, list):
        return len(found) == len(expected) and all(alike(*pair, rounding) for pair in zip(found, expected, strict=True))
    a, b = ds.to_numpy(found), ds.to_numpy(expected)
    return a.shape == b.shape and bool(abs(a - b).max() <= rounding * abs(b).max())


def trained(steps: int) -> Any:
    """Return the network after some steps of training on the CPU."""
    net = network_api().net()
    optimizer = network_api().optimizer(net)
    for _ in range(steps):
        net, optimizer = network_api().learn(net, optimizer, ARGUMENTS["rows"]())
    return net


CHAPTER: list[Step] = [found for found in list(globals().values()) if isinstance(found, Step)]
"""The steps in the order of this file."""
