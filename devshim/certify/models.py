"""Claims about models, optimizers and checkpoints, with the tour's small network in each framework's own words."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

import devshim as ds
from devshim.certify.claims import Claims, Setting, expect
from devshim.cli._nets import words

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CLAIMS"]

CLAIMS = Claims("models")

_STEPS = 4
_CLOSE = 1e-2
"""Relative difference between a CPU and a card: cards round float32 products to TF32 in some frameworks."""


def _rows(count: int = 6) -> Any:
    return ds.asarray([[i + j / 4 - 3 for j in range(3)] for i in range(count)], dtype="float32")


def _weights(net: Any) -> list[np.ndarray[Any, Any]]:
    return [ds.to_numpy(weight) for weight in words().weights(net)]


def _close(found: Sequence[Any], wanted: Sequence[Any], rounding: float) -> bool:
    return all(abs(a - b).max() <= rounding * abs(b).max() for a, b in zip(found, wanted, strict=True))


def _trained(where: Sequence[Any], visits: Sequence[Any] = ()) -> list[np.ndarray[Any, Any]]:
    """Train a step on each device, and go to see other devices after each step."""
    net = words().net()
    optimizer = words().optimizer(net)
    for device in where:
        net, optimizer = ds.place([net, optimizer], device)
        net, optimizer = words().learn(net, optimizer, ds.place(_rows(), device))
        for visited in visits:
            net, optimizer = ds.place([net, optimizer], visited)
            expect(ds.placement_of(net).devices == {ds.device(visited)}, f"not all of the model is on {visited}")
    return _weights(net)


@CLAIMS.add("A model on a GPU answers on that GPU, with the CPU's numbers.")
def forward(at: Setting) -> None:
    """Run the network on the CPU and on the last GPU."""
    wanted = ds.to_numpy(words().forward(words().net(), _rows()))
    net = ds.place(words().net(), at.last)
    found = words().forward(net, ds.place(_rows(), at.last))
    expect(ds.placement_of(net).devices == {at.last}, f"the model is on {ds.placement_of(net).devices}")
    expect(ds.device_of(found) is at.last, f"the answer is on {ds.device_of(found)}")
    expect(_close([ds.to_numpy(found)], [wanted], _CLOSE), "the answer is another one")


@CLAIMS.add(
    "A model and its optimizer that visit every GPU between steps end with the same bits as if they had stayed."
)
def visiting(at: Setting) -> None:
    """Train on the CPU; go to the GPUs and back between steps."""
    stayed = _trained(["cpu"] * _STEPS)
    moved = _trained(["cpu"] * _STEPS, [at.first, at.last, "cpu"])
    same = all(np.array_equal(a, b) for a, b in zip(stayed, moved, strict=True))
    expect(same, f"the weights differ by {max(abs(a - b).max() for a, b in zip(stayed, moved, strict=True))}")


@CLAIMS.add("Training that moves between CPU and GPUs ends close to training on the CPU.")
def training(at: Setting) -> None:
    """Train a step on each device in turn."""
    wanted = _trained(["cpu"] * _STEPS)
    found = _trained([at.first, "cpu", at.last, at.first])
    expect(_close(found, wanted, _CLOSE), "the weights are others")


@CLAIMS.add("A model split over all GPUs by Placement.balanced answers as on one.", cards=2)
def split(at: Setting) -> None:
    """Apply a balanced plan."""
    wanted = ds.to_numpy(words().forward(words().net(), _rows()))
    net = words().net()
    plan = ds.Placement.balanced(net, ds.try_all_gpus()[:2])
    net = ds.place(net, plan)
    expect(len(ds.placement_of(net).devices) == 2, f"the model is on {ds.placement_of(net).devices}")
    found = ds.to_numpy(words().forward(net, ds.place(_rows(), at.first)))
    expect(_close([found], [wanted], _CLOSE), "the answer is another one")


@CLAIMS.add("A checkpoint saved from a GPU loads to the GPU, to the CPU and into a model, equal to the bit.")
def checkpoint(at: Setting) -> None:
    """Save and load a tree and a model."""
    with TemporaryDirectory(prefix="devshim-certify-") as folder:
        path = Path(folder) / "tree.safetensors"
        tree = {
            "a": ds.random.normal(size=(300, 30), device=at.last),
            "b": [ds.arange(5, dtype="int32", device=at.last)],
        }
        ds.save(tree, path)
        wanted = ds.to_numpy(tree["a"])
        for device in (at.first, at.last, ds.cpu()):
            back = ds.load(path, device)
            expect(ds.placement_of(back).devices == {device}, f"loaded to {ds.placement_of(back).devices}")
            expect(np.array_equal(ds.to_numpy(back["a"]), wanted), f"loaded to {device}: other values")
        net = ds.place(words().net(), at.first)
        ds.save(net, path)
        other = ds.load(path, at.last, into=words().net())
        expect(ds.placement_of(other).devices == {at.last}, "the model loaded is elsewhere")
        same = all(np.array_equal(a, b) for a, b in zip(_weights(other), _weights(net), strict=True))
        expect(same, "the model loaded has other weights")
